"""The directory of an index: the segments, and the sources that each of them covers. Pure.

Implements "Directory" of docs/specs/indexes.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TypeAlias

import msgspec

from warpdata.errors import CorruptError, LimitExceededError, UnsupportedError
from warpdata.limits import MAX_INDEX_DIRECTORY_BYTES, MAX_SEGMENT_ROWS
from warpdata.primitives.cached_property import cached_property
from warpdata.primitives.hashing import are_digests
from warpdata.repository.manifest import Json, canonical_json

__all__ = ["INDEX_KINDS", "Directory", "Segment", "Source", "encode_directory", "parse_directory"]

INDEX_KINDS = ("bitmap", "btree", "imi", "ivf", "lsh", "text")
FORMAT = 1

_StoredSource: TypeAlias = tuple[str, str, int]


@dataclass(frozen=True, slots=True)
class Source:
    """A Parquet file that holds the indexed column: its hash, the name of the column in it, and its rows."""

    hash: str
    column: str
    row_count: int

    @property
    def key(self) -> tuple[str, str]:
        """The identity of the values: a file never changes."""
        return self.hash, self.column


@dataclass(frozen=True)
class Segment:
    """One blob of an index, and the sources whose rows it numbers from 0, one after the other."""

    hash: str
    sources: tuple[Source, ...]
    entries: int | None = None
    """The rows of the Parquet file that the segment is; None for other formats."""

    @cached_property
    def starts(self) -> tuple[int, ...]:
        """The row at which each source begins, and the end of the last one."""
        return tuple(accumulate((source.row_count for source in self.sources), initial=0))

    @property
    def row_count(self) -> int:
        return self.starts[-1]

    def places(self) -> Iterator[tuple[Source, int]]:
        """Yield the sources, each with the row at which it begins."""
        return zip(self.sources, self.starts[:-1], strict=True)


@dataclass(frozen=True, slots=True)
class Directory:
    """The segments of an index, in the order of the shards of its manifest entry."""

    segments: tuple[Segment, ...]

    @property
    def row_count(self) -> int:
        return sum(segment.row_count for segment in self.segments)


class _StoredSegment(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    hash: str
    sources: tuple[_StoredSource, ...]
    entries: int | None = None


class _StoredDirectory(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    format: int
    segments: tuple[_StoredSegment, ...]


class _AnyFormat(msgspec.Struct, frozen=True):
    format: int


def encode_directory(directory: Directory) -> bytes:
    """Return the canonical bytes. Raise `LimitExceededError` if they are too many."""
    segments: list[Json] = []
    for segment in directory.segments:
        sources: list[Json] = [[source.hash, source.column, source.row_count] for source in segment.sources]
        entries = {} if segment.entries is None else {"entries": segment.entries}
        segments.append({"hash": segment.hash, "sources": sources, **entries})
    data = canonical_json({"format": FORMAT, "segments": segments})
    if len(data) > MAX_INDEX_DIRECTORY_BYTES:
        raise LimitExceededError(
            f"the directory of the index has {len(data):,} bytes; the limit is {MAX_INDEX_DIRECTORY_BYTES:,}",
            hint="Compact the table into fewer shards first.",
        )
    return data


def parse_directory(data: bytes, hashes: Sequence[str], name: str) -> Directory:
    """Parse the directory of the index `name`, whose segments have these hashes.

    Raise `CorruptError` with the first problem, or `UnsupportedError` for a newer format.
    """
    try:
        version = msgspec.json.decode(data, type=_AnyFormat).format
        if version > FORMAT:
            raise UnsupportedError(
                f"the directory of index {name!r} has format {version}; this warpdata reads {FORMAT}",
                hint="Upgrade warpdata.",
            )
        stored = msgspec.json.decode(data, type=_StoredDirectory)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise CorruptError(f"the directory of index {name!r} is malformed: {error}") from error
    if stored.format != FORMAT:
        raise CorruptError(f"the directory of index {name!r} has format {stored.format}")
    if [segment.hash for segment in stored.segments] != list(hashes):
        raise CorruptError(f"the directory of index {name!r} lists other segments than the manifest")
    return Directory(tuple(_checked(segment, at, name) for at, segment in enumerate(stored.segments)))


def _checked(stored: _StoredSegment, at: int, name: str) -> Segment:
    place = f"segment {at} of index {name!r}"
    counts = [rows for _, _, rows in stored.sources]
    if not stored.sources or not are_digests([digest for digest, _, _ in stored.sources]):
        raise CorruptError(f"{place} has no sources, or one without a hash")
    if min(counts) < 0 or sum(counts) > MAX_SEGMENT_ROWS:
        raise CorruptError(f"{place} has sources of {sum(counts)} rows; the limit is {MAX_SEGMENT_ROWS}")
    if stored.entries is not None and stored.entries < 0:
        raise CorruptError(f"{place} has {stored.entries} entries")
    return Segment(stored.hash, tuple(Source(*source) for source in stored.sources), stored.entries)
