"""Rows in order, fetched ahead and decoded in parallel.

The unit of work is a row group. Bytes are fetched by I/O threads while earlier row groups are
decoded; results come out in the order of the table. How far ahead is bounded in bytes. Threads end
with the iteration, however it ends.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, TypeVar

from warpdata.formats.parquet import Parts, ShardFile, ShardOpener
from warpdata.kinds.tables.assignment import RowRange
from warpdata.kinds.tables.row_group_scan import FilteredRows, Unit, is_short, read_prefix, read_whole
from warpdata.limits import MIB, SCAN_AHEAD_BYTES
from warpdata.primitives.parallel import usable_cores
from warpdata.query import RowFilter, can_match, columns_of
from warpdata.repository.manifest import LoadPage, Shard, ShardList, iter_rows

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray

__all__ = ["Scan", "match_rows", "scan_tables"]

_T = TypeVar("_T")
_FOOTERS_AHEAD = 8
_UNITS_AHEAD = 8
_UNITS_AHEAD_LOCAL = 4  # nothing is fetched, so more would only push decoded rows out of the processor's caches
_IO_THREADS = 8
_PREFIX_WORTH_BYTES = MIB // 2


@dataclass(frozen=True, slots=True)
class Scan:
    """What to read. `schema` is the table's; `rows` counts over the whole table."""

    shards: ShardList
    schema: pa.Schema
    columns: tuple[str, ...]
    rows: RowRange
    row_filter: RowFilter | None = None

    def wanted(self) -> pa.Schema:
        """What comes out: the columns in the order asked for, with the table's own types."""
        import pyarrow as pa

        fields = [self.schema.field(name) for name in self.columns]
        return pa.schema(fields, metadata=self.schema.metadata)


def scan_tables(scan: Scan, shards: ShardOpener, load_page: LoadPage) -> Iterator[pa.Table]:
    """One Arrow table per row group that has rows to give, in table order."""
    wanted = scan.wanted()
    filtered = FilteredRows(scan.row_filter, wanted) if scan.row_filter else None

    def begin(unit: Unit, io: ThreadPoolExecutor, cpu: ThreadPoolExecutor) -> Future[pa.Table | None]:
        if filtered is not None:
            return cpu.submit(_with_parts, filtered.read, unit, _fetch(unit, filtered.needed, io))
        if _is_short_prefix(scan, unit):
            return io.submit(read_prefix, unit, wanted)
        return cpu.submit(_with_parts, partial(read_whole, wanted=wanted), unit, _fetch(unit, scan.columns, io))

    for table in _run(scan, shards, load_page, begin):
        if table is not None and table.num_rows:
            yield table


def match_rows(scan: Scan, shards: ShardOpener, load_page: LoadPage) -> Iterator[NDArray[np.int64]]:
    """The numbers of the rows that the filter keeps, counted over the table, row group by row group.

    Only the columns of the filter are read, and only where statistics do not rule a row group out.
    """
    assert scan.row_filter is not None, "without a filter all rows are kept"
    filtered = FilteredRows(scan.row_filter, scan.wanted())

    def begin(unit: Unit, io: ThreadPoolExecutor, cpu: ThreadPoolExecutor) -> Future[NDArray[np.int64]]:
        return cpu.submit(_with_parts, filtered.match, unit, _fetch(unit, filtered.needed, io))

    yield from _run(replace(scan, columns=tuple(filtered.needed)), shards, load_page, begin)


