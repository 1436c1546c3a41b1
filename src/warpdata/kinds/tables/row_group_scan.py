"""Reading of one row group: all rows, the first rows, or the rows that a filter keeps.

With a filter, its columns are decoded first, and other columns only if the filter keeps a row. Work that is the same
for all row groups of a scan is done once, because a short scan has little other work.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from warpdata.formats.parquet import DecodeOptions, FetchedRanges, GroupRows, ShardFile
from warpdata.kinds.tables.columns import ColumnValues, conform, widen
from warpdata.kinds.tables.edited_shard import EditedShard, TableShard
from warpdata.limits import MIB
from warpdata.primitives.arrow_buffers import as_arrow, as_bits, filter_rows, take_unchecked
from warpdata.primitives.cached_property import cached_property
from warpdata.primitives.parallel import CPU_POOL
from warpdata.query import Evaluator, RowFilter

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray

__all__ = ["FilteredScan", "FullScan", "ScanTask", "is_short", "is_small", "is_sparse"]

_SHORT_FRACTION = 4
_TAKE_FRACTION = 2
_SPARSE_FRACTION = 64
_SMALL_ROWS = 8192
_PART_BYTES_PER_CORE = 2 * MIB
"""Decoded columns that the filter mostly discards stay in the processor's caches, without too many small steps."""


def is_short(row_count: int, of_rows: int) -> bool:
    """Return whether so few rows are wanted that reading all of them would be wasteful."""
    return row_count * _SHORT_FRACTION <= of_rows


def is_sparse(row_count: int, of_rows: int) -> bool:
    """Return whether so few rows are wanted that the pages with one of them may be a small part."""
    return row_count * _SPARSE_FRACTION <= of_rows


@dataclass(frozen=True, slots=True)
class ScanTask:
    """Rows [skip, skip + take) of one row group."""

    file: TableShard
    group: int
    skip: int
    take: int
    group_rows: int
    first_row: int
    """The first of the rows, counted over the table."""
    is_prefix: bool = False
    """Read only the first pages of the row group."""
    sparse: tuple[GroupRows, ...] = ()
    """The wanted rows, if their pages may be a small part of the row groups. They may be in later row groups, too."""
    kept: NDArray[np.int64] | None = None
    """The wanted ones among the rows, counted from the first of them; None for all."""
    parallel_columns: bool = False
    """Decode columns in parallel, because other cores would be idle."""
    widened: Mapping[str, pa.DataType] = field(default_factory=dict)
    """The columns with a narrower type in the shard, and the types that the table declares."""

    def decode(self, columns: Sequence[str], fetched: FetchedRanges, options: DecodeOptions) -> pa.Table:
        rows = self.slice(self.file.decode(self.group, columns, fetched, self.adapt(options)))
        return widen(rows, self.widened) if self.widened else rows

    def adapt(self, options: DecodeOptions) -> DecodeOptions:
        """Return the scan's options for this task."""
        return replace(options, parallel_columns=True) if self.parallel_columns else options

    def slice(self, rows: pa.Table) -> pa.Table:
        """Cut the task's rows out of the row group's."""
        return rows if self.take == self.group_rows else rows.slice(self.skip, self.take)


def is_small(task: ScanTask) -> bool:
    """Return whether a task of a local file has so few rows that evaluating a filter costs more than reading them."""
    return task.take <= _SMALL_ROWS and task.file.is_local and not task.is_prefix and not task.sparse


class FullScan:
    """Reads all rows of its tasks. Safe to share between threads."""

    fetches_again = False
    joins_small = False

    def __init__(self, schema: pa.Schema, keeps_dictionaries: bool = False) -> None:
        self.columns: Sequence[str] = schema.names
        self._schema = schema
        self._keeps_dictionaries = keeps_dictionaries
        self._options = DecodeOptions(dictionaries=tuple(schema.names))

    def fetch(self, task: ScanTask) -> FetchedRanges | None:
        """Fetch what `read` decodes."""
        return task.file.fetch(task.group, self.columns)

    def read(self, task: ScanTask, fetched: FetchedRanges | None) -> pa.Table:
        import pyarrow as pa

        if task.is_prefix:
            rows = task.file.decode_prefix(task.group, self.columns, task.take)
        elif task.sparse:
            rows = widen(task.file.take_rows(task.sparse, self.columns), task.widened)
            return conform(_by_name(rows), self._schema)
        else:
            rows = task.decode(self.columns, fetched or {}, self._options)
        kept = _by_name(rows) if task.kept is None else Selection.of(task.kept, task.take).apply(rows)
        if self._keeps_dictionaries:
            return pa.table({name: kept[name] for name in self.columns})
        return conform(kept, self._schema)


