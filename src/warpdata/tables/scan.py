"""Rows in order, fetched ahead and decoded in parallel.

The unit of work is a row group. Bytes are fetched by I/O threads while earlier row groups are
decoded; results come out in the order of the table. How far ahead is bounded in bytes. With a
filter, its columns are read first, and the rest only where a row is kept. Threads end with the
iteration, however it ends.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

from warpdata.limits import MIB, SCAN_AHEAD_BYTES
from warpdata.manifest import LoadPage, ShardList, iter_rows
from warpdata.tables.assign import RowRange
from warpdata.tables.evaluate import Evaluator
from warpdata.tables.filters import RowFilter
from warpdata.tables.parquet import Parts, ShardFile, ShardOpener
from warpdata.tables.predicate import can_match, columns_of

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Scan", "scan_tables"]

_FOOTERS_AHEAD = 8
_UNITS_AHEAD = 8
_UNITS_AHEAD_LOCAL = 4  # nothing is fetched, so more would only push decoded rows out of the processor's caches
_IO_THREADS = 8
_PREFIX_FRACTION = 4
_PREFIX_WORTH_BYTES = MIB // 2


@dataclass(frozen=True, slots=True)
class Scan:
    """What to read. `schema` is the table's; `rows` counts over the whole table."""

    shards: ShardList
    schema: pa.Schema
    columns: tuple[str, ...]
    rows: RowRange
    row_filter: RowFilter | None = None


@dataclass(frozen=True, slots=True)
class _Unit:
    """Rows [skip, skip + take) of one row group."""

    file: ShardFile
    group: int
    skip: int
    take: int
    group_rows: int


def scan_tables(scan: Scan, shards: ShardOpener, load_page: LoadPage) -> Iterator[pa.Table]:
    """One Arrow table per row group that has rows to give, in table order."""
    evaluator = Evaluator(scan.row_filter) if scan.row_filter else None
    io = ThreadPoolExecutor(_IO_THREADS, thread_name_prefix="warp-io")
    cpu = ThreadPoolExecutor(_cpu_count(), thread_name_prefix="warp-decode")
    try:
        pending: deque[tuple[int, Future[pa.Table | None]]] = deque()
        ahead_bytes = 0
        for unit in _units(scan, shards, load_page, io):
            size = sum(span.size_bytes for span in unit.file.spans(unit.group, scan.columns))
            most = _UNITS_AHEAD_LOCAL if unit.file.is_local else _UNITS_AHEAD
            while pending and (len(pending) >= most or ahead_bytes + size > SCAN_AHEAD_BYTES):
                done_bytes, done = pending.popleft()
                ahead_bytes -= done_bytes
                yield from _present(done.result())
            ahead_bytes += size
            pending.append((size, _submit(scan, unit, evaluator, io, cpu)))
        while pending:
            yield from _present(pending.popleft()[1].result())
    finally:
        io.shutdown(cancel_futures=True)
        cpu.shutdown(cancel_futures=True)


def _cpu_count() -> int:
    """The cores this process may use, where the system tells."""
    allowed = getattr(os, "sched_getaffinity", None)
    return len(allowed(0)) if allowed else os.cpu_count() or 1


def _present(table: pa.Table | None) -> Iterator[pa.Table]:
    if table is not None and table.num_rows:
        yield table


def _units(scan: Scan, shards: ShardOpener, load_page: LoadPage, io: ThreadPoolExecutor) -> Iterator[_Unit]:
    """Row groups that hold wanted rows, with footers fetched ahead and hopeless groups left out."""
    opening: deque[tuple[int, Future[ShardFile]]] = deque()
    for first_row, shard in iter_rows(scan.shards, load_page, scan.rows.start, scan.rows.stop):
        opening.append((first_row, io.submit(shards.open, shard)))
        if len(opening) > _FOOTERS_AHEAD:
            row, file = opening.popleft()
            yield from _shard_units(scan, file.result(), row)
    for row, file in opening:
        yield from _shard_units(scan, file.result(), row)


