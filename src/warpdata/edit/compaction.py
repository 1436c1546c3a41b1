"""Compaction: small shards become larger ones, and deleted rows leave the files.

Readers see the same rows, in the same order, with the same ids. Appends merge only the last shards, by size tiers,
like a log-structured merge tree: many small appends leave few files, and a row is rewritten only a few times.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING

import msgspec

from warpdata.edit.table_draft import NewShard, TableDraft
from warpdata.kinds.tables import Table
from warpdata.limits import KIB, MIB
from warpdata.repository.manifest import LocatedShard, Shard, ShardList, differing_shards, iter_tail

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["CompactionOptions", "compact_table", "find_runs", "merge_tail"]

_FAN_IN = 16
"""Shards of one tier that are merged. Fewer leave fewer files; more write the same rows less often."""
_TIER_BYTES = tuple(64 * KIB * 8**tier for tier in range(4))
"""Upper bounds of the tiers: 64 KiB, 512 KiB, 4 MiB, 32 MiB. Larger shards are not merged by appends."""

_KEPT_CHANGES = 256
"""Schema changes that a table keeps even if all its files have them: edits that began before a compaction need them."""


@dataclass(frozen=True, slots=True)
class CompactionOptions:
    """The shards to rewrite: those of which more than a part is deleted, and neighbours that are small.

    `target_bytes` is the size up to which neighbours are joined.
    """

    target_bytes: int = 256 * MIB
    max_deleted: float = 0.1

    def is_worn(self, shard: Shard) -> bool:
        """Return whether a shard is worth rewriting for its deleted rows alone."""
        return shard.external is None and shard.deleted_count > self.max_deleted * shard.stored_count

    def is_small(self, shard: Shard) -> bool:
        return shard.external is None and shard.data_bytes < self.target_bytes // 2


def merge_tail(draft: TableDraft) -> None:
    """Merge the last shards of a table if there are many of one size tier, with the smaller ones after them."""
    if len(_small_tail(draft, _TIER_BYTES[-1])) < _FAN_IN:  # so every tier has fewer
        return
    for smallest, limit in pairwise((0, *_TIER_BYTES)):
        tail = _small_tail(draft, limit)
        if sum(shard.data_bytes >= smallest for shard in tail) >= _FAN_IN:
            count = draft.entry.shards.row_count
            first = count - sum(shard.row_count or 0 for shard in tail)
            position = draft.entry.shards.shard_count - len(tail)
            removed = {position + at: None for at in range(len(tail))}
            added = _rewrite(draft, draft.open(), first, count)
            draft.apply(removed, added, removed_rows=sum(shard.stored_count for shard in tail))


def compact_table(draft: TableDraft, options: CompactionOptions) -> int:
    """Rewrite the shards that are worth it. Return their number."""
    _, listed = differing_shards(ShardList(), draft.entry.shards, draft.workspace.load_page)
    rewritten = {placed.index: run for run in find_runs(listed, options) for placed in run}
    if not rewritten:
        return 0
    table = draft.open()
    if len(rewritten) == len(listed) and draft.revision > _KEPT_CHANGES:  # no file has an older revision any more
        draft.entry = replace(draft.entry, changes=())
    new: list[NewShard] = []
    for placed in listed:
        run = rewritten.get(placed.index)
        if run is None:
            new.append(NewShard(msgspec.structs.replace(placed.shard, ids=None), _stored_ids(table, placed)))
        elif run[0] is placed:
            new += _rewrite(draft, table, placed.first_row, run[-1].first_row + (run[-1].shard.row_count or 0))
    draft.replace_all(new)
    return len(rewritten)


def find_runs(listed: Sequence[LocatedShard], options: CompactionOptions) -> list[list[LocatedShard]]:
    """Return the shards that are worth rewriting. Those of one run are neighbours, and are joined."""
    return [run for run in _runs(listed, options) if len(run) > 1 or options.is_worn(run[0].shard)]


def _runs(listed: Sequence[LocatedShard], options: CompactionOptions) -> Iterator[list[LocatedShard]]:
    """Yield neighbours that are worn or small, up to the target size together."""
    run: list[LocatedShard] = []
    size_bytes = 0
    for placed in listed:
        is_wanted = options.is_worn(placed.shard) or options.is_small(placed.shard)
        if run and (not is_wanted or size_bytes + placed.shard.data_bytes > options.target_bytes):
            yield run
            run, size_bytes = [], 0
        if is_wanted:
            run.append(placed)
            size_bytes += placed.shard.data_bytes
    if run:
        yield run


def _small_tail(draft: TableDraft, limit_bytes: int) -> list[Shard]:
    """Return the longest run of shards at the end that are smaller than the limit and in the store."""
    tail: list[Shard] = []
    for shard in iter_tail(draft.entry.shards, draft.workspace.load_page):
        if shard.data_bytes >= limit_bytes or shard.external is not None:
            break
        tail.append(shard)
    return tail


def _rewrite(draft: TableDraft, table: Table, start: int, stop: int) -> list[NewShard]:
    """Write the rows [start, stop) that readers see into new shards, with their ids."""
    import numpy as np

    if start == stop:
        return []
    rows = np.arange(start, stop, dtype=np.int64)
    ids = np.concatenate([found.ids for found in table.locate(rows)])
    batches = (batch for chunk in draft.chunks(rows, table) for batch in chunk.to_batches())
    return draft.write_shards(batches, table.schema(), ids)


def _stored_ids(table: Table, placed: LocatedShard) -> NDArray[np.int64]:
    return table.opener.ids(placed.shard, placed.first_stored_row).ids
