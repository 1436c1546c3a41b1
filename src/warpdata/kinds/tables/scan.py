"""Scans: the rows of a table in order, fetched ahead and decoded in parallel.

A task is one row group. I/O threads fetch its bytes while CPU threads decode earlier row groups; results come in table
order. On many cores a thread decodes several row groups of a local file in a row, because threads that change files
often wait for the interpreter. A thread also reads several small shards in a row, such as those of edits, if the filter
needs SQL. The look-ahead is a share of the memory of all readers. No task runs after the iteration ends, however it
ends.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass, replace
from itertools import chain, islice
from typing import TYPE_CHECKING, TypeVar

from warpdata.errors import BadInputError
from warpdata.formats.parquet import FetchedRanges, GroupRows
from warpdata.kinds.tables.assignment import RowRange
from warpdata.kinds.tables.columns import find_widened, select_fields
from warpdata.kinds.tables.edited_shard import TableShard
from warpdata.kinds.tables.row_group_scan import FilteredScan, FullScan, ScanTask, is_short, is_small, is_sparse
from warpdata.kinds.tables.table_shards import TableShards
from warpdata.limits import KIB
from warpdata.primitives.parallel import CPU_POOL, IO_POOL, READ_MEMORY
from warpdata.primitives.read_memory import ReadAhead
from warpdata.query import RowFilter, can_match, columns_of
from warpdata.repository.manifest import LoadPage, Shard, ShardList, iter_rows
from warpdata.repository.rows import RowSelection

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray

__all__ = ["Scan", "check_counts", "match_rows", "rebatch", "scan_numbered", "scan_tables", "with_lookahead"]

_T = TypeVar("_T")
_Read = Callable[[ScanTask, "FetchedRanges | None"], _T]
_Reader = FullScan | FilteredScan

_AHEAD_PER_CORE = 2  # more decoded rows would leave the processor's caches
_CORES_PER_RUN_TASK = 4
_LARGE_SHARE = 0.75
"""A task with more than this part of the rows works alone for most of the time."""
_MIN_PREFIX_SAVING_BYTES = 512 * KIB
_SPARSE_TASK_ROWS = 256
_MAX_SMALL_ROWS = 64 * 1024
"""Small tasks with up to this many rows together are read by one thread."""


@dataclass(frozen=True, slots=True)
class Scan:
    """A request for rows. `schema` is the table's; `rows` counts over the table."""

    shards: ShardList
    schema: pa.Schema
    columns: tuple[str, ...]
    rows: RowRange
    row_filter: RowFilter | None = None
    keep: RowSelection | None = None
    """The rows of the scan that are wanted; None for all."""
    keeps_dictionaries: bool = False
    """Without a filter: return columns that were decoded as dictionaries as such."""
    ahead_rows: int | None = None
    """Rows to read ahead of the consumer; None bounds them by bytes and cores."""


def scan_tables(scan: Scan, opener: TableShards, load_page: LoadPage) -> Iterator[pa.Table]:
    """Yield one Arrow table for each row group that has rows for the scan, in table order."""
    schema = select_fields(scan.schema, scan.columns)
    reader = FilteredScan(scan.row_filter, schema) if scan.row_filter else FullScan(schema, scan.keeps_dictionaries)
    for table in _run(scan, opener, load_page, reader, reader.read):
        if table is not None and table.num_rows:
            yield table


def scan_numbered(scan: Scan, opener: TableShards, load_page: LoadPage) -> Iterator[tuple[NDArray[np.int64], pa.Table]]:
    """Yield the rows that the filter keeps with their numbers, as `match_rows` and `scan_tables` do each for one."""
    assert scan.row_filter is not None, "without a filter all rows match"
    reader = FilteredScan(scan.row_filter, select_fields(scan.schema, scan.columns))
    yield from (found for found in _run(scan, opener, load_page, reader, reader.read_numbered) if found is not None)