def _shard_units(scan: Scan, file: ShardFile, first_row: int) -> Iterator[_Unit]:
    predicate = scan.row_filter.predicate if scan.row_filter else None
    reasoned = sorted(columns_of([predicate])) if predicate is not None else []
    for group in file.row_groups():
        start = max(scan.rows.start - first_row, group.first_row)
        stop = min(scan.rows.stop - first_row, group.first_row + group.row_count)
        if start >= stop:
            continue
        if predicate is not None and not can_match(predicate, file.bounds(group.index, reasoned)):
            continue
        yield _Unit(file, group.index, start - group.first_row, stop - start, group.row_count)


def _submit(
    scan: Scan, unit: _Unit, evaluator: Evaluator | None, io: ThreadPoolExecutor, cpu: ThreadPoolExecutor
) -> Future[pa.Table | None]:
    if evaluator is not None and scan.row_filter is not None:
        first = io.submit(unit.file.fetch, unit.group, scan.row_filter.columns)
        return cpu.submit(_filtered, scan, scan.row_filter, unit, evaluator, first)
    if _is_short_prefix(scan, unit):
        return io.submit(_prefix, scan, unit)
    fetched = io.submit(unit.file.fetch, unit.group, scan.columns)
    return cpu.submit(_whole, scan, unit, fetched)


def _is_short_prefix(scan: Scan, unit: _Unit) -> bool:
    """Whether reading the first pages beats fetching the row group."""
    if unit.skip or unit.take * _PREFIX_FRACTION > unit.group_rows:
        return False
    return sum(span.size_bytes for span in unit.file.spans(unit.group, scan.columns)) > _PREFIX_WORTH_BYTES


def _prefix(scan: Scan, unit: _Unit) -> pa.Table:
    return _conformed(unit.file.decode_prefix(unit.group, scan.columns, unit.take), scan)


def _whole(scan: Scan, unit: _Unit, fetched: Future[Parts]) -> pa.Table:
    return _conformed(_cut(unit.file.decode(unit.group, scan.columns, fetched.result()), unit), scan)


def _filtered(
    scan: Scan, row_filter: RowFilter, unit: _Unit, evaluator: Evaluator, fetched: Future[Parts]
) -> pa.Table | None:
    """Decode the filter's columns, then the others only if a row is kept."""
    needed = row_filter.columns
    encoded = unit.file.small_dictionaries(unit.group, needed) if evaluator.uses_kernels else []
    known = _cut(unit.file.decode(unit.group, needed, fetched.result(), encoded), unit)
    mask = evaluator.mask(known)
    kept = mask.true_count
    if not kept:
        return None
    rows = known
    rest = [name for name in scan.columns if name not in needed]
    if rest:
        more, read = _rest(unit, rest, mask)
        rows, mask = rows.slice(0, read), mask.slice(0, read)
        for name in rest:
            rows = rows.append_column(name, more[name])
    rows = rows.select(list(scan.columns))
    return _conformed(rows if kept == rows.num_rows else rows.filter(mask), scan)


def _rest(unit: _Unit, columns: Sequence[str], mask: pa.Array) -> tuple[pa.Table, int]:
    """The other columns of a row group, and how many rows of them: none after the last that is kept."""
    import pyarrow.compute as pc

    short = unit.group_rows // _PREFIX_FRACTION
    if unit.skip == 0 and not mask.slice(short).true_count:
        wanted = pc.indices_nonzero(mask.slice(0, short))[-1].as_py() + 1
        return unit.file.decode_prefix(unit.group, columns, wanted), wanted
    encoded = unit.file.small_dictionaries(unit.group, columns)
    parts = unit.file.fetch(unit.group, columns)
    return _cut(unit.file.decode(unit.group, columns, parts, encoded), unit), unit.take


def _cut(rows: pa.Table, unit: _Unit) -> pa.Table:
    return rows if unit.take == unit.group_rows else rows.slice(unit.skip, unit.take)


def _conformed(rows: pa.Table, scan: Scan) -> pa.Table:
    """Columns in the order asked for, with the table's own types.

    A shard may order its columns differently, and columns read as dictionaries for speed get their
    declared type back.
    """
    import pyarrow as pa

    columns = []
    for name in scan.columns:
        column, declared = rows[name], scan.schema.field(name).type
        columns.append(column if column.type == declared else column.cast(declared))
    fields = [scan.schema.field(name) for name in scan.columns]
    return pa.table(columns, schema=pa.schema(fields, metadata=scan.schema.metadata))
