"""The files of a LeRobot v3 dataset: paths, features, columns, images and statistics.

`meta/info.json` lists the features, `meta/episodes` the rows and videos of each episode, `data` holds the rows of many
episodes, and `videos` the videos.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from warpdata.errors import BadInputError, InvalidSourceError, WarpError
from warpdata.formats.convert.episode_fields import Array
from warpdata.formats.media import decode_rgb
from warpdata.formats.wshard import Block, Channel, index_images
from warpdata.limits import WSHARD_MAX_JSON_BYTES

__all__ = [
    "DATA_PATH",
    "DEFAULT_FEATURES",
    "EPISODES_PATH",
    "IMAGE_NAMES",
    "VIDEO_PATH",
    "FeatureStats",
    "array_to_column",
    "column_to_array",
    "decode_images",
    "format_path",
    "image_column",
    "image_times",
    "pass_images",
    "read_info",
    "tasks_table",
]

DATA_PATH = "data/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet"
EPISODES_PATH = "meta/episodes/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet"
VIDEO_PATH = "videos/{video_key}/chunk-{chunk_index:03d}/file-{file_index:03d}.mp4"
DEFAULT_FEATURES = {
    "timestamp": "float32",
    "frame_index": "int64",
    "episode_index": "int64",
    "index": "int64",
    "task_index": "int64",
}
IMAGE_NAMES = ["height", "width", "channels"]
"""The `names` of images and videos, unless a dataset has others."""
_FIELD = re.compile(r"\{(chunk_index|file_index|video_key)(?::0?(\d)d)?\}")


def read_info(root: Path) -> dict[str, Any]:
    """Read `meta/info.json` of a v3 dataset."""
    path = root / "meta" / "info.json"
    try:
        if path.stat().st_size > WSHARD_MAX_JSON_BYTES:
            raise InvalidSourceError(f"{path} has more than {WSHARD_MAX_JSON_BYTES} bytes")
        info: Any = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        if isinstance(error, InvalidSourceError):
            raise
        raise InvalidSourceError(f"{root} is not a LeRobot dataset: {error}") from error
    version = info.get("codebase_version") if isinstance(info, dict) else None
    if not isinstance(version, str) or not version.startswith("v3."):
        hint = "Convert it with LeRobot's script from v2.1 to v3.0 first."
        raise InvalidSourceError(f"{root} has the codebase version {version!r}, not v3", hint=hint)
    features, fps = info.get("features"), info.get("fps")
    is_valid = isinstance(features, dict) and isinstance(fps, int | float) and 0 < fps < 1e6
    if not is_valid or not all(isinstance(item, dict) and "dtype" in item for item in features.values()):
        raise InvalidSourceError(f"{path} has no valid features or fps")
    return dict(info)


def format_path(root: Path, template: object, chunk: int, file: int, key: str = "") -> Path:
    """Fill a path template of `info.json`, and refuse paths outside of the dataset."""

    def fill(match: re.Match[str]) -> str:
        if match[1] == "video_key":
            return key
        return f"{chunk if match[1] == 'chunk_index' else file:0{match[2] or 1}d}"

    name = _FIELD.sub(fill, str(template))
    path = (root / name).resolve()
    if "{" in name or not path.is_relative_to(root.resolve()):
        raise InvalidSourceError(f"{template!r} is not a path template inside of {root}")
    if not path.is_file():
        raise InvalidSourceError(f"{root} lacks the file {name}")
    return path


def array_to_column(values: Array) -> pa.Array:
    """Convert an array of [T, …] to a column of scalars, or of nested lists of fixed length.

    One value for each step becomes a scalar, also if the array has an axis for it.
    """
    flat: pa.Array = pa.array(np.ascontiguousarray(values).reshape(-1))
    for size in reversed(values.shape[1:] if values.shape[1:] != (1,) else ()):
        flat = pa.FixedSizeListArray.from_arrays(flat, size)
    return flat


def column_to_array(column: pa.ChunkedArray, dtype: str, shape: tuple[int, ...]) -> Array:
    """Convert a column to an array; `InvalidSourceError` if it does not match the features."""
    count = len(column)
    flat: Any = column.combine_chunks()
    flat = flat.storage if isinstance(flat, pa.ExtensionArray) else flat
    while pa.types.is_list(flat.type) or pa.types.is_fixed_size_list(flat.type) or pa.types.is_large_list(flat.type):
        flat = flat.flatten()
    if flat.null_count or len(flat) != count * int(np.prod(shape)):
        raise InvalidSourceError(f"a column has {len(flat)} values; {count} rows of {shape} were expected")
    found: Array = flat.to_numpy(zero_copy_only=False)
    try:
        return found.astype(np.dtype(dtype), copy=False).reshape(count, *shape)
    except (TypeError, ValueError) as error:
        raise InvalidSourceError(f"a column of {flat.type} cannot be read as {dtype}: {error}") from error


def tasks_table(tasks: Mapping[str, int]) -> pa.Table:
    """Return `meta/tasks.parquet`: task numbers, with the texts as the index of a pandas frame."""
    table = pa.table({"task_index": pa.array(tasks.values(), pa.int64()), "task": pa.array(tasks, pa.string())})
    pandas = {
        "index_columns": ["task"],
        "column_indexes": [],
        "columns": [
            {"name": name, "field_name": name, "pandas_type": kind, "numpy_type": numpy, "metadata": None}
            for name, kind, numpy in (("task_index", "int64", "int64"), ("task", "unicode", "object"))
        ],
        "pandas_version": "2.0.0",
    }
    return table.replace_schema_metadata({"pandas": json.dumps(pandas)})


def pass_images(cells: Sequence[Any], fps: float, channel_id: str, name: str) -> tuple[Channel, Block]:
    """Return a channel of the encoded images, and its frame index, with times from the rate."""
    try:
        return index_images([_image_bytes(cell, name) for cell in cells], image_times(len(cells), fps), channel_id)
    except BadInputError as error:
        raise InvalidSourceError(f"{name}: {error.message}") from error


def image_times(count: int, fps: float) -> list[int]:
    """Return the time of each image, in nanoseconds."""
    return [round(number * 1e9 / fps) for number in range(count)]


def decode_images(cells: Sequence[Any], name: str) -> Array:
    """Decode the PNG images that an export made of pixels."""
    try:
        return np.stack([decode_rgb(_image_bytes(cell, name), name, ("PNG",)) for cell in cells])
    except InvalidSourceError:
        raise
    except (WarpError, ValueError) as error:
        raise InvalidSourceError(f"{name}: an image cannot be decoded: {error}") from error


def image_column(encoded: Iterable[bytes]) -> pa.Array:
    """Return a column of encoded images, like LeRobot stores them."""
    cells = [{"bytes": data, "path": None} for data in encoded]
    return pa.array(cells, pa.struct([("bytes", pa.binary()), ("path", pa.string())]))


def _image_bytes(cell: Any, name: str) -> bytes:
    data = cell.get("bytes") if isinstance(cell, dict) else None
    if not isinstance(data, bytes):
        raise InvalidSourceError(f"{name}: an image is in a file of its own, not in the table")
    return data


class FeatureStats:
    """Minimum, maximum, mean and standard deviation of one feature, in float64.

    Images are aggregated by colour, from 0 to 1, like LeRobot does.
    """

    def __init__(self, *, is_image: bool = False) -> None:
        self._is_image = is_image
        self._frames = self._count = 0
        self._min: Any = None
        self._max: Any = None
        self._sum: Any = 0.0
        self._squares: Any = 0.0

    def add(self, rows: Array) -> None:
        if not len(rows):
            return
        self._frames += len(rows)
        with np.errstate(invalid="ignore"):
            values = rows.astype(np.float64)
        if self._is_image:
            values = (values / 255).reshape(-1, rows.shape[-1])
        with np.errstate(all="ignore"):
            low, high = values.min(axis=0), values.max(axis=0)
            self._min = low if self._min is None else np.minimum(self._min, low)
            self._max = high if self._max is None else np.maximum(self._max, high)
            self._sum = self._sum + values.sum(axis=0)
            self._squares = self._squares + (values**2).sum(axis=0)
        self._count += len(values)

    def document(self) -> dict[str, Any] | None:
        """Return the statistics; None without rows, or if a value is not finite."""
        if not self._count:
            return None
        with np.errstate(all="ignore"):
            mean = self._sum / self._count
            std = np.sqrt(np.maximum(self._squares / self._count - mean**2, 0))
        found = {"min": self._min, "max": self._max, "mean": mean, "std": std}
        if not all(np.isfinite(value).all() for value in found.values()):
            return None
        shape = (-1, 1, 1) if self._is_image else None
        shaped = {
            name: np.atleast_1d(value).reshape(shape or np.atleast_1d(value).shape) for name, value in found.items()
        }
        return {**{name: value.tolist() for name, value in shaped.items()}, "count": [self._frames]}
