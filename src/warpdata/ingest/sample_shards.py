"""Shards of samples in a directory with an index, as MDS and LitData have them: splits, offsets, decompression.

Every count and size of a shard is compared with its bytes before memory is allocated for it.
"""

from __future__ import annotations

import bz2
import functools
import gzip
import io
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from warpdata.errors import InvalidSourceError, UnsupportedError, WarpError
from warpdata.ingest.foreign_table import (
    ColumnRule,
    ForeignSource,
    ImportTarget,
    SourcePart,
    add_foreign,
    media_rules,
)
from warpdata.ingest.options import OnReport
from warpdata.ingest.sample_columns import (
    SampleColumn,
    column_rules,
    column_schema,
    resolve_types,
    sample_batches,
)
from warpdata.ingest.source_files import split_order
from warpdata.limits import MAX_FOREIGN_SHARD_BYTES, STREAM_CHUNK_BYTES
from warpdata.primitives.paths import check_path
from warpdata.publish import DatasetBuilder

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

    Offsets = np.ndarray[Any, Any]

__all__ = ["SampleSet", "add_samples", "cut_fields", "expand", "read_offsets", "unpack_samples"]

_INDEX = "index.json"
_OFFSETS_AT_ONCE = 65_536
_MAX_VARINT_BYTES = 5


@dataclass(frozen=True, slots=True)
class SampleSet:
    """The samples of one directory. `read` yields the fields of each sample, after its place."""

    columns: Sequence[SampleColumn]
    read: Callable[[], Iterator[tuple[str, Sequence[memoryview]]]]

    def batches(self) -> Iterator[pa.RecordBatch]:
        return sample_batches(self.read(), self.columns)


def add_samples(
    builder: DatasetBuilder,
    source: str | Path,
    open_set: Callable[[Path], SampleSet],
    target: ImportTarget,
    *,
    media: Mapping[str, str] | None,
    report: OnReport,
) -> None:
    """Add the samples of a directory with an index, or of one such directory for each split."""
    folder = check_path(source).expanduser()
    parts: list[SourcePart] = []
    rules: dict[str, ColumnRule] = {}
    for split, directory in _split_directories(folder):
        found = open_set(directory)
        columns = resolve_types(found.columns, next(found.read(), None))
        schema = column_schema(columns)
        rules |= column_rules(columns, schema) | media_rules(media, schema, str(directory))
        batches = functools.partial(SampleSet.batches, SampleSet(columns, found.read))
        parts.append(SourcePart(split, schema, batches, str(directory)))
    add_foreign(builder, ForeignSource(str(folder), parts, rules), target, report)


def _split_directories(folder: Path) -> list[tuple[str | None, Path]]:
    """Return the directories that have an index: the directory itself, or else those inside, which are splits."""
    if not folder.is_dir():
        raise InvalidSourceError(f"{folder} is not a directory", hint="Check the path.")
    if (folder / _INDEX).is_file():
        return [(None, folder)]
    found = sorted(path.parent for path in folder.glob(f"*/{_INDEX}"))
    if not found:
        raise InvalidSourceError(
            f"{folder} has no {_INDEX}, and neither has a directory inside", hint="Check the path."
        )
    return [(path.name, path) for path in sorted(found, key=lambda path: split_order(path.name))]


def read_offsets(data: memoryview, sample_count: int, where: Path) -> Offsets:
    """Return the offsets of all samples and of their end: a count of 32 bits, which the index repeats, and a table.

    The samples begin after the table, and fill the rest of the data.
    """
    import numpy as np

    if len(data) < 4 or struct.unpack_from("<I", data)[0] != sample_count:
        raise InvalidSourceError(f"{where} has another number of samples than the {sample_count} of the index")
    if len(data) < 4 * (sample_count + 2):
        raise InvalidSourceError(f"{where} is too short for the offsets of {sample_count} samples")
    offsets = np.frombuffer(data, "<u4", sample_count + 1, 4)
    if offsets[0] < 4 * (sample_count + 2) or offsets[-1] != len(data):
        raise InvalidSourceError(
            f"{where} has samples in bytes {offsets[0]}…{offsets[-1]}, which are not those after its table"
        )
    return offsets


