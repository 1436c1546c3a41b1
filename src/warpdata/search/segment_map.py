"""Rows of segments as rows of a table and back, as arrays. Deleted rows have no number in the table."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from typing import TYPE_CHECKING

import numpy as np

from warpdata.kinds.indexes import PlacedSource
from warpdata.kinds.tables import IndexedTable
from warpdata.primitives.cached_property import cached_property
from warpdata.repository.manifest import Shard
from warpdata.repository.rows import RowSelection

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["SegmentMap"]


_numbers = count()


class SegmentMap:
    """The rows of one segment that the table has. Safe to share between threads."""

    def __init__(self, table: IndexedTable, row_count: int, sources: Sequence[PlacedSource]) -> None:
        self.number = next(_numbers)
        """The name of this map in the process."""
        self._table = table
        self._row_count = row_count
        self._sources = sorted(sources, key=lambda source: source.start)

    @property
    def spans(self) -> list[tuple[int, int]]:
        """The rows of the table that the segment covers, as starts and stops."""
        return [(each.located.first_row, each.located.first_row + _live(each.located.shard)) for each in self._sources]

    @property
    def row_count(self) -> int:
        """The number of rows of the table that the segment covers."""
        return sum(_live(each.located.shard) for each in self._sources)

    @cached_property
    def is_whole(self) -> bool:
        """True if the table has every row of the segment."""
        return self.row_count == self._row_count

    def allowed(self, selection: RowSelection) -> NDArray[np.int64] | None:
        """Return the rows of the segment that are selected, ascending; None if all are."""
        if self.is_whole and sum(selection.rank(stop) - selection.rank(start) for start, stop in self.spans) == (
            self._row_count
        ):
            return None
        parts = [np.empty(0, np.int64)]
        for source in self._sources:
            shard, first_row = source.located.shard, source.located.first_row
            rows = selection.between(first_row, first_row + _live(shard)).numbers - first_row
            deletes = self._table.opener.deletes(shard) if len(rows) else None
            parts.append(source.start + (rows if deletes is None else deletes.positions_of(rows)))
        return np.concatenate(parts)

    def to_table(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the numbers of these rows of the segment in the table; -1 for rows that the table does not have."""
        out = np.full(len(rows), -1, np.int64)
        for source in self._sources:
            shard = source.located.shard
            within = np.flatnonzero((rows >= source.start) & (rows < source.start + shard.stored_count))
            if not len(within):
                continue
            positions = rows[within] - source.start
            deletes = self._table.opener.deletes(shard)
            if deletes is not None:
                is_live = ~np.isin(positions, deletes.deleted)
                within, positions = within[is_live], positions[is_live]
                positions = positions - np.searchsorted(deletes.deleted, positions)
            out[within] = source.located.first_row + positions
        return out


def _live(shard: Shard) -> int:
    return shard.row_count or 0
