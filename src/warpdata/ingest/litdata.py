"""LitData: a directory with an `index.json` and chunks of samples, as `litdata.optimize` writes it.

The format is read here, because the library decodes images into tensors, and needs torch to do so. Each leaf of a
sample becomes a column; the keys of nested dicts and lists are joined by dots. Pickled leaves and encrypted chunks are
refused. `litdata_chunk.py` reads the chunks.
"""

from __future__ import annotations

import functools
import json
import struct
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from warpdata.errors import InvalidSourceError, UnsupportedError
from warpdata.formats.media import REF_TYPE_BY_SUFFIX
from warpdata.ingest.foreign_table import ImportTarget, Splits
from warpdata.ingest.litdata_chunk import Chunk, nested_text, read_samples
from warpdata.ingest.options import OnReport, Packing, log_report
from warpdata.ingest.sample_columns import (
    SampleColumn,
    decode_array,
    decode_list,
    decode_raw_image,
    refuse_pickle,
)
from warpdata.ingest.sample_shards import SampleSet, add_samples
from warpdata.ingest.source_files import check_file_name, check_listed_once, read_json, source_errors
from warpdata.primitives.arguments import check_arguments
from warpdata.publish import DatasetBuilder
from warpdata.session import Session

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

__all__ = ["litdata"]

_INDEX = "index.json"
_NUMPY = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32", "float64"]
_TORCH = {
    **dict.fromkeys((0, 1), "float32"), **dict.fromkeys((2, 3), "float64"), **dict.fromkeys((8, 9), "float16"),
    11: "uint8", 12: "int8", **dict.fromkeys((13, 14), "int16"), **dict.fromkeys((15, 16), "int32"),
    **dict.fromkeys((17, 18), "int64"), 19: "bool", 20: "uint16",
}  # fmt: skip
_NUMPY_BOOL = 13
_MEDIA = {"jpeg": "image", "image": "image", "tifffile": "image", "audio": "audio", "video": "video"}
_FILES = frozenset({"file", "nifti", "mesh", "pdf"})
_MAX_DEPTH = 32


@check_arguments
def litdata(
    dataset_id: str,
    source: str | Path,
    *,
    store: str | Session | None = None,
    table: str = "main",
    splits: Splits = "column",
    media: Mapping[str, str] | None = None,
    packing: Packing | None = None,
    report: OnReport = log_report,
) -> DatasetBuilder:
    """Build a dataset from a directory of LitData chunks, or from a directory with one such directory for each split.

    Images, audio, video and files become members of artifacts; uncompressed images become PNG. `media` maps columns of
    bytes to "image", "audio", "video" or "file".
    """
    target = ImportTarget(table, splits, packing or Packing())
    builder = DatasetBuilder(dataset_id, store)
    add_samples(builder, source, _open, target, media=media, report=report)
    return builder


def _open(directory: Path) -> SampleSet:
    with source_errors(directory / _INDEX):
        chunks, columns = _read_index(directory)
    return SampleSet(columns, functools.partial(_read_samples, chunks, len(columns)))


def _read_samples(chunks: Sequence[Chunk], leaf_count: int) -> Iterator[tuple[str, list[memoryview]]]:
    for chunk in chunks:
        yield from read_samples(chunk, leaf_count)


def _read_index(directory: Path) -> tuple[list[Chunk], list[SampleColumn]]:
    path = directory / _INDEX
    document = read_json(path)
    config, listed = document.get("config"), document.get("chunks")
    if not isinstance(config, dict) or not isinstance(listed, list) or not listed:
        raise InvalidSourceError(f"{path} has no config, or lists no chunks")
    if config.get("encryption"):
        raise UnsupportedError(f"{path}: the chunks are encrypted", hint="Write the dataset again without encryption.")
    loader = config.get("item_loader") or "PyTreeLoader"
    if loader != "PyTreeLoader":
        raise UnsupportedError(
            f"{path}: chunks of {loader} are not read", hint="Parquet files can be published with warp publish."
        )
    compression = config.get("compression")
    chunks = []
    for number, entry in enumerate(listed):
        name = check_file_name(entry["filename"], f"{path}, chunk {number}")
        algorithm = str(compression).partition(":")[0] if compression else None
        chunks.append(Chunk(directory / name, int(entry["chunk_size"]), algorithm))
    check_listed_once((chunk.path.name for chunk in chunks), path)
    names = _leaf_names(config.get("data_spec"), path)
    formats = config.get("data_format")
    if not isinstance(formats, list) or len(formats) != len(names):
        raise InvalidSourceError(f"{path} has {len(names)} leaves and other formats: {formats!r}"[:500])
    return chunks, [_column(name, str(given), path) for name, given in zip(names, formats, strict=True)]


