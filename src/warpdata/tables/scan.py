"""Rows in order, fetched ahead and decoded in parallel.

The unit of work is a row group. Bytes are fetched by I/O threads while earlier row groups are
decoded; results come out in the order of the table. How far ahead is bounded in bytes. With a
filter, its columns are read first, and the rest only where a row is kept. Threads end with the
iteration, however it ends.
"""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING, TypeVar

from warpdata.limits import MIB, SCAN_AHEAD_BYTES
from warpdata.machine import usable_cores
from warpdata.manifest import LoadPage, Shard, ShardList, iter_rows
from warpdata.tables.arrays import as_arrow, as_bools, take_known
from warpdata.tables.assign import RowRange
from warpdata.tables.evaluate import Evaluator
from warpdata.tables.filters import RowFilter
from warpdata.tables.parquet import ShardFile, ShardOpener
from warpdata.tables.parts import Parts
from warpdata.tables.predicate import can_match, columns_of

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
_PREFIX_FRACTION = 4
_PREFIX_WORTH_BYTES = MIB // 2
_MAX_CHUNK_BYTES = 2**31 - 1
_FEW = 2
_RUN_BYTES = 4 * MIB  # so little that what a filter throws away never leaves the processor's caches


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
    first_row: int
    """The number of its first row, counted over the table."""
    side_by_side: bool = False
    """Whether its columns may be decoded at once, because cores would be idle otherwise."""


def scan_tables(scan: Scan, shards: ShardOpener, load_page: LoadPage) -> Iterator[pa.Table]:
    """One Arrow table per row group that has rows to give, in table order."""
    evaluator = Evaluator(scan.row_filter) if scan.row_filter else None

    def begin(unit: _Unit, io: ThreadPoolExecutor, cpu: ThreadPoolExecutor) -> Future[pa.Table | None]:
        return _submit(scan, unit, evaluator, io, cpu)

    for table in _run(scan, shards, load_page, begin):
        if table is not None and table.num_rows:
            yield table


def match_rows(scan: Scan, shards: ShardOpener, load_page: LoadPage) -> Iterator[NDArray[np.int64]]:
    """The numbers of the rows that the filter keeps, counted over the table, row group by row group.

    Only the columns of the filter are read, and only where statistics do not rule a row group out.
    """
    assert scan.row_filter is not None, "without a filter all rows are kept"
    evaluator, needed = Evaluator(scan.row_filter), scan.row_filter.columns

    def begin(unit: _Unit, io: ThreadPoolExecutor, cpu: ThreadPoolExecutor) -> Future[NDArray[np.int64]]:
        return cpu.submit(_matches, unit, needed, evaluator, _fetch(unit, needed, io))

    yield from _run(replace(scan, columns=tuple(needed)), shards, load_page, begin)


