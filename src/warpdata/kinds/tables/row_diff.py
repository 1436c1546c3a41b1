"""The rows that differ between two versions of a table, by sample id. The cost follows the shards that differ.

Pages and shards that both versions have are not opened. Of a shard whose deletion vector changed, only the difference
of the vectors counts.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from warpdata.errors import ObjectNotFoundError
from warpdata.kinds.tables.table import Table
from warpdata.primitives.cached_property import cached_property
from warpdata.repository.manifest import LoadPage, LocatedShard, Page, ShardList, differing_shards

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["DifferentRows", "RemadeColumns", "RowDiff", "SideRows", "diff_rows"]


@dataclass(frozen=True, eq=False)
class DifferentRows:
    """Rows of one shard: positions in its file, sample ids, and numbers in the table."""

    placed: LocatedShard
    positions: NDArray[np.int64]
    ids: NDArray[np.int64]
    rows: NDArray[np.int64]

    def at(self, positions: NDArray[np.int64]) -> DifferentRows:
        """Return the rows at these positions."""
        import numpy as np

        kept = np.isin(self.positions, positions, assume_unique=True)
        return DifferentRows(self.placed, self.positions[kept], self.ids[kept], self.rows[kept])


@dataclass(frozen=True, eq=False)
class SideRows:
    """Rows that only one of two versions has at their place: the older one or the newer one."""

    located: tuple[DifferentRows, ...]

    @cached_property
    def ids(self) -> NDArray[np.int64]:
        """The sample ids, in table order."""
        import numpy as np

        return np.concatenate([np.empty(0, np.int64), *(found.ids for found in self.located)])

    @cached_property
    def rows(self) -> NDArray[np.int64]:
        """The numbers of the rows in their version, for each of `ids`."""
        import numpy as np

        return np.concatenate([np.empty(0, np.int64), *(found.rows for found in self.located)])

    def rows_of(self, ids: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the row numbers of some of the ids, in the order of `ids`."""
        import numpy as np

        order = np.argsort(self.ids, kind="stable")
        return self.rows[order[np.searchsorted(self.ids, ids, sorter=order)]]


@dataclass(frozen=True, eq=False)
class RemadeColumns:
    """Rows of one shard that both versions have, and the columns that have another file in the newer one."""

    columns: tuple[str, ...]
    old: DifferentRows
    new: DifferentRows


@dataclass(frozen=True, eq=False)
class RowDiff:
    """The rows that left their place in the older version, and those that appear at one in the newer."""

    gone: SideRows
    come: SideRows
    remade: tuple[RemadeColumns, ...] = ()
    """Rows that stay at their place, in shards of which columns were computed again."""

    @cached_property
    def added(self) -> NDArray[np.int64]:
        """The ids that only the newer version has, ascending."""
        import numpy as np

        return np.setdiff1d(self.come.ids, self.gone.ids, assume_unique=True)

    @cached_property
    def removed(self) -> NDArray[np.int64]:
        """The ids that only the older version has, ascending."""
        import numpy as np

        return np.setdiff1d(self.gone.ids, self.come.ids, assume_unique=True)

    @cached_property
    def moved(self) -> NDArray[np.int64]:
        """The ids whose rows were written again, ascending. Their values may be equal, after a compaction."""
        import numpy as np

        return np.intersect1d(self.gone.ids, self.come.ids, assume_unique=True)


def diff_rows(old: Table | None, new: Table | None) -> RowDiff:
    """Compare two versions of a table; one that is missing has no rows.

    Reads deletion vectors and ids of the shards that differ, and no rows.
    """
    import numpy as np

    some = new or old
    if some is None:
        return RowDiff(SideRows(()), SideRows(()))
    old, new = (table or replace(some, entry=replace(some.entry, shards=ShardList())) for table in (old, new))
    before, after = differing_shards(old.entry.shards, new.entry.shards, _load_pages(old, new))
    twins = {placed.rows_key: placed for placed in after}
    gone, come, remade, matched = [], [], [], set()
    for placed in before:
        twin = twins.get(placed.rows_key)
        if twin is None:
            gone.append(_locate(old, placed))
        else:
            matched.add(twin)
            if placed.shard.deletes != twin.shard.deletes:
                here, there = _deleted(old, placed), _deleted(new, twin)
                gone.append(_rows_at(old, placed, np.setdiff1d(there, here, assume_unique=True)))
                come.append(_rows_at(new, twin, np.setdiff1d(here, there, assume_unique=True)))
            if placed.shard.files != twin.shard.files:
                remade += _find_remade(old, placed, new, twin)
    come += [_locate(new, placed) for placed in after if placed not in matched]
    return RowDiff(_side(gone), _side(come), tuple(remade))


def _load_pages(*tables: Table) -> LoadPage:
    """Return a function that loads pages of either table, which may be in different stores."""

    def load(page: Page) -> bytes:
        try:
            return tables[1].load_page(page)
        except ObjectNotFoundError:
            return tables[0].load_page(page)

    return load


def _find_remade(old: Table, before: LocatedShard, new: Table, after: LocatedShard) -> list[RemadeColumns]:
    """Return the rows of a shard, if columns of both versions come from other files. Reads footers."""
    stored, restored = old.opener.column_files(before.shard), new.opener.column_files(after.shard)
    columns = tuple(name for name in stored if name in restored and stored[name] != restored[name])
    here, there = _locate(old, before), _locate(new, after)
    both = here.at(there.positions), there.at(here.positions)
    return [RemadeColumns(columns, *both)] if columns and len(both[0].ids) else []


def _deleted(table: Table, placed: LocatedShard) -> NDArray[np.int64]:
    """Return the positions of deleted rows, ascending."""
    import numpy as np

    deletes = table.opener.deletes(placed.shard)
    return np.empty(0, np.int64) if deletes is None else deletes.deleted


def _rows_at(table: Table, placed: LocatedShard, positions: NDArray[np.int64]) -> DifferentRows:
    """Return the rows at these positions, which readers see."""
    import numpy as np

    ids = table.opener.ids(placed.shard, placed.first_stored_row).at(positions)
    numbers = positions - np.searchsorted(_deleted(table, placed), positions)
    return DifferentRows(placed, positions, ids, placed.first_row + numbers)


def _locate(table: Table, placed: LocatedShard) -> DifferentRows:
    """Return all rows of a shard that readers see."""
    import numpy as np

    shard = placed.shard
    ids, deletes = table.opener.ids(shard, placed.first_stored_row).ids, table.opener.deletes(shard)
    positions = np.arange(shard.stored_count, dtype=np.int64) if deletes is None else deletes.live
    rows = placed.first_row + np.arange(len(positions), dtype=np.int64)
    return DifferentRows(placed, positions, ids[positions], rows)


def _side(located: list[DifferentRows]) -> SideRows:
    found = (rows for rows in located if len(rows.ids))
    return SideRows(tuple(sorted(found, key=lambda rows: rows.placed.index)))