def match_rows(scan: Scan, opener: TableShards, load_page: LoadPage) -> Iterator[NDArray[np.int64]]:
    """Yield the numbers of the rows that the filter keeps, counted over the table, for each row group.

    Reads only the columns of the filter, in row groups that statistics do not rule out.
    """
    assert scan.row_filter is not None, "without a filter all rows match"
    reader = FilteredScan(scan.row_filter, select_fields(scan.schema, ()))
    scan = replace(scan, columns=tuple(reader.columns))
    yield from _run(scan, opener, load_page, reader, reader.match)


def _run(scan: Scan, opener: TableShards, load_page: LoadPage, reader: _Reader, read: _Read[_T]) -> Iterator[_T]:
    """Yield the result of `read`, a method of the reader, for each task, in table order.

    A single task of a local file runs in the calling thread, because waking another takes longer than some rows.
    """
    io = IO_POOL.executor()
    cpu = CPU_POOL.executor(CPU_POOL.size)
    try:
        with READ_MEMORY.reader() as ahead:
            tasks = _share_cores(_join_sparse(_plan_tasks(scan, opener, load_page, io)), CPU_POOL.size)
            first = list(islice(tasks, 1))
            if first and first[0].file.is_local:
                first += islice(tasks, 1)
                if len(first) == 1:
                    yield read(first[0], {})
                    return
            tasks = chain(first, tasks)
            yield from _run_ahead(
                scan,
                tasks,
                ahead,
                lambda run: _start(run.tasks, reader, read, io, cpu),
                joins_small=reader.joins_small and scan.ahead_rows is None,
            )
    finally:
        io.shutdown(cancel_futures=True)
        cpu.shutdown(cancel_futures=True)


def _run_ahead(
    scan: Scan,
    tasks: Iterator[ScanTask],
    ahead: ReadAhead,
    start: Callable[[_Run], Callable[[], list[_T]]],
    *,
    joins_small: bool,
) -> Iterator[_T]:
    """Start runs of tasks as memory and cores allow, and yield their results in order."""
    cores = CPU_POOL.size
    pending: deque[tuple[_Run, Callable[[], list[_T]]]] = deque()

    def is_full(run: _Run) -> bool:
        if scan.ahead_rows is not None:
            return sum(other.row_count for other, _ in pending) > scan.ahead_rows
        return len(pending) >= _AHEAD_PER_CORE * cores + (0 if run.tasks[0].file.is_local else IO_POOL.size)

    def next_results() -> list[_T]:
        run, results = pending.popleft()
        found = results()
        ahead.give_back(run.size_bytes)
        return found

    for run in _runs(scan, tasks, cores, joins_small=joins_small):
        while pending and is_full(run):
            yield from next_results()
        while not ahead.take(run.size_bytes):  # a reader that holds nothing may take anything
            yield from next_results()
        pending.append((run, start(run)))
    while pending:
        yield from next_results()


@dataclass(slots=True)
class _Run:
    """Tasks that one thread executes: several of a local file, several small ones of local files, or one."""

    tasks: list[ScanTask]
    size_bytes: int

    @property
    def row_count(self) -> int:
        return sum(task.take for task in self.tasks)

    def admits_small(self, task: ScanTask) -> bool:
        return is_small(task) and is_small(self.tasks[0]) and self.row_count + task.take <= _MAX_SMALL_ROWS