@dataclass(frozen=True, slots=True)
class _Evaluated:
    """The rows of a task, with True for those that match the filter."""

    task: ScanTask
    rows: pa.Table
    mask: NDArray[np.bool_]


class FilteredScan:
    """Reads the rows of its tasks that a filter keeps. Safe to share between threads."""

    def __init__(self, row_filter: RowFilter, schema: pa.Schema) -> None:
        self.columns: Sequence[str] = row_filter.columns
        """The columns of the filter, which are fetched first."""
        self._schema = schema
        self._output = [name for name in self.columns if name in schema.names]
        self._rest = [name for name in schema.names if name not in self.columns]
        self.fetches_again = bool(self._rest)
        """True if `read` fetches other columns for the rows that the filter keeps."""
        self._predicate = row_filter.predicate
        self._evaluator = Evaluator(row_filter)
        filterable = self.columns if self._evaluator.uses_kernels else ()
        self._options = DecodeOptions(dictionaries=(*filterable, *self._rest))
        self.joins_small = self._evaluator.needs_sql
        """True if `evaluate_together` saves work."""
        self._evaluated: dict[int, _Evaluated] = {}
        """Small tasks with the values of the filter, by the identity of the task, until it is read."""

    def fetch(self, task: ScanTask) -> FetchedRanges | None:
        """Fetch what `read` and `match` decode; None if they will decode less, or nothing."""
        return None if self._candidates(task) is not None else task.file.fetch(task.group, self.columns)

    def read(self, task: ScanTask, fetched: FetchedRanges | None) -> pa.Table | None:
        """Return the rows that the filter keeps; None if there are none."""
        found = self.read_numbered(task, fetched)
        return None if found is None else found[1]

    def read_numbered(self, task: ScanTask, fetched: FetchedRanges | None) -> tuple[NDArray[np.int64], pa.Table] | None:
        """Return the rows that the filter keeps with their numbers, counted over the table; None if there are none."""
        rows, selection, chosen = self._select(task, fetched)
        if not len(selection.positions):
            return None
        kept = chosen.apply(rows.select(self._output)) if self._output else {}
        for columns in self._read_rest(task, selection):
            kept.update(columns)
        return selection.positions + task.first_row, conform(kept, self._schema)

    def match(self, task: ScanTask, fetched: FetchedRanges | None) -> NDArray[np.int64]:
        """Return the numbers of the rows that the filter keeps, counted over the table."""
        return self._select(task, fetched)[1].positions + task.first_row

    def evaluate_together(self, tasks: Sequence[ScanTask]) -> None:
        """Evaluate the filter for small tasks of local files at once. Reading each of them uses the result."""
        import pyarrow as pa

        small = [task for task in tasks if is_small(task) and self._candidates(task) is None]
        decoded = [task.decode(self.columns, {}, self._options) for task in small]
        if len(decoded) < 2 or any(rows.schema != decoded[0].schema for rows in decoded):
            return
        mask, start = self._evaluator.mask(pa.concat_tables(decoded)), 0
        for task, rows in zip(small, decoded, strict=True):
            self._evaluated[id(task)] = _Evaluated(task, rows, mask[start : start + rows.num_rows])
            start += rows.num_rows

    def _select(self, task: ScanTask, fetched: FetchedRanges | None) -> tuple[pa.Table, Selection, Selection]:
        """Return rows of the columns of the filter, the rows of the task that it keeps, and these among the former."""
        evaluated = self._evaluated.pop(id(task), None)
        candidates = None if fetched or evaluated else self._candidates(task)
        if candidates is None:
            found = evaluated or self._evaluate(task, fetched)
            rows, mask = found.rows, found.mask
            selection = Selection(mask if task.kept is None else mask & Selection.of(task.kept, task.take).mask)
            return rows, selection, selection
        if not len(candidates):
            return _no_rows(), Selection.of(candidates, task.take), Selection.of(candidates, 0)
        rows = widen(task.file.take_rows([GroupRows(task.group, candidates + task.skip)], self.columns), task.widened)
        chosen = Selection(self._evaluator.mask(rows))
        return rows, Selection.of(candidates[chosen.positions], task.take), chosen

    def _evaluate(self, task: ScanTask, fetched: FetchedRanges | None) -> _Evaluated:
        rows = task.decode(self.columns, fetched or {}, self._options)
        return _Evaluated(task, rows, self._evaluator.mask(rows, is_alone=task.parallel_columns))

    def _candidates(self, task: ScanTask) -> NDArray[np.int64] | None:
        """Return the rows of a task that may match, by what the file says beside its footer; None if that may be any.

        Rows of an edited shard are numbered in another way than those of its files.
        """
        import numpy as np

        if not isinstance(task.file, ShardFile):
            return None
        if task.file.rules_out(task.group, self._predicate):
            return np.empty(0, np.int64)
        rows = task.file.candidates(task.group, self._predicate)
        if rows is None:
            return None
        rows = rows[slice(*np.searchsorted(rows, (task.skip, task.skip + task.take)))] - task.skip
        return rows if task.kept is None else np.intersect1d(rows, task.kept, assume_unique=True)

    def _read_rest(self, task: ScanTask, selection: Selection) -> Iterator[dict[str, ColumnValues]]:
        """Read the kept rows of the other columns, a few columns at a time, up to the last kept row."""
        if not self._rest:
            return
        file, selection = _stored(task, selection)
        end = int(selection.positions[-1]) + 1
        if task.skip == 0 and is_short(end, task.group_rows):
            yield selection.head(end).apply(file.decode_prefix(task.group, self._rest, end))
            return
        if is_sparse(len(selection.positions), task.group_rows):
            wanted = GroupRows(task.group, selection.positions + task.skip)
            yield _by_name(file.take_rows([wanted], self._rest))
            return
        part_bytes = _PART_BYTES_PER_CORE * CPU_POOL.size
        for rows in file.decode_in_parts(task.group, self._rest, task.adapt(self._options), part_bytes):
            yield selection.apply(task.slice(rows))


