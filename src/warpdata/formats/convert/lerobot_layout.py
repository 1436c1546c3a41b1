"""The files of a LeRobot v3 dataset: names, features, tables. Knows neither episodes nor films.

`meta/info.json` says what there is, `meta/episodes` which rows and films belong to which episode, `data` holds
the rows of many episodes, and `videos` the films.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from warpdata.errors import InvalidSourceError
from warpdata.formats.convert.episode_fields import Array
from warpdata.limits import WSHARD_MAX_JSON_BYTES

__all__ = [
    "DATA_PATH",
    "DEFAULT_FEATURES",
    "EPISODES_PATH",
    "VIDEO_PATH",
    "column_of",
    "filled",
    "read_info",
    "tasks_table",
    "values_of",
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
_PLACE = re.compile(r"\{(chunk_index|file_index|video_key)(?::0?(\d)d)?\}")


def read_info(root: Path) -> dict[str, Any]:
    """`meta/info.json` of a v3 dataset."""
    path = root / "meta" / "info.json"
    try:
        if path.stat().st_size > WSHARD_MAX_JSON_BYTES:
            raise InvalidSourceError(f"{path} is too large")
        info: Any = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        if isinstance(error, InvalidSourceError):
            raise
        raise InvalidSourceError(f"{root} is not a LeRobot dataset: {error}") from error
    version = info.get("codebase_version") if isinstance(info, dict) else None
    if not isinstance(version, str) or not version.startswith("v3."):
        hint = "Convert it with LeRobot's own script from v2.1 to v3.0 first."
        raise InvalidSourceError(f"{root} has the codebase version {version!r}, not v3", hint=hint)
    features, fps = info.get("features"), info.get("fps")
    sound = isinstance(features, dict) and isinstance(fps, int | float) and 0 < fps < 1e6
    if not sound or not all(isinstance(item, dict) and "dtype" in item for item in features.values()):
        raise InvalidSourceError(f"{path} does not say which features there are, or how fast")
    return dict(info)


def filled(root: Path, template: object, chunk: int, file: int, key: str = "") -> Path:
    """A path from a template of `info.json`, which can only name files below the dataset."""

    def fill(match: re.Match[str]) -> str:
        if match[1] == "video_key":
            return key
        return f"{chunk if match[1] == 'chunk_index' else file:0{match[2] or 1}d}"

    name = _PLACE.sub(fill, str(template))
    path = (root / name).resolve()
    if "{" in name or not path.is_relative_to(root.resolve()):
        raise InvalidSourceError(f"{template!r} does not name files of the dataset {root}")
    if not path.is_file():
        raise InvalidSourceError(f"{root} lacks the file {name}")
    return path


def column_of(values: Array) -> pa.Array:
    """An array of [T, …] as a column: scalars, or lists of fixed length within lists.

    One value for each step is a scalar, also where the array has an axis for it.
    """
    flat: pa.Array = pa.array(np.ascontiguousarray(values).reshape(-1))
    for size in reversed(values.shape[1:] if values.shape[1:] != (1,) else ()):
        flat = pa.FixedSizeListArray.from_arrays(flat, size)
    return flat


def values_of(column: pa.ChunkedArray, dtype: str, shape: tuple[int, ...]) -> Array:
    """The inverse. `InvalidSourceError` where the column does not hold what the features say."""
    count = len(column)
    flat: Any = column.combine_chunks()
    flat = flat.storage if isinstance(flat, pa.ExtensionArray) else flat
    while pa.types.is_list(flat.type) or pa.types.is_fixed_size_list(flat.type) or pa.types.is_large_list(flat.type):
        flat = flat.flatten()
    if flat.null_count or len(flat) != count * int(np.prod(shape)):
        raise InvalidSourceError(f"a column has {len(flat)} values, and {count} rows of {shape} were told")
    found: Array = flat.to_numpy(zero_copy_only=False)
    try:
        return found.astype(np.dtype(dtype), copy=False).reshape(count, *shape)
    except (TypeError, ValueError) as error:
        raise InvalidSourceError(f"a column of {flat.type} is told to be {dtype}: {error}") from error


def tasks_table(tasks: Mapping[str, int]) -> pa.Table:
    """`meta/tasks.parquet`: numbers of tasks, with the texts as the index of a pandas frame."""
    table = pa.table({"task_index": pa.array(tasks.values(), pa.int64()), "task": pa.array(tasks, pa.string())})
    note = {
        "index_columns": ["task"],
        "column_indexes": [],
        "columns": [
            {"name": name, "field_name": name, "pandas_type": kind, "numpy_type": numpy, "metadata": None}
            for name, kind, numpy in (("task_index", "int64", "int64"), ("task", "unicode", "object"))
        ],
        "pandas_version": "2.0.0",
    }
    return table.replace_schema_metadata({"pandas": json.dumps(note)})
