"""Rows by place and by sample id: the shard, the position in its file and the id of each row, and back.

Reads deletion vectors and ids, and no row of the table. Implements "Sample ids" of docs/specs/manifest.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from warpdata.errors import BadInputError, NotFoundError
from warpdata.kinds.tables.table_shards import TableShards
from warpdata.primitives.parallel import IO_POOL
from warpdata.repository.manifest import LoadPage, LocatedShard, Shard, TableEntry, iter_located

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["ShardRows", "find_ids", "locate_rows"]

_T = TypeVar("_T")

_NAMED_IDS = 5


@dataclass(frozen=True)
class ShardRows:
    """Rows of one shard. `positions` and `ids` are parallel."""

    index: int
    """The position of the shard in the shard list."""
    shard: Shard
    first_row: int
    """The visible rows before the shard in the table."""
    first_stored_row: int
    """The stored rows before the shard in the table."""
    positions: NDArray[np.int64]
    """Positions in the file of the shard, ascending."""
    ids: NDArray[np.int64]
    """Sample ids."""


def locate_rows(
    entry: TableEntry, opener: TableShards, load_page: LoadPage, rows: NDArray[np.int64]
) -> Iterator[ShardRows]:
    """Yield the places of rows, given ascending by their visible numbers: shards in order, those with any of the rows.

    Raise `BadInputError` for numbers that are not ascending, or beyond the table.
    """
    import numpy as np

    if len(rows) and (int(rows[0]) < 0 or int(rows[-1]) >= entry.shards.row_count or bool(np.any(np.diff(rows) <= 0))):
        raise BadInputError(f"row numbers are ascending and below {entry.shards.row_count}, the rows of the table")

    def load(located: LocatedShard) -> ShardRows:
        shard = located.shard
        low, high = np.searchsorted(rows, (located.first_row, located.first_row + (shard.row_count or 0)))
        deletes = opener.deletes(shard)
        positions = rows[low:high] - located.first_row
        positions = positions if deletes is None else deletes.positions_of(positions)
        ids = opener.ids(shard, located.first_stored_row).at(positions)
        return ShardRows(located.index, shard, located.first_row, located.first_stored_row, positions, ids)

    listed = list(iter_located(entry.shards, load_page, rows))
    yield from _each(iter(listed), load, needs_reads=any(_has_blobs(located.shard) for located in listed))


def find_ids(entry: TableEntry, opener: TableShards, load_page: LoadPage, ids: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the visible row numbers of these sample ids, in their order.

    Raise `NotFoundError` for ids that no visible row has. Visits every shard of the table.
    """
    import numpy as np

    wanted, order = np.unique(ids, return_inverse=True)
    found = np.full(len(wanted), -1, np.int64)

    def load(located: LocatedShard) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        shard = located.shard
        positions, known = opener.ids(shard, located.first_stored_row).find(wanted)
        deletes = opener.deletes(shard) if len(positions) else None
        if deletes is not None:
            is_live = ~np.isin(positions, deletes.deleted)
            positions, known = positions[is_live], known[is_live]
            positions = positions - np.searchsorted(deletes.deleted, positions)
        return located.first_row + positions, known

    for rows, known in _each(iter_located(entry.shards, load_page), load, needs_reads=entry.manifest_format > 1):
        found[known] = rows
    missing = wanted[found < 0]
    if len(missing):
        named = ", ".join(str(number) for number in missing[:_NAMED_IDS])
        more = f" and {len(missing) - _NAMED_IDS} more" if len(missing) > _NAMED_IDS else ""
        raise NotFoundError(
            f"no row of the table has the sample id {named}{more}",
            hint="The rows may be deleted in this version. sample_ids() returns the ids of all rows.",
        )
    return found[order.reshape(-1)]


def _has_blobs(shard: Shard) -> bool:
    """Return whether the deleted rows or the ids of a shard are in blobs."""
    return any(part is not None and part.blob is not None for part in (shard.deletes, shard.ids))


def _each(located: Iterator[LocatedShard], load: Callable[[LocatedShard], _T], *, needs_reads: bool) -> Iterator[_T]:
    """Yield `load` of each shard in order. Shards of an edited table may read blobs, so several load at a time."""
    return IO_POOL.map_ordered(load, located) if needs_reads else map(load, located)