def _run(
    scan: Scan,
    shards: ShardOpener,
    load_page: LoadPage,
    begin: Callable[[Unit, ThreadPoolExecutor, ThreadPoolExecutor], Future[_T]],
) -> Iterator[_T]:
    """The result of each unit, in table order; how far ahead work begins is bounded in bytes."""
    cores = usable_cores()
    io = ThreadPoolExecutor(_IO_THREADS, thread_name_prefix="warp-io")
    cpu = ThreadPoolExecutor(cores, thread_name_prefix="warp-decode")
    try:
        pending: deque[tuple[int, Future[_T]]] = deque()
        ahead_bytes = 0
        for unit in _spread(_units(scan, shards, load_page, io), cores):
            size = sum(span.size_bytes for span in unit.file.spans(unit.group, scan.columns))
            most = _UNITS_AHEAD_LOCAL if unit.file.is_local else _UNITS_AHEAD
            while pending and (len(pending) >= most or ahead_bytes + size > SCAN_AHEAD_BYTES):
                done_bytes, done = pending.popleft()
                ahead_bytes -= done_bytes
                yield done.result()
            ahead_bytes += size
            pending.append((size, begin(unit, io, cpu)))
        while pending:
            yield pending.popleft()[1].result()
    finally:
        io.shutdown(cancel_futures=True)
        cpu.shutdown(cancel_futures=True)


def _spread(units: Iterator[Unit], cores: int) -> Iterator[Unit]:
    """The same units; those of a local scan that has fewer of them than there are cores share the cores."""
    first = list(islice(units, 1))
    if first and first[0].file.is_local:
        first += islice(units, cores - 1)
        yield from (replace(unit, parallel_columns=len(first) < cores) for unit in first)
    else:
        yield from first
    yield from units


def _units(scan: Scan, shards: ShardOpener, load_page: LoadPage, io: ThreadPoolExecutor) -> Iterator[Unit]:
    """Row groups that hold wanted rows, with footers fetched ahead and hopeless groups left out."""
    opening: deque[tuple[int, Future[ShardFile]]] = deque()
    for first_row, shard in iter_rows(scan.shards, load_page, scan.rows.start, scan.rows.stop):
        if not opening and shards.is_local(shard):  # nobody has to wait for it, so no thread has to be woken
            yield from _shard_units(scan, shards.open(shard), first_row)
            continue
        opener = shards.peek if _wants_few(scan, first_row, shard) else shards.open
        opening.append((first_row, io.submit(opener, shard)))
        if len(opening) > _FOOTERS_AHEAD:
            row, file = opening.popleft()
            yield from _shard_units(scan, file.result(), row)
    for row, file in opening:
        yield from _shard_units(scan, file.result(), row)


def _wants_few(scan: Scan, first_row: int, shard: Shard) -> bool:
    """Whether the scan is about so few rows of this shard that fetching all of it would be a waste."""
    row_count = shard.row_count or 0
    wanted = min(scan.rows.stop - first_row, row_count) - max(scan.rows.start - first_row, 0)
    return is_short(wanted, row_count)


def _shard_units(scan: Scan, file: ShardFile, first_row: int) -> Iterator[Unit]:
    predicate = scan.row_filter.predicate if scan.row_filter else None
    reasoned = sorted(columns_of([predicate])) if predicate is not None else []
    for group in file.row_groups():
        start = max(scan.rows.start - first_row, group.first_row)
        stop = min(scan.rows.stop - first_row, group.first_row + group.row_count)
        if start >= stop:
            continue
        if predicate is not None and not can_match(predicate, file.bounds(group.index, reasoned)):
            continue
        yield Unit(file, group.index, start - group.first_row, stop - start, group.row_count, first_row + start)


def _fetch(unit: Unit, columns: Sequence[str], io: ThreadPoolExecutor) -> Future[Parts] | None:
    """Begin to fetch; None where there is nothing to fetch, and no reason to wake a thread."""
    return None if unit.file.is_local else io.submit(unit.file.fetch, unit.group, columns)


def _with_parts(read: Callable[[Unit, Parts], _T], unit: Unit, fetched: Future[Parts] | None) -> _T:
    return read(unit, [] if fetched is None else fetched.result())


def _is_short_prefix(scan: Scan, unit: Unit) -> bool:
    """Whether reading the first pages beats fetching the row group."""
    if unit.skip or not is_short(unit.take, unit.group_rows):
        return False
    return sum(span.size_bytes for span in unit.file.spans(unit.group, scan.columns)) > _PREFIX_WORTH_BYTES
