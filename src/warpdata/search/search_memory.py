"""Memory of searches: blocks of indexes, and the rows that filters select, kept for later searches of the process.

Entries are named by what they follow from: the hash of a segment, or a version and a filter. So every dataset object
may use those of others, and nothing has to be invalidated.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING

from warpdata.formats.search import BlockCache
from warpdata.kinds.tables import Table
from warpdata.primitives.fork import ForkSafeLock
from warpdata.repository.rows import RowSelection

if TYPE_CHECKING:
    from collections.abc import Hashable

__all__ = ["SelectedRows", "search_memory", "select_rows"]

_lock = ForkSafeLock()
_memory = BlockCache(0, clear_after_fork=True)
_numbers = count()
_ENTRY_BYTES = 1000


@dataclass(frozen=True, eq=False)
class SelectedRows:
    """The rows that a filter selects. `number` names them in this process; None if they are all rows."""

    selection: RowSelection
    number: int | None


def search_memory(max_bytes: int) -> BlockCache:
    """Return the memory of the process. The largest bound that a session gave counts."""
    with _lock:
        _memory.max_bytes = max(_memory.max_bytes or 0, max_bytes)
    return _memory


def select_rows(table: Table, version: str, memory: BlockCache) -> SelectedRows:
    """Return the rows that the filters of a table keep, from memory if an earlier search had the same filters."""
    if not table.filters and table.rows is None:
        return SelectedRows(table.select_rows(), None)
    if table.rows is not None:  # a sample, or rows near to a vector
        return SelectedRows(table.select_rows(), next(_numbers))
    key: Hashable = (version, table.name, table.filters)
    selected: SelectedRows = memory.get_or_create(
        key,
        lambda: SelectedRows(table.select_rows(), next(_numbers)),
        lambda found: 8 * len(found.selection) + _ENTRY_BYTES,
    )
    return selected