def _run(
    scan: Scan,
    shards: ShardOpener,
    load_page: LoadPage,
    begin: Callable[[_Unit, ThreadPoolExecutor, ThreadPoolExecutor], Future[_T]],
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


def _spread(units: Iterator[_Unit], cores: int) -> Iterator[_Unit]:
    """The same units; those of a local scan that has fewer of them than there are cores share the cores."""
    first = list(islice(units, 1))
    if first and first[0].file.is_local:
        first += islice(units, cores - 1)
        yield from (replace(unit, side_by_side=len(first) < cores) for unit in first)
    else:
        yield from first
    yield from units


def _units(scan: Scan, shards: ShardOpener, load_page: LoadPage, io: ThreadPoolExecutor) -> Iterator[_Unit]:
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
    return wanted * _PREFIX_FRACTION <= row_count


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
        yield _Unit(file, group.index, start - group.first_row, stop - start, group.row_count, first_row + start)


def _submit(
    scan: Scan, unit: _Unit, evaluator: Evaluator | None, io: ThreadPoolExecutor, cpu: ThreadPoolExecutor
) -> Future[pa.Table | None]:
    if evaluator is not None and scan.row_filter is not None:
        first = _fetch(unit, scan.row_filter.columns, io)
        return cpu.submit(_filtered, scan, scan.row_filter, unit, evaluator, first)
    if _is_short_prefix(scan, unit):
        return io.submit(_prefix, scan, unit)
    return cpu.submit(_whole, scan, unit, _fetch(unit, scan.columns, io))


def _fetch(unit: _Unit, columns: Sequence[str], io: ThreadPoolExecutor) -> Future[Parts] | None:
    """Begin to fetch; None where there is nothing to fetch, and no reason to wake a thread."""
    return None if unit.file.is_local else io.submit(unit.file.fetch, unit.group, columns)


def _is_short_prefix(scan: Scan, unit: _Unit) -> bool:
    """Whether reading the first pages beats fetching the row group."""
    if unit.skip or unit.take * _PREFIX_FRACTION > unit.group_rows:
        return False
    return sum(span.size_bytes for span in unit.file.spans(unit.group, scan.columns)) > _PREFIX_WORTH_BYTES


def _prefix(scan: Scan, unit: _Unit) -> pa.Table:
    return _conformed(_by_name(unit.file.decode_prefix(unit.group, scan.columns, unit.take)), scan)


def _whole(scan: Scan, unit: _Unit, fetched: Future[Parts] | None) -> pa.Table:
    encoded = unit.file.small_dictionaries(unit.group, scan.columns)
    return _conformed(_by_name(_decode(unit, scan.columns, _parts(fetched), encoded)), scan)


def _filtered(
    scan: Scan, row_filter: RowFilter, unit: _Unit, evaluator: Evaluator, fetched: Future[Parts] | None
) -> pa.Table | None:
    """Decode the filter's columns, then the others only if a row is kept."""
    needed = row_filter.columns
    rest = [name for name in scan.columns if name not in needed]
    encoded = unit.file.small_dictionaries(unit.group, [*needed, *rest] if evaluator.uses_kernels else rest)
    known = _decode(unit, needed, _parts(fetched), encoded, scratch=True)
    chosen = _Chosen(evaluator.mask(known))
    if not chosen.count:
        return None
    kept = _by_name(chosen.of(known.select([name for name in needed if name in scan.columns])))
    for more in _rest(unit, rest, chosen, encoded):
        kept.update(_by_name(more))
    return _conformed(kept, scan)


def _matches(
    unit: _Unit, needed: Sequence[str], evaluator: Evaluator, fetched: Future[Parts] | None
) -> NDArray[np.int64]:
    encoded = unit.file.small_dictionaries(unit.group, needed) if evaluator.uses_kernels else []
    chosen = _Chosen(evaluator.mask(_decode(unit, needed, _parts(fetched), encoded, scratch=True)))
    return chosen.numbers + unit.first_row


def _parts(fetched: Future[Parts] | None) -> Parts:
    return [] if fetched is None else fetched.result()


def _rest(unit: _Unit, columns: Sequence[str], chosen: _Chosen, encoded: Sequence[str]) -> Iterator[pa.Table]:
    """The kept rows of the other columns, a few columns at a time; nothing after the last row that is kept."""
    short = unit.group_rows // _PREFIX_FRACTION
    if columns and unit.skip == 0 and not chosen.mask.slice(short).true_count:
        wanted = int(chosen.numbers[-1]) + 1
        yield _Chosen(chosen.mask.slice(0, wanted)).of(unit.file.decode_prefix(unit.group, columns, wanted))
        return
    parts = unit.file.fetch(unit.group, columns)
    for some in [columns] if unit.side_by_side else unit.file.runs(unit.group, columns, _RUN_BYTES):
        yield chosen.of(_decode(unit, some, parts, encoded, scratch=True))


class _Chosen:
    """The rows that a filter keeps. Where they are few, taking them by number beats filtering by mask."""

    def __init__(self, mask: pa.Array) -> None:
        self.mask = mask

    @functools.cached_property
    def numbers(self) -> NDArray[np.int64]:
        """Arrow's own way to these takes three times as long."""
        import numpy as np

        return np.flatnonzero(as_bools(self.mask))

    @functools.cached_property
    def count(self) -> int:
        return int(self.mask.true_count)

    @functools.cached_property
    def _taken(self) -> pa.Array:
        return as_arrow(self.numbers)

    def of(self, rows: pa.Table) -> pa.Table:
        if self.count == len(self.mask) or not rows.num_columns:
            return rows
        in_one_piece = all(column.num_chunks == 1 for column in rows.columns)  # else all of it would be copied first
        if in_one_piece and self.count * _FEW < len(self.mask):
            return take_known(rows, self._taken)
        return rows.filter(self.mask)


def _by_name(rows: pa.Table) -> dict[str, pa.ChunkedArray]:
    return dict(zip(rows.column_names, rows.columns, strict=True))


def _decode(
    unit: _Unit, columns: Sequence[str], parts: Parts, encoded: Sequence[str], *, scratch: bool = False
) -> pa.Table:
    """The wanted rows of these columns, the encoded ones as dictionaries."""
    rows = unit.file.decode(unit.group, columns, parts, encoded, side_by_side=unit.side_by_side, scratch=scratch)
    return rows if unit.take == unit.group_rows else rows.slice(unit.skip, unit.take)


def _conformed(rows: Mapping[str, pa.ChunkedArray], scan: Scan) -> pa.Table:
    """Columns in the order asked for, with the table's own types.

    A shard may order its columns differently, and columns read as dictionaries for speed get their
    declared type back.
    """
    import pyarrow as pa

    fields = [scan.schema.field(name) for name in scan.columns]
    columns = [_as_declared(rows[field.name], field.type) for field in fields]
    return pa.table(columns, schema=pa.schema(fields, metadata=scan.schema.metadata))


def _as_declared(column: pa.ChunkedArray, declared: pa.DataType) -> pa.ChunkedArray:
    """In its declared type. Texts are spelled out in pieces that 32-bit offsets can address."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if column.type == declared:
        return column
    if not pa.types.is_dictionary(column.type) or pa.types.is_dictionary(declared):
        return column.cast(declared)
    pieces = []
    for chunk in column.chunks:
        longest = pc.max(pc.binary_length(chunk.dictionary)).as_py()
        rows = _MAX_CHUNK_BYTES // max(longest or 0, 1)
        pieces += [chunk.slice(start, rows).cast(declared) for start in range(0, len(chunk), rows)]
    return pa.chunked_array(pieces, declared)
