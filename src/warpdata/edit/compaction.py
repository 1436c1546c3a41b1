"""Compaction: small shards become larger ones, and deleted rows leave the files.

Readers see the same rows, in the same order, with the same ids. Appends merge only the last shards, by size tiers,
like a log-structured merge tree: many small appends leave few files, and a row is rewritten only a few times.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, TypeAlias

import msgspec

from warpdata.edit.table_draft import NewShard, TableDraft, read_chunks
from warpdata.formats.parquet import describe_parquet, write_parquet
from warpdata.jobs import Job, Plan, Task, TaskContext, TaskResult, task_key
from warpdata.kinds.tables import Table
from warpdata.limits import KIB, MIB
from warpdata.primitives.progress import Progress, ProgressCounter
from warpdata.repository.manifest import (
    Footer,
    Json,
    LocatedShard,
    Shard,
    ShardList,
    differing_shards,
    iter_tail,
)
from warpdata.session import Session

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray

__all__ = ["CompactionOptions", "CompactionRun", "compact_table", "find_runs", "merge_tail"]

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
            added = _join(draft, first, count)
            draft.apply(removed, added, removed_rows=sum(shard.stored_count for shard in tail))


@dataclass(frozen=True, slots=True)
class CompactionRun:
    """How shards are written: here, or by a job, and with which progress."""

    progress: Progress
    job: Job | None = None


def compact_table(draft: TableDraft, options: CompactionOptions, how: CompactionRun) -> int:
    """Rewrite the shards that are worth it. Return their number."""
    _, listed = differing_shards(ShardList(), draft.entry.shards, draft.workspace.load_page)
    runs = find_runs(listed, options)
    rewritten = {placed.index: run for run in runs for placed in run}
    if not rewritten:
        return 0
    table = draft.open()
    if len(rewritten) == len(listed) and draft.revision > _KEPT_CHANGES:  # no file has an older revision any more
        draft.entry = replace(draft.entry, changes=())
    spans = [
        (run[0].first_row, run[-1].first_row + (run[-1].shard.row_count or 0), [placed.shard for placed in run])
        for run in runs
    ]
    written = {run[0].index: shards for run, shards in zip(runs, _rewrite(draft, table, spans, how), strict=True)}
    new: list[NewShard] = []
    for placed in listed:
        run = rewritten.get(placed.index)
        if run is None:
            new.append(NewShard(msgspec.structs.replace(placed.shard, ids=None), _stored_ids(table, placed)))
        elif run[0] is placed:
            new += written[placed.index]
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


def _join(draft: TableDraft, start: int, stop: int) -> list[NewShard]:
    """Write the rows [start, stop) into new shards, which stay in memory while they are small."""
    import numpy as np

    table, rows = draft.open(), np.arange(start, stop, dtype=np.int64)
    ids = np.concatenate([found.ids for found in table.locate(rows)])
    batches = (batch for chunk in draft.chunks(rows) for batch in chunk.to_batches())
    return draft.write_shards(batches, table.schema(), ids)


_RowSpan: TypeAlias = tuple[int, int]
"""Rows [start, stop) that readers see."""


@dataclass(frozen=True, slots=True)
class _RewriteWork:
    """Writes ranges of rows of a table into new shards."""

    open_table: Callable[[Session], Table]

    def open(self, session: Session) -> Callable[[_RowSpan, TaskContext], Json]:
        table = self.open_table(session)

        def run(span: _RowSpan, context: TaskContext) -> Json:
            files: list[Json] = []
            batches = _counted(read_chunks(table, *span), context)
            for path in write_parquet(batches, table.schema(), context.new_directory(), table.name):
                described = describe_parquet(path)
                files.append([described.row_count, msgspec.to_builtins(described.footer)])
                context.add_file(path)
            return files

        return run


def _counted(chunks: Iterator[pa.Table], context: TaskContext) -> Iterator[pa.RecordBatch]:
    for chunk in chunks:
        yield from chunk.to_batches()
        context.count(chunk.num_rows)


def _rewrite(
    draft: TableDraft, table: Table, spans: Sequence[tuple[int, int, Sequence[Shard]]], how: CompactionRun
) -> list[list[NewShard]]:
    """Write the rows of each span into new shards, with their ids. The shards of a span are those that hold them."""
    tasks = [_task(draft, (start, stop), shards) for start, stop, shards in spans if start < stop]
    work = _RewriteWork((lambda _: table) if how.job is None else draft.workspace.address_of(table))
    counter = ProgressCounter(how.progress, "rows", sum(task.size for task in tasks), len(tasks))
    results = iter(draft.workspace.run(Plan(work, tasks, limit=1), counter, how.job))
    return [_new_shards(draft, table, (start, stop), next(results)) if start < stop else [] for start, stop, _ in spans]


def _task(draft: TableDraft, span: _RowSpan, shards: Sequence[Shard]) -> Task[_RowSpan]:
    """Return the task of a span. Its key follows from the files of its rows, and from what is deleted in them."""
    seen = [(shard.hash, [file.hash for file in shard.files], shard.deletes, shard.revision) for shard in shards]
    key = task_key("rewrite", repr((seen, draft.entry.changes, draft.entry.schema)))
    return Task(key, span, span[1] - span[0])


def _new_shards(draft: TableDraft, table: Table, span: _RowSpan, result: TaskResult) -> list[NewShard]:
    import numpy as np

    ids = np.concatenate([found.ids for found in table.locate(np.arange(*span, dtype=np.int64))])
    shards, start = [], 0
    for made, (row_count, footer) in zip(
        result.blobs, msgspec.convert(result.value, list[tuple[int, Footer]]), strict=True
    ):
        shard = Shard(made.hash, made.byte_size, row_count, footer, revision=draft.revision)
        shards.append(NewShard(shard, ids[start : start + row_count]))
        start += row_count
    return [new for new in shards if new.shard.row_count]


def _stored_ids(table: Table, placed: LocatedShard) -> NDArray[np.int64]:
    return table.opener.ids(placed.shard, placed.first_stored_row).ids
