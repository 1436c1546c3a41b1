"""Evaluation of a filter over an Arrow table.

The SQL engine defines the result. Arrow kernels evaluate the part of a filter that is certain to have the same
meaning, several times as fast. A property test compares both.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from warpdata.errors import BadInputError, ErrorKind, LimitExceededError
from warpdata.limits import MAX_FILTER_MEMORY_BYTES
from warpdata.primitives.arrow_buffers import as_bits, as_bools, filter_rows
from warpdata.primitives.parallel import CPU_POOL
from warpdata.query.arrow_eval import evaluate_mask
from warpdata.query.duckdb import first_line, run_sealed
from warpdata.query.expr import And, Not, Or, Predicate, Unknown
from warpdata.query.parse import RowFilter

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from duckdb import DuckDBPyConnection
    from numpy.typing import NDArray

__all__ = ["Evaluator"]

_VECTOR_ROWS = 2048
_MIN_PARALLEL_ROWS = 128 * 1024
"""Fewer rows take less time in SQL than several queries in several threads."""
_CELL_BYTES = 32


class Evaluator:
    """Evaluates one filter, from any thread.

    Kernels come first; the SQL engine evaluates only the rows that they leave undecided.
    """

    def __init__(self, row_filter: RowFilter, *, use_kernels: bool = True) -> None:
        self._filter = row_filter
        self._known, self._is_complete = _known_part(row_filter.predicate) if use_kernels else (None, False)

    @property
    def uses_kernels(self) -> bool:
        """True if text columns may be dictionary arrays, which kernels compare much faster."""
        return self._known is not None

    @property
    def needs_sql(self) -> bool:
        """True if rows are evaluated in SQL, where each query costs as much as thousands of rows."""
        return not self._is_complete

    def mask(self, rows: pa.Table, *, is_alone: bool = False) -> NDArray[np.bool_]:
        """Return True for the rows to keep. With `is_alone`, SQL evaluates many rows on several cores."""
        import numpy as np
        import pyarrow as pa

        if self._known is None:
            return self._evaluate_sql(rows, is_alone=is_alone)
        try:
            mask = evaluate_mask(self._known, rows)
        except pa.ArrowInvalid:  # an integer overflows; SQL may evaluate in an order that avoids the overflow
            return self._evaluate_sql(_decode_dictionaries(rows), is_alone=is_alone)
        if not self._is_complete:
            undecided = np.flatnonzero(mask)
            if len(undecided):
                left = _decode_dictionaries(filter_rows(rows, as_bits(mask)))
                mask[undecided] = self._evaluate_sql(left, is_alone=is_alone)
        return mask

    def _evaluate_sql(self, rows: pa.Table, *, is_alone: bool) -> NDArray[np.bool_]:
        """Evaluate in SQL, in several queries if one could need too much memory, or would leave cores idle."""
        import numpy as np

        shares = list(_even_parts(rows, CPU_POOL.size if is_alone else 1))
        parts = CPU_POOL.map_all(self._query_bounded, shares)
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def _query_bounded(self, rows: pa.Table) -> NDArray[np.bool_]:
        import numpy as np

        parts = [self._query(part) for part in _bounded_parts(rows, self._filter)]
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def _query(self, rows: pa.Table) -> NDArray[np.bool_]:
        import duckdb

        for each in self._filter.value_sets:
            rows = rows.append_column(each.name, each.evaluate(rows[each.column]))

        def evaluate(cursor: DuckDBPyConnection) -> NDArray[np.bool_]:
            stream = rows.__arrow_c_stream__()  # registering a table takes twice as long as a bare stream
            result = cursor.from_arrow(stream).project(f"({self._filter.sql}\n) IS TRUE AS keep")
            return as_bools(result.to_arrow_table()["keep"].combine_chunks())

        try:
            mask = run_sealed(evaluate)
        except duckdb.Error as error:
            raise BadInputError(
                f"the filter {self._filter.sql!r} fails on a row: {first_line(error)}", kind=ErrorKind.INVALID_FILTER
            ) from error
        if len(mask) != rows.num_rows:
            raise BadInputError(
                f"the filter {self._filter.sql!r} does not evaluate one row at a time: "
                f"{rows.num_rows} rows give {len(mask)} results",
                kind=ErrorKind.INVALID_FILTER,
            )
        return mask


def _even_parts(rows: pa.Table, count: int) -> Iterator[pa.Table]:
    """Yield the rows in up to `count` parts of about the same size, none of which has few rows."""
    count = max(1, min(count, rows.num_rows // _MIN_PARALLEL_ROWS))
    size = -(-rows.num_rows // count)
    yield from (rows.slice(number * size, size) for number in range(count))


def _bounded_parts(rows: pa.Table, row_filter: RowFilter) -> Iterator[pa.Table]:
    """Yield the rows in parts. DuckDB evaluates a vector at a time, so only the size of vectors matters."""
    if rows.num_rows == 0 or _memory_bytes(rows, row_filter) <= MAX_FILTER_MEMORY_BYTES:
        yield rows
        return
    start = 0
    for position in range(0, rows.num_rows, _VECTOR_ROWS):
        vector = rows.slice(position, _VECTOR_ROWS)
        if _memory_bytes(vector, row_filter) > MAX_FILTER_MEMORY_BYTES:
            if start < position:
                yield rows.slice(start, position - start)
            yield from _halves(vector, row_filter)
            start = position + vector.num_rows
    if start < rows.num_rows:
        yield rows.slice(start)


def _halves(rows: pa.Table, row_filter: RowFilter) -> Iterator[pa.Table]:
    """Yield parts of a vector that fit."""
    needed_bytes = _memory_bytes(rows, row_filter)
    if needed_bytes <= MAX_FILTER_MEMORY_BYTES:
        yield rows
    elif rows.num_rows == 1:
        raise LimitExceededError(
            f"the filter {row_filter.sql!r} may need {needed_bytes:,} bytes for one row; "
            f"the limit is {MAX_FILTER_MEMORY_BYTES:,}"
        )
    else:
        middle = rows.num_rows // 2
        yield from _halves(rows.slice(0, middle), row_filter)
        yield from _halves(rows.slice(middle), row_filter)


def _memory_bytes(rows: pa.Table, row_filter: RowFilter) -> int:
    """Return a bound for the vector of these rows that needs the most memory: the longest values may be in one."""
    import pyarrow as pa

    vector_rows = min(rows.num_rows, _VECTOR_ROWS)
    size_bytes: int = vector_rows * _CELL_BYTES
    for column in rows.columns:
        is_even = pa.types.is_primitive(column.type)
        size_bytes += column.nbytes * vector_rows // max(rows.num_rows, 1) if is_even else column.nbytes
    return size_bytes * row_filter.expansion


def _known_part(predicate: Predicate) -> tuple[Predicate | None, bool]:
    """Return the necessary condition that kernels can evaluate, and whether it is the whole predicate."""
    if _is_known(predicate):
        return predicate, True
    if isinstance(predicate, And):
        parts = [_known_part(part)[0] for part in predicate.parts]
        known = tuple(part for part in parts if part is not None)
        return (And(known) if known else None), False
    return None, False


def _is_known(predicate: Predicate) -> bool:
    if isinstance(predicate, And | Or):
        return all(_is_known(part) for part in predicate.parts)
    if isinstance(predicate, Not):
        return _is_known(predicate.part)
    return not isinstance(predicate, Unknown)


def _decode_dictionaries(rows: pa.Table) -> pa.Table:
    """Return the rows with plain values in place of dictionaries, which DuckDB would read as another type."""
    import pyarrow as pa

    for position, field in enumerate(rows.schema):
        if pa.types.is_dictionary(field.type):
            rows = rows.set_column(position, field.name, rows.column(position).cast(field.type.value_type))
    return rows