def unpack_samples(data: memoryview, offsets: Offsets, where: str | Path) -> Iterator[tuple[str, memoryview]]:
    """Yield the bytes of each sample between two offsets. `InvalidSourceError` if they do not ascend inside `data`."""
    for first in range(0, len(offsets) - 1, _OFFSETS_AT_ONCE):
        some = offsets[first : first + _OFFSETS_AT_ONCE + 1].tolist()
        for number, (start, end) in enumerate(pairwise(some), first):
            place = f"{where}, sample {number}"
            if not 0 <= start <= end <= len(data):
                raise InvalidSourceError(f"{place}: bytes {start}…{end} are not in the file of {len(data)} bytes")
            yield place, data[start:end]


def cut_fields(data: memoryview, sizes: Sequence[int], place: str) -> list[memoryview]:
    """Cut the fields of a sample, which fill it completely."""
    if sum(sizes) != len(data):
        raise InvalidSourceError(f"{place}: fields of {sum(sizes)} bytes do not fill {len(data)}")
    fields, start = [], 0
    for size in sizes:
        fields.append(data[start : start + size])
        start += size
    return fields


def expand(data: bytes | memoryview, algorithm: str, size_bytes: int | None, where: str | Path) -> bytes | bytearray:
    """Decompress a shard of at most `size_bytes`, or of the limit for shards."""
    limit = MAX_FOREIGN_SHARD_BYTES if size_bytes is None else size_bytes
    if limit > MAX_FOREIGN_SHARD_BYTES:
        raise InvalidSourceError(f"{where} claims {limit:,} bytes; the limit is {MAX_FOREIGN_SHARD_BYTES:,}")
    try:
        out = _expand(data, algorithm, limit, size_bytes)
    except WarpError:
        raise
    except Exception as error:
        raise InvalidSourceError(f"{where} cannot be decompressed as {algorithm}: {error}") from error
    if len(out) > limit or (size_bytes is not None and len(out) != size_bytes):
        expected = f"{size_bytes:,}" if size_bytes is not None else f"at most {limit:,}"
        raise InvalidSourceError(f"{where} decompresses to {len(out):,} bytes or more, not {expected}")
    return out


def _expand(data: bytes | memoryview, algorithm: str, limit: int, size_bytes: int | None) -> bytes | bytearray:
    import pyarrow as pa

    if algorithm == "snappy":
        if size_bytes is None:
            raise UnsupportedError("a snappy shard needs its size in the index")
        if _snappy_size(data) != size_bytes:  # Arrow returns memory that was never written for a larger size
            raise ValueError(f"it has {_snappy_size(data):,} bytes, and the index says {size_bytes:,}")
        return bytes(pa.Codec("snappy").decompress(data, size_bytes))
    if algorithm == "bz2":
        with bz2.BZ2File(io.BytesIO(data)) as stream:
            return _read_up_to(stream, limit + 1)
    if algorithm in ("gz", "gzip"):
        with gzip.GzipFile(fileobj=io.BytesIO(data)) as stream:
            return _read_up_to(stream, limit + 1)
    names = {"zstd": "zstd", "br": "brotli"}
    if algorithm not in names:
        raise UnsupportedError(f"compression {algorithm!r} is not known", hint="Known: br, bz2, gz, snappy, zstd.")
    with pa.CompressedInputStream(pa.BufferReader(data), names[algorithm]) as stream:
        return _read_up_to(stream, limit + 1)


def _read_up_to(stream: Any, size_bytes: int) -> bytearray:
    """Read in pieces: a single large read would allocate the limit, and not what is there."""
    out = bytearray()
    while piece := stream.read(min(STREAM_CHUNK_BYTES, size_bytes - len(out))):
        out += piece
    return out


def _snappy_size(data: bytes | memoryview) -> int:
    """Return the size that the first bytes give, seven bits in each, the lowest first."""
    size = 0
    for position, byte in enumerate(data[:_MAX_VARINT_BYTES]):
        size |= (byte & 0x7F) << (7 * position)
        if byte < 0x80:
            return size
    raise ValueError("its size cannot be read")
