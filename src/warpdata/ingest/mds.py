"""MDS, the format of MosaicML Streaming: a directory with an `index.json` and shards of samples.

The format is read here, because the library needs old releases of NumPy and several cloud clients. Sizes and hashes
of the index are verified. Columns with encoding `pkl` are refused.
"""

from __future__ import annotations

import functools
import hashlib
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import xxhash

from warpdata.errors import InvalidSourceError, UnsupportedError
from warpdata.ingest.foreign_table import ImportTarget, Splits
from warpdata.ingest.options import OnReport, Packing, log_report
from warpdata.ingest.sample_columns import SampleColumn, decode_array, decode_list, decode_raw_image, refuse_pickle
from warpdata.ingest.sample_shards import SampleSet, add_samples, cut_fields, expand, read_offsets, unpack_samples
from warpdata.ingest.source_files import check_file_name, check_listed_once, read_bytes, read_json, source_errors
from warpdata.limits import MAX_FOREIGN_SHARD_BYTES
from warpdata.primitives.arguments import check_arguments
from warpdata.publish import DatasetBuilder
from warpdata.session import Session

if TYPE_CHECKING:
    import numpy as np

__all__ = ["mds"]

_INDEX = "index.json"
_SCALARS = (
    {f"{sign}int{bits}": f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)}
    | {"float16": "halffloat", "float32": "float", "float64": "double", "int": "int64"}
)  # fmt: skip
_ARRAY_DTYPES = {
    8: "uint8", 9: "int8", 16: "uint16", 17: "int16", 18: "float16", 32: "uint32", 33: "int32", 34: "float32",
    64: "uint64", 65: "int64", 66: "float64",
}  # fmt: skip
_HASHES = {
    **{
        name: getattr(hashlib, name)
        for name in (
            "sha1",
            "sha224",
            "sha256",
            "sha384",
            "sha512",
            "sha3_224",
            "sha3_256",
            "sha3_384",
            "sha3_512",
            "md5",
            "blake2b",
            "blake2s",
        )
    },
    **{name: getattr(xxhash, name) for name in ("xxh32", "xxh64", "xxh128", "xxh3_64", "xxh3_128")},
}


