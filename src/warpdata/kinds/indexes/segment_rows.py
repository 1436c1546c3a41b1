"""Rows of segments as rows of a table: placed by the files of its shards, without deleted rows.

Implements "Segments" of docs/specs/indexes.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from warpdata.kinds.indexes.opened_index import SourcePlace
from warpdata.kinds.tables import IndexedTable
from warpdata.primitives.bitmaps import bitmap_of, numbers_of, range_bitmap, unite
from warpdata.primitives.cached_property import cached_property
from warpdata.primitives.parallel import IO_POOL
from warpdata.repository.manifest import LoadPage, LocatedShard, SchemaChange, Shard, TableEntry, iter_located
from warpdata.repository.rows import DeletionVector

if TYPE_CHECKING:
    from pyroaring import BitMap

__all__ = ["PlacedSource", "SegmentRows", "place_sources", "source_names"]


@dataclass(frozen=True, slots=True)
class PlacedSource:
    """A source of a segment in a table. `start` is its first row in the segment."""

    segment: int
    start: int
    located: LocatedShard


def source_names(shard: Shard, column: str, changes: Sequence[SchemaChange]) -> Iterator[tuple[str, str]]:
    """Yield the files that may hold the column of a shard, by hash, each with the name that it has there."""
    files = [(shard.hash, shard.revision), *((file.hash, file.revision) for file in shard.files)]
    for digest, revision in files:
        name: str | None = column
        for change in reversed(changes[revision:]):
            if name == change.renamed_to:
                name = change.column
            elif name == change.column:  # dropped or renamed since: the file has another column of this name
                name = None
                break
        if name is not None:
            yield digest, name


def place_sources(
    entry: TableEntry, load_page: LoadPage, column: str, places: Mapping[tuple[str, str], SourcePlace]
) -> Iterator[tuple[LocatedShard, PlacedSource | None]]:
    """Yield every shard of the table with the source that covers it, or None. Reads pages of the manifest."""
    for located in iter_located(entry.shards, load_page):
        keys = source_names(located.shard, column, entry.changes)
        place = next((places[key] for key in keys if key in places), None)
        is_covered = place is not None and place.row_count == located.shard.stored_count
        yield located, PlacedSource(place.segment, place.start, located) if place is not None and is_covered else None


class SegmentRows:
    """Maps the rows of one segment to the rows of a table."""

    def __init__(self, table: IndexedTable, row_count: int, sources: Sequence[PlacedSource]) -> None:
        self._table = table
        self._row_count = row_count
        self._runs: list[tuple[int, int, int]] = []
        """Rows of the segment from a start to a stop, and their distance to the rows of the table."""
        self._edited: list[PlacedSource] = []
        self._covered: list[tuple[int, int]] = []
        for source in sorted(sources, key=lambda source: source.start):
            self._add(source)

    def _add(self, source: PlacedSource) -> None:
        shard, first_row = source.located.shard, source.located.first_row
        if not shard.row_count:
            return
        self._covered.append((first_row, first_row + shard.row_count))
        if shard.deletes is not None:
            self._edited.append(source)
            return
        stop, distance = source.start + shard.stored_count, first_row - source.start
        if self._runs and self._runs[-1][1:] == (source.start, distance):
            self._runs[-1] = (self._runs[-1][0], stop, distance)
        else:
            self._runs.append((source.start, stop, distance))

    @cached_property
    def covered(self) -> BitMap:
        """The rows of the table that the segment covers. Must not change."""
        from pyroaring import BitMap

        out = BitMap()
        for start, stop in self._covered:
            out.add_range(start, stop)
        return out

    def to_table(self, rows: BitMap) -> BitMap:
        """Return the rows of the table for rows of the segment: a bitmap that must not change."""
        parts = []
        for start, stop, distance in self._runs:
            part = rows if (start, stop) == (0, self._row_count) else rows & range_bitmap(start, stop)
            parts.append(part.shift(distance) if distance else part)
        if self._edited:
            parts += IO_POOL.map_all(lambda source: self._without_deleted(source, rows), self._edited)
        return unite(parts)

    def _without_deleted(self, source: PlacedSource, rows: BitMap) -> BitMap:
        shard = source.located.shard
        part = (rows & range_bitmap(source.start, source.start + shard.stored_count)).shift(-source.start)
        deletes = self._table.opener.deletes(shard) if part else None
        return part if deletes is None else _renumber(part, deletes).shift(source.located.first_row)


def _renumber(positions: BitMap, deletes: DeletionVector) -> BitMap:
    """Return the numbers of stored rows among the rows that are not deleted."""
    import numpy as np

    live = numbers_of(positions - deletes.bitmap)
    return bitmap_of(live - np.searchsorted(deletes.deleted, live))
