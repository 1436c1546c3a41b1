"""All scalar indexes of one table of a version, for its filters and samples."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from warpdata.errors import ManifestCorruptedError, UnsupportedError
from warpdata.kinds import VersionContext
from warpdata.kinds.indexes.column_index import ColumnIndex
from warpdata.kinds.indexes.kind import INDEXES
from warpdata.kinds.tables import IndexedTable
from warpdata.limits import MAX_SEGMENT_ROWS
from warpdata.primitives.parallel import IO_POOL
from warpdata.query import Answer, Leaf, LeafIndex, Predicate, columns_of, plan
from warpdata.storage import IOStats

if TYPE_CHECKING:
    from pyroaring import BitMap

__all__ = ["TableIndexes"]

_SCALAR = ("bitmap", "btree")
"""The kinds that answer filters, those that read least first."""


class TableIndexes:
    """Answers about the rows of one table. An index opens when a filter first needs it, and stays open."""

    def __init__(self, version: VersionContext, table: str) -> None:
        self._version = version
        self._names: dict[str, list[str]] = {}
        self._opened: dict[str, ColumnIndex] = {}
        for name, payload in sorted(version.manifest.indexes.items()):
            try:
                entry = INDEXES.parse(name, payload)
            except (UnsupportedError, ManifestCorruptedError):
                continue  # an index of another release has no effect
            if entry.table == table and entry.kind in _SCALAR:
                self._names.setdefault(entry.column, []).append(name)
        for names in self._names.values():
            names.sort(key=lambda name: _SCALAR.index(version.manifest.indexes[name].kind))

    def __bool__(self) -> bool:
        return bool(self._names)

    def answer(self, table: IndexedTable, predicate: Predicate) -> Answer | None:
        """Implements `RowIndexes.answer`."""
        row_count = table.entry.shards.row_count
        if row_count > MAX_SEGMENT_ROWS:
            return None
        asked = [column for column in sorted(columns_of(predicate) & self._names.keys()) if not self._is_open(column)]
        if len(asked) > 1:
            IO_POOL.map_all(partial(self._open, table), asked)  # directories and footers of all at once
        return plan(predicate, partial(self._find, table), row_count)

    def strata(self, table: IndexedTable, column: str) -> Sequence[tuple[Any, BitMap]] | None:
        """Implements `RowIndexes.strata`."""
        if table.entry.shards.row_count > MAX_SEGMENT_ROWS:
            return None
        for index in self._open(table, column):
            found = index.values()
            if found is not None:
                return found
        return None

    def io_stats(self) -> IOStats:
        return self._version.session.counters.snapshot()

    def _find(self, table: IndexedTable, leaf: Leaf) -> LeafIndex | None:
        return next((found for index in self._open(table, leaf.column) if (found := index.find(leaf))), None)

    def _is_open(self, column: str) -> bool:
        return all(name in self._opened for name in self._names[column])

    def _open(self, table: IndexedTable, column: str) -> list[ColumnIndex]:
        if column not in table.schema.names:
            return []
        for name in self._names.get(column, ()):
            if name not in self._opened:
                self._opened[name] = ColumnIndex(INDEXES.open(self._version, name), table)
        return [self._opened[name] for name in self._names.get(column, ())]