def _runs(scan: Scan, tasks: Iterator[ScanTask], cores: int, *, joins_small: bool = False) -> Iterator[_Run]:
    """Group tasks of the same local file. Runs begin short, for the first rows, and end short, for an even finish."""
    max_bytes = READ_MEMORY.ahead_bytes // (_AHEAD_PER_CORE * cores)
    run: _Run | None = None
    for started, task in enumerate(tasks):
        size_bytes = task.file.size_bytes(task.group, scan.columns)
        tasks_left = (scan.rows.stop - task.first_row) // task.group_rows
        max_tasks = min(cores // _CORES_PER_RUN_TASK, started // cores, tasks_left // (_AHEAD_PER_CORE * cores))
        if scan.ahead_rows is not None:
            max_tasks = 1
        if run is not None:
            is_same = run.tasks[0].file is task.file and task.file.is_local and not task.is_prefix
            is_wanted = is_same and len(run.tasks) < max_tasks and run.size_bytes + size_bytes <= max_bytes
            if is_wanted or (joins_small and run.admits_small(task)):
                run.tasks.append(task)
                run.size_bytes += size_bytes
                continue
            yield run
        run = _Run([task], size_bytes)
        if max_tasks <= 1 and not (joins_small and is_small(task)):
            yield run
            run = None
    if run is not None:
        yield run


def _start(
    tasks: Sequence[ScanTask], reader: _Reader, read: _Read[_T], io: Executor, cpu: Executor
) -> Callable[[], list[_T]]:
    """Start a run and return a function that waits for its results. CPU threads never wait for a fetch."""
    task = tasks[0]
    if task.file.is_local:
        executor = io if task.is_prefix else cpu
        return executor.submit(lambda: _read_all(tasks, reader, read)).result
    if task.is_prefix or task.sparse:
        return io.submit(lambda: [read(task, {})]).result

    if reader.fetches_again:
        return io.submit(lambda: [read(task, reader.fetch(task))]).result

    def fetch() -> Callable[[], _T]:
        fetched = reader.fetch(task)
        if fetched is None:  # `read` fetches what it needs
            found = read(task, None)
            return lambda: found
        return cpu.submit(read, task, fetched).result

    submitted = io.submit(fetch)
    return lambda: [submitted.result()()]


def _read_all(tasks: Sequence[ScanTask], reader: _Reader, read: _Read[_T]) -> list[_T]:
    if isinstance(reader, FilteredScan) and reader.joins_small and len(tasks) > 1:
        reader.evaluate_together(tasks)
    return [read(each, {}) for each in tasks]


def _share_cores(tasks: Iterator[ScanTask], cores: int) -> Iterator[ScanTask]:
    """Yield the tasks. Those of a local scan that would leave cores idle decode their columns in parallel.

    They do if there are fewer tasks than cores, or if one task has nearly all rows, such as after a few edits.
    """
    first = list(islice(tasks, 1))
    if first and first[0].file.is_local:
        first += islice(tasks, cores - 1)
        row_count = sum(task.take for task in first)
        for task in first:
            is_large = task.take > _LARGE_SHARE * row_count
            yield replace(task, parallel_columns=len(first) < cores or is_large)
    else:
        yield from first
    yield from tasks


def _plan_tasks(scan: Scan, opener: TableShards, load_page: LoadPage, io: Executor) -> Iterator[ScanTask]:
    """Yield the row groups that may have rows for the scan. Footers are fetched ahead."""
    opening: deque[tuple[int, Future[TableShard]]] = deque()
    for first_row, shard in iter_rows(scan.shards, load_page, scan.rows.start, scan.rows.stop):
        wanted = _wanted_rows(scan, first_row, shard)
        if not wanted:
            continue
        if not opening and opener.is_local(shard):  # opening takes less time than handing it to a thread
            yield from _shard_tasks(scan, opener.open(shard), first_row)
            continue
        open_shard = opener.peek if is_short(wanted, shard.row_count or 0) else opener.open
        opening.append((first_row, io.submit(open_shard, shard)))
        if len(opening) > IO_POOL.size:
            row, file = opening.popleft()
            yield from _shard_tasks(scan, file.result(), row)
    for row, file in opening:
        yield from _shard_tasks(scan, file.result(), row)


def _wanted_rows(scan: Scan, first_row: int, shard: Shard) -> int:
    """Count the rows of a shard that the scan wants, before its filter."""
    start, stop = max(scan.rows.start, first_row), min(scan.rows.stop, first_row + (shard.row_count or 0))
    return stop - start if scan.keep is None else scan.keep.rank(stop) - scan.keep.rank(start)


def _shard_tasks(scan: Scan, file: TableShard, first_row: int) -> Iterator[ScanTask]:
    """Yield the row groups of one shard, without those that statistics rule out."""
    predicate = scan.row_filter.predicate if scan.row_filter else None
    prunable = sorted(columns_of(predicate)) if predicate is not None else []
    needed = {*scan.columns, *(scan.row_filter.columns if scan.row_filter else ())}
    widened = find_widened(file, needed, scan.schema)
    for group in file.row_groups():
        start = max(scan.rows.start - first_row, group.first_row)
        stop = min(scan.rows.stop - first_row, group.first_row + group.row_count)
        if start >= stop:
            continue
        kept = None if scan.keep is None else _kept(scan.keep, first_row, start, stop)
        if kept is not None:
            if not len(kept):
                continue
            start, stop = int(kept[0]), int(kept[-1]) + 1
        if predicate is not None and not can_match(predicate, file.bounds(group.index, prunable)):
            continue
        skip, take = start - group.first_row, stop - start
        is_prefix = (
            predicate is None
            and skip == 0
            and is_short(take, group.row_count)
            and file.size_bytes(group.index, scan.columns) > _MIN_PREFIX_SAVING_BYTES
        )
        kept = None if kept is None or len(kept) == take else kept - start
        task = ScanTask(file, group.index, skip, take, group.row_count, first_row + start, is_prefix, widened=widened)
        if kept is None:
            yield task
        elif predicate is None and not scan.keeps_dictionaries and is_sparse(len(kept), group.row_count):
            yield replace(task, take=len(kept), sparse=(GroupRows(group.index, kept + skip),))
        else:
            yield replace(task, kept=kept)


def _join_sparse(tasks: Iterator[ScanTask]) -> Iterator[ScanTask]:
    """Yield the tasks, with neighbours of one file that want few rows as one task: each costs more than its rows."""
    waiting: ScanTask | None = None
    for task in tasks:
        if waiting is not None and task.sparse and task.file is waiting.file and waiting.take < _SPARSE_TASK_ROWS:
            waiting = replace(waiting, take=waiting.take + task.take, sparse=(*waiting.sparse, *task.sparse))
            continue
        if waiting is not None:
            yield waiting
        waiting = task if task.sparse else None
        if waiting is None:
            yield task
    if waiting is not None:
        yield waiting


def _kept(keep: RowSelection, first_row: int, start: int, stop: int) -> NDArray[np.int64]:
    """Return the wanted rows of a part of a shard, counted over the shard."""
    return keep.between(first_row + start, first_row + stop).numbers - first_row


def check_counts(batch_size: int, limit: int | None) -> None:
    """Raise `BadInputError` unless the batch size is positive, and a limit is not negative."""
    if isinstance(batch_size, bool) or not isinstance(batch_size, int) or batch_size < 1:
        raise BadInputError(f"batch_size={batch_size!r} is not a positive integer")
    if limit is not None and (isinstance(limit, bool) or not isinstance(limit, int) or limit < 0):
        raise BadInputError(f"limit={limit!r} is not a non-negative integer")


def rebatch(tables: Iterable[pa.Table], batch_size: int) -> Iterator[pa.RecordBatch]:
    """Yield batches of exactly `batch_size` rows; the last one may be smaller.

    A batch within one chunk of its table is a view. A batch across chunks is a copy.
    """
    import pyarrow as pa

    pending: list[pa.RecordBatch] = []
    pending_rows = 0
    for table in tables:
        for chunk in table.to_batches():
            offset = 0
            while offset < chunk.num_rows:
                piece = chunk.slice(offset, batch_size - pending_rows)
                offset += piece.num_rows
                pending.append(piece)
                pending_rows += piece.num_rows
                if pending_rows == batch_size:
                    yield pending[0] if len(pending) == 1 else pa.concat_batches(pending)
                    pending, pending_rows = [], 0
    if pending:
        yield pending[0] if len(pending) == 1 else pa.concat_batches(pending)


def with_lookahead(
    batches: Iterable[pa.RecordBatch], on_lookahead: Callable[[pa.RecordBatch], None]
) -> Iterator[pa.RecordBatch]:
    """Yield the batches. Pass each to `on_lookahead` before the batch in front of it is yielded."""
    previous: pa.RecordBatch | None = None
    for batch in batches:
        on_lookahead(batch)
        if previous is not None:
            yield previous
        previous = batch
    if previous is not None:
        yield previous
