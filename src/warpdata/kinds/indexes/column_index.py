"""A scalar index of one column, as the planner asks it: rows of the table for which a leaf is true.

A damaged segment covers nothing. It is named in a warning, once.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from warpdata.errors import (
    CorruptError,
    IndexWarning,
    NotCachedError,
    ObjectNotFoundError,
    SchemaMismatchError,
    UnsupportedError,
)
from warpdata.formats.indexes import BitmapSegment, BtreeSegment, Segment, is_list, value_type_of
from warpdata.formats.parquet import ShardOpener
from warpdata.kinds.indexes.opened_index import OpenedIndex
from warpdata.kinds.indexes.segment_rows import PlacedSource, SegmentRows, place_sources
from warpdata.kinds.tables import IndexedTable
from warpdata.primitives.bitmaps import range_bitmap, unite
from warpdata.primitives.parallel import IO_POOL
from warpdata.query import Compare, Contains, IsNull, Leaf, LeafRows, Match, value_key
from warpdata.repository.manifest import Shard

if TYPE_CHECKING:
    import pyarrow as pa
    from pyroaring import BitMap

__all__ = ["ColumnIndex", "ColumnLeaf"]

_T = TypeVar("_T")


class ScalarSegment(Protocol):
    value_type: pa.DataType

    def estimate(self, leaf: Leaf) -> int: ...
    def cost_rows(self, leaf: Leaf) -> int: ...
    def rows(self, leaf: Leaf) -> BitMap: ...
    @property
    def nulls(self) -> BitMap: ...


@dataclass(slots=True)
class _OpenSegment:
    """A segment that covers rows of the table."""

    number: int
    segment: ScalarSegment
    rows: SegmentRows


class ColumnIndex:
    """A scalar index over one column of one table. Opening reads the directory and the footers of its segments."""

    def __init__(self, index: OpenedIndex, table: IndexedTable) -> None:
        self.name = index.name
        self.kind = index.entry.kind
        self._index = index
        self._table = table
        self._column_type = table.schema.field(index.entry.column).type
        self._is_list = is_list(self._column_type)
        self._opener = ShardOpener(index.reader)
        self._segments: list[_OpenSegment] = self._guard(None, self._open) or []

    def find(self, leaf: Leaf) -> ColumnLeaf | None:
        """Return the index for a leaf; None if it cannot answer it."""
        asked = self._translate(leaf)
        return ColumnLeaf(self, asked) if asked is not None and self._segments else None

    def _translate(self, leaf: Leaf) -> Leaf | None:
        """Return the leaf over values that has the same rows; None if there is none."""
        if self._is_list:
            if isinstance(leaf, Contains):
                return Compare(leaf.column, "=", leaf.value)
            return leaf if isinstance(leaf, IsNull) else None
        if isinstance(leaf, Contains):
            return None
        if isinstance(leaf, Match) and self.kind == "btree" and leaf.how != "prefix":
            return None
        return leaf

    def estimate(self, leaf: Leaf) -> int:
        return sum(opened.segment.estimate(leaf) for opened in self._segments)

    def cost_rows(self, leaf: Leaf) -> int:
        return sum(opened.segment.cost_rows(leaf) for opened in self._segments)

    def rows(self, leaf: Leaf) -> LeafRows | None:
        """Look up the rows of the table. None if no segment can be read."""

        def look_up(opened: _OpenSegment) -> LeafRows | None:
            found = self._guard(opened, partial(_look_up, opened.segment, leaf))
            if found is None:
                return None
            return LeafRows(opened.rows.to_table(found[0]), opened.rows.to_table(found[1]), opened.rows.covered)

        parts = [part for part in IO_POOL.map_all(look_up, list(self._segments)) if part is not None]
        covered = unite([part.covered for part in parts])
        return LeafRows(unite([p.true for p in parts]), unite([p.null for p in parts]), covered) if covered else None

    def values(self) -> list[tuple[Any, BitMap]] | None:
        """Return the rows of each value, with null as a value. None unless this is a bitmap index of all rows."""
        if self.kind != "bitmap" or self._is_list:
            return None
        from pyroaring import BitMap

        found: dict[Any, BitMap] = {}
        covered = 0
        for opened in list(self._segments):
            assert isinstance(opened.segment, BitmapSegment)
            values = self._guard(opened, opened.segment.values)
            for value, rows in values or ():
                key = value_key(value)
                found[key] = found.get(key, BitMap()) | opened.rows.to_table(rows)
            covered += len(opened.rows.covered) if values is not None else 0
        return list(found.items()) if covered == self._table.entry.shards.row_count else None

    def _open(self) -> list[_OpenSegment]:
        """Open the segments that cover rows of the table, and have values of the type of the column."""
        self._index.load(self._opener.open)
        placed: dict[int, list[PlacedSource]] = {}
        table, column = self._table, self._index.entry.column
        for _, source in place_sources(table.entry, table.load_page, column, self._index.places):
            if source is not None:
                placed.setdefault(source.segment, []).append(source)
        try:
            value_type = value_type_of(column, self._column_type)
        except SchemaMismatchError:
            return []  # the column was cast to a type without an order

        def open_segment(number: int) -> _OpenSegment | None:
            shard, segment = self._index.shards[number], self._index.directory.segments[number]
            opened = self._guard(number, lambda: self._open_file(shard, segment))
            if opened is None or opened.value_type != value_type:
                return None
            return _OpenSegment(number, opened, SegmentRows(self._table, segment.row_count, placed[number]))

        found = IO_POOL.map_all(open_segment, sorted(placed))
        return [opened for opened in found if opened is not None]

    def _open_file(self, shard: Shard, segment: Segment) -> ScalarSegment:
        if segment.entries is None or shard.footer is None:
            raise CorruptError(f"segment {shard.hash} has no footer or no count of entries")
        file = self._opener.open(shard)
        if file.layout.metadata.num_rows != segment.entries:
            raise CorruptError(
                f"segment {shard.hash} has {file.layout.metadata.num_rows} entries, not {segment.entries}"
            )
        return BitmapSegment(file, segment) if self.kind == "bitmap" else BtreeSegment(file, segment)

    def _guard(self, part: _OpenSegment | int | None, read: Callable[[], _T]) -> _T | None:
        """Return what `read` returns. If the index is damaged, warn, read on without the part, and return None."""
        try:
            return read()
        except (CorruptError, ObjectNotFoundError, UnsupportedError) as error:
            if isinstance(part, _OpenSegment):
                self._segments = [opened for opened in self._segments if opened is not part]
            if not isinstance(error, NotCachedError | UnsupportedError):
                warnings.warn(
                    f"index {self.name!r} of {self._index.version.ref.dataset_id} is damaged, and rows are read "
                    f"without it: {error.message}. Repair it with update_index({self.name!r}, rebuild=True).",
                    IndexWarning,
                    stacklevel=2,
                )
            return None


@dataclass(frozen=True, slots=True)
class ColumnLeaf:
    """A leaf that an index answers."""

    index: ColumnIndex
    leaf: Leaf

    @property
    def name(self) -> str:
        return self.index.name

    def estimate(self) -> int:
        return self.index.estimate(self.leaf)

    def cost_rows(self) -> int:
        return self.index.cost_rows(self.leaf)

    def rows(self) -> LeafRows | None:
        return self.index.rows(self.leaf)


def _look_up(segment: ScalarSegment, leaf: Leaf) -> tuple[BitMap, BitMap]:
    """Return the rows for which the leaf is true, and those for which it is NULL."""
    true = segment.rows(leaf)
    return true, range_bitmap(0, 0) if isinstance(leaf, IsNull) else segment.nulls