def _stored(task: ScanTask, selection: Selection) -> tuple[TableShard, Selection]:
    """Return the selection among stored rows and the shard that has them, so that rows are copied once."""
    is_whole = task.take == task.group_rows
    live = task.file.live_mask(task.group) if is_whole and isinstance(task.file, EditedShard) else None
    if live is None or not isinstance(task.file, EditedShard):
        return task.file, selection
    return task.file.stored, selection.among(live)


class Selection:
    """The rows that a filter keeps."""

    def __init__(self, mask: NDArray[np.bool_]) -> None:
        import numpy as np

        self.mask = mask
        self.positions: NDArray[np.int64] = np.flatnonzero(mask)  # three times as fast as Arrow

    @staticmethod
    def of(positions: NDArray[np.int64], row_count: int) -> Selection:
        """Return the selection of these of `row_count` rows."""
        import numpy as np

        mask = np.zeros(row_count, bool)
        mask[positions] = True
        return Selection(mask)

    def head(self, row_count: int) -> Selection:
        """Return the selection among the first rows."""
        return Selection(self.mask[:row_count])

    def among(self, live: NDArray[np.bool_]) -> Selection:
        """Return the selection among rows of which these are live, the ones that this selection counts."""
        mask = live.copy()
        mask[live] = self.mask
        return Selection(mask)

    def apply(self, rows: pa.Table) -> dict[str, ColumnValues]:
        """Return the selected rows, by column. A few rows are taken by position, which is faster than by mask."""
        if len(self.positions) == len(self.mask):
            return _by_name(rows)
        has_one_chunk = all(column.num_chunks == 1 for column in rows.columns)  # else taking copies the column
        if has_one_chunk and len(self.positions) * _TAKE_FRACTION < len(self.mask):
            return _by_name(take_unchecked(rows, self._arrow_positions))
        return _by_name(filter_rows(rows, self._arrow_mask))

    @cached_property
    def _arrow_positions(self) -> pa.Array:
        return as_arrow(self.positions)

    @cached_property
    def _arrow_mask(self) -> pa.BooleanArray:
        return as_bits(self.mask)


def _no_rows() -> pa.Table:
    import pyarrow as pa

    return pa.table({})


def _by_name(rows: pa.Table) -> dict[str, ColumnValues]:
    return dict(zip(rows.column_names, rows.columns, strict=True))