def _leaf_names(text: Any, path: Path) -> list[str]:
    """Return the names of the leaves of a sample: its keys, joined by dots, or "value" for a bare leaf."""
    spec = json.loads(text)
    if not isinstance(spec, list) or len(spec) != 2:
        raise InvalidSourceError(f"{path} has a data_spec of an unknown kind")
    names = [".".join(keys) or "value" for keys in _walk(spec[1], (), path)]
    check_listed_once(names, f"{path}, data_spec")
    return names


def _walk(node: Mapping[str, Any], keys: tuple[str, ...], path: Path) -> Iterator[tuple[str, ...]]:
    if len(keys) > _MAX_DEPTH:
        raise InvalidSourceError(f"{path}: samples are nested deeper than {_MAX_DEPTH} levels")
    kind, children = node.get("type"), node.get("children_spec") or []
    if kind is None:
        yield keys
        return
    if kind in ("builtins.dict", "collections.OrderedDict"):
        context = node["context"]
        names = [str(key) for key in (json.loads(context) if isinstance(context, str) else context)]
    elif kind in ("builtins.list", "builtins.tuple"):
        names = [str(number) for number in range(len(children))]
    else:
        raise UnsupportedError(f"{path}: samples with a {kind} are not read", hint="Use dicts, lists and tuples.")
    for name, child in zip(names, children, strict=True):
        yield from _walk(child, (*keys, name), path)


def _column(name: str, given: str, path: Path) -> SampleColumn:
    import pyarrow as pa

    kind, _, option = given.partition(":")
    if kind in ("pickle", "graph"):
        raise refuse_pickle(path, name, given)
    plain: dict[str, tuple[pa.DataType, Any]] = {
        "str": (pa.string(), _text),
        "text": (pa.string(), _text),
        "bool": (pa.bool_(), lambda data: struct.unpack("<?", data)[0]),
        "int": (pa.int64(), lambda data: struct.unpack("<q", data)[0]),
        "float": (pa.float64(), lambda data: struct.unpack("<d", data)[0]),
        "bytes": (pa.binary(), bytes),
    }
    if kind in plain:
        return SampleColumn(name, *plain[kind])
    if kind == "json":
        return SampleColumn(name, pa.string(), nested_text, how="as JSON text")
    if kind in _MEDIA or kind in _FILES:
        ref_type = _MEDIA.get(kind) or REF_TYPE_BY_SUFFIX.get(option, "file")
        return SampleColumn(name, None, bytes, ref_type)
    if kind == "pil":
        return SampleColumn(name, None, decode_raw_image, "image", "pixels as PNG")
    if kind == "jpeg_array":
        how = "images inside of lists stay in the table, as bytes"
        return SampleColumn(name, pa.list_(pa.binary()), functools.partial(decode_list, offset=0), how=how)
    if kind in ("no_header_numpy", "no_header_tensor"):
        try:
            dtype = _dtype(int(option), is_torch=kind.endswith("tensor"))
        except ValueError as error:
            raise UnsupportedError(f"{path}: column {name!r} has format {given!r}, which is not known") from error
        return SampleColumn(name, None, lambda data: decode_array(data, dtype, None))
    if kind in ("numpy", "tensor"):
        return SampleColumn(name, None, functools.partial(_decode_with_header, is_torch=kind == "tensor"))
    raise UnsupportedError(f"{path}: column {name!r} has format {given!r}, which is not known")


def _text(data: memoryview) -> str:
    return bytes(data).decode("utf-8")


def _dtype(number: int, *, is_torch: bool) -> str:
    """Return the name of an element type. `ValueError` for a number that no array of a table has."""
    if is_torch:
        found = _TORCH.get(number)
    else:
        found = "bool" if number == _NUMPY_BOOL else _NUMPY[number] if 0 <= number < len(_NUMPY) else None
    if found is None:
        raise ValueError(f"arrays of type number {number} cannot be stored in a table")
    return found


def _decode_with_header(data: memoryview, *, is_torch: bool) -> np.ndarray[Any, Any]:
    """Decode an array after its type, rank and shape. Tensors have big-endian headers, and little-endian values."""
    order = ">" if is_torch else "<"
    number, rank = struct.unpack_from(f"{order}II", data)
    if rank > _MAX_DEPTH:
        raise ValueError(f"{rank} dimensions are more than {_MAX_DEPTH}")
    shape = struct.unpack_from(f"{order}{rank}I", data, 8)
    return decode_array(data[8 + 4 * rank :], _dtype(number, is_torch=is_torch), shape)