@check_arguments
def mds(
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
    """Build a dataset from a directory of MDS shards, or from a directory with one such directory for each split.

    Columns with encoding `jpeg`, `png` or `pil` become images, the last as PNG. `media` maps columns of bytes to
    "image", "audio", "video" or "file". JSON and decimal numbers stay text.
    """
    target = ImportTarget(table, splits, packing or Packing())
    builder = DatasetBuilder(dataset_id, store)
    add_samples(builder, source, _open, target, media=media, report=report)
    return builder


def _open(directory: Path) -> SampleSet:
    shards = _read_index(directory)
    return SampleSet(_columns(shards[0]), functools.partial(_read_samples, shards))


@dataclass(frozen=True, slots=True)
class _File:
    path: Path
    size_bytes: int
    hashes: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class _Shard:
    """An entry of the index. `packed` is the compressed file, if there is one."""

    names: tuple[str, ...]
    encodings: tuple[str, ...]
    sizes: tuple[int | None, ...]
    raw: _File
    packed: _File | None
    compression: str | None
    sample_count: int


def _read_index(directory: Path) -> list[_Shard]:
    path = directory / _INDEX
    document = read_json(path)
    listed = document.get("shards")
    if not isinstance(listed, list) or not listed:
        raise InvalidSourceError(f"{path} lists no shards")
    shards = []
    for number, entry in enumerate(listed):
        where = f"{path}, shard {number}"
        with source_errors(where):
            shards.append(_parse_shard(entry, directory, where))
        if (shards[0].names, shards[0].encodings) != (shards[-1].names, shards[-1].encodings):
            raise InvalidSourceError(f"{where} has other columns or encodings than shard 0")
    check_listed_once((shard.raw.path.name for shard in shards), path)
    return shards


def _parse_shard(entry: Mapping[str, Any], directory: Path, where: str) -> _Shard:
    if entry["format"] != "mds":
        raise UnsupportedError(f"{where} has format {entry['format']!r}", hint="Only shards of format mds are read.")
    names, encodings, sizes = (tuple(entry[f"column_{key}"]) for key in ("names", "encodings", "sizes"))
    if not len(names) == len(encodings) == len(sizes):
        raise InvalidSourceError(f"{where} has {len(names)} columns, {len(encodings)} encodings and {len(sizes)} sizes")
    for text in (*names, *encodings):
        if not isinstance(text, str):
            raise InvalidSourceError(f"{where} has {text!r} among the names and encodings of its columns")
    packed = entry.get("zip_data")
    return _Shard(
        names,
        encodings,
        tuple(None if size is None else _count(size, "a column size", where) for size in sizes),
        _parse_file(entry["raw_data"], directory, where),
        None if packed is None else _parse_file(packed, directory, where),
        str(entry["compression"]).partition(":")[0] if entry.get("compression") else None,
        _count(entry["samples"], "samples", where),
    )


def _parse_file(entry: Mapping[str, Any], directory: Path, where: str) -> _File:
    name = check_file_name(entry["basename"], where)
    hashes = dict(entry.get("hashes") or {})
    unknown = hashes.keys() - _HASHES.keys()
    if unknown:
        raise UnsupportedError(f"{where}: {name} has a hash of the unknown kind {min(unknown)!r}")
    return _File(directory / name, _count(entry["bytes"], "bytes", where), hashes)


def _count(value: object, what: str, where: str) -> int:
    if not isinstance(value, int) or value < 0:
        raise InvalidSourceError(f"{where} has {value!r} as {what}, which is not a count")
    return value


def _columns(shard: _Shard) -> list[SampleColumn]:
    where = f"{shard.raw.path.parent / _INDEX}"
    return [_column(name, encoding, where) for name, encoding in zip(shard.names, shard.encodings, strict=True)]


def _column(name: str, encoding: str, where: str) -> SampleColumn:
    import pyarrow as pa

    kind, _, options = encoding.partition(":")
    if kind == "pkl":
        raise refuse_pickle(where, name, encoding)
    if kind in _SCALARS:
        dtype = "int64" if kind == "int" else kind
        return SampleColumn(name, pa.type_for_alias(_SCALARS[kind]), lambda data: decode_array(data, dtype, ())[()])
    if kind == "ndarray":
        return SampleColumn(name, None, functools.partial(_decode_ndarray, options=options))
    if kind in ("str", "json"):
        return SampleColumn(name, pa.string(), _text, how="as JSON text" if kind == "json" else "")
    if kind in ("str_int", "str_float", "str_decimal"):
        return SampleColumn(name, pa.string(), _text, how="numbers of any length stay text")
    if kind in ("jpeg", "png"):
        return SampleColumn(name, None, bytes, "image")
    if kind == "pil":
        return SampleColumn(name, None, decode_raw_image, "image", "pixels as PNG")
    if kind == "bytes":
        return SampleColumn(name, pa.binary(), bytes)
    lists = {"jpeg_array": 0, "jpegarray": 0, "list[jpeg]": 4, "list[png]": 4, "list[pil]": 4}
    if kind in lists:
        how = "images inside of lists stay in the table, as bytes"
        decode = _decode_raw_images if kind == "list[pil]" else functools.partial(decode_list, offset=lists[kind])
        return SampleColumn(name, pa.list_(pa.binary()), decode, how=how)
    raise UnsupportedError(f"{where}: column {name!r} has encoding {encoding!r}, which is not known")


def _text(data: memoryview) -> str:
    return bytes(data).decode("utf-8")


def _decode_raw_images(data: memoryview) -> list[bytes]:
    return [decode_raw_image(memoryview(part)) for part in decode_list(data, 4)]


def _decode_ndarray(data: memoryview, options: str) -> np.ndarray[Any, Any]:
    """Decode an array whose type and shape are fixed by the encoding, or come before its values."""
    dtype, _, dimensions = options.partition(":")
    start = 0
    if not dtype:
        dtype, start = _ARRAY_DTYPES[data[0]], 1
    elif dtype not in _ARRAY_DTYPES.values():
        raise ValueError(f"arrays of {dtype!r} are not known")
    if dimensions:
        return decode_array(data[start:], dtype, [int(size) for size in dimensions.split(",")])
    count, width = data[start] >> 2, 1 << (data[start] & 3)
    start += 1
    shape = struct.unpack_from(f"<{count}{'BHIQ'[width.bit_length() - 1]}", data, start)
    return decode_array(data[start + count * width :], dtype, shape)


def _read_samples(shards: Sequence[_Shard]) -> Iterator[tuple[str, list[memoryview]]]:
    """Yield the fields of each sample, after its place. Memory holds one shard."""
    for shard in shards:
        data = memoryview(_load(shard))
        offsets = read_offsets(data, shard.sample_count, shard.raw.path)
        for place, sample in unpack_samples(data, offsets, shard.raw.path):
            yield place, _fields(sample, shard.sizes, place)


def _fields(sample: memoryview, fixed: Sequence[int | None], place: str) -> list[memoryview]:
    """Return the fields of a sample. Sizes that are not fixed come before the values."""
    start = 4 * sum(not size for size in fixed)
    if start > len(sample):
        raise InvalidSourceError(f"{place}: {len(sample)} bytes are too few for the sizes of its columns")
    written = iter(struct.unpack_from(f"<{start // 4}I", sample))
    return cut_fields(sample[start:], [size or next(written) for size in fixed], place)


def _load(shard: _Shard) -> bytes | bytearray:
    """Return the bytes of a shard, decompressed if only the compressed file is there, and compared with the index."""
    if shard.raw.path.exists() or shard.packed is None or shard.compression is None:
        return _read(shard.raw)
    data = expand(_read(shard.packed), shard.compression, shard.raw.size_bytes, shard.packed.path)
    _check(data, shard.raw, shard.packed.path)
    return data


def _read(file: _File) -> bytes:
    if file.size_bytes > MAX_FOREIGN_SHARD_BYTES:
        raise InvalidSourceError(f"{file.path}: {file.size_bytes:,} bytes are more than {MAX_FOREIGN_SHARD_BYTES:,}")
    data = read_bytes(file.path, MAX_FOREIGN_SHARD_BYTES)
    _check(data, file, file.path)
    return data


def _check(data: bytes | bytearray, file: _File, where: Path) -> None:
    if len(data) != file.size_bytes:
        raise InvalidSourceError(f"{where} has {len(data):,} bytes, and the index says {file.size_bytes:,}")
    for name, expected in file.hashes.items():
        if _HASHES[name](data).hexdigest() != expected:
            raise InvalidSourceError(f"{where} differs from its {name} in the index")
