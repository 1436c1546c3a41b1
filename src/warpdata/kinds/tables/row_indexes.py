"""Indexes as tables see them: answers about rows. `kinds.indexes` implements them, one layer above.

An answer is used where it is likely to save work: always to count rows and to list them, and for scans that keep at
most half of the rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from warpdata.kinds.tables.table_shards import TableShards
from warpdata.query import Answer, LeafPlan, Predicate
from warpdata.repository.manifest import LoadPage, TableEntry
from warpdata.storage import IOStats

if TYPE_CHECKING:
    import pyarrow as pa
    from pyroaring import BitMap

__all__ = ["IndexedTable", "QueryPlan", "RowIndexes", "explain", "is_selective"]

_SELECTIVE_SHARE = 0.5


@dataclass(frozen=True, slots=True)
class IndexedTable:
    """The parts of a table that map the rows of an index to its rows. `schema` has all stored columns."""

    entry: TableEntry
    schema: pa.Schema
    opener: TableShards
    load_page: LoadPage


class RowIndexes(Protocol):
    """The indexes of one table. Rows are numbered as readers see them."""

    def answer(self, table: IndexedTable, predicate: Predicate) -> Answer | None:
        """Return the rows for which the predicate is certainly and possibly true; None for a table of too many rows."""
        ...

    def strata(self, table: IndexedTable, column: str) -> Sequence[tuple[Any, BitMap]] | None:
        """Return the rows of each value of a column, with null as a value; None unless an index has all rows."""
        ...

    def io_stats(self) -> IOStats:
        """Return the counts of requests of the session."""
        ...


@dataclass(frozen=True, slots=True)
class QueryPlan:
    """How a filter is answered. `print(table.explain())` shows it line by line.

    Indexes find `certain_rows` that match, and `undecided_rows` that a scan of the filter's columns decides. Without an
    index all rows are undecided.
    """

    filter: str
    row_count: int
    certain_rows: int
    undecided_rows: int
    leaves: tuple[LeafPlan, ...]
    requests: int
    bytes_fetched: int

    def __str__(self) -> str:
        lines = [f"filter: {self.filter or 'none'}"]
        for leaf in self.leaves:
            found = "" if leaf.row_count is None else f": {leaf.row_count:,} rows"
            lines.append(f"  {leaf.condition}  [{leaf.index or leaf.reason}]{found}")
        lines.append(f"rows found by indexes: {self.certain_rows:,} of {self.row_count:,}")
        lines.append(f"rows to scan: {self.undecided_rows:,}")
        lines.append(f"read for this plan: {self.requests} requests, {self.bytes_fetched:,} bytes")
        return "\n".join(lines)


def explain(
    filter_text: str, row_count: int, indexes: RowIndexes | None, find: Callable[[], Answer | None]
) -> QueryPlan:
    """Return the plan of a filter, whose answer `find` returns."""
    before = IOStats() if indexes is None else indexes.io_stats()
    answer = find()
    spent = IOStats() if indexes is None else indexes.io_stats().since(before)
    if answer is None:
        return QueryPlan(filter_text, row_count, 0, row_count, (), spent.requests, spent.bytes_fetched)
    certain = len(answer.certain)
    undecided = len(answer.possible) - certain
    return QueryPlan(filter_text, row_count, certain, undecided, answer.leaves, spent.requests, spent.bytes_fetched)


def is_selective(answer: Answer, row_count: int) -> bool:
    """Return whether a scan of the rows in the answer takes less time than one of all rows."""
    return len(answer.possible) <= _SELECTIVE_SHARE * row_count
