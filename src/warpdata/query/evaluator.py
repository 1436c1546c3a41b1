"""Evaluation of a filter over an Arrow table.

The SQL engine defines the result. Arrow kernels evaluate the part of a filter that is certain to have the same
meaning, several times as fast. A property test compares both.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from warpdata.errors import BadInputError, ErrorKind
from warpdata.primitives.arrow_buffers import as_bits, as_bools
from warpdata.query.arrow_eval import evaluate_mask
from warpdata.query.duckdb import sealed_cursor
from warpdata.query.expr import And, Not, Or, Predicate, Unknown
from warpdata.query.parse import RowFilter

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from duckdb import DuckDBPyConnection
    from numpy.typing import NDArray

__all__ = ["Evaluator"]


class Evaluator:
    """Evaluates one filter, from any thread.

    Kernels come first; the SQL engine evaluates only the rows that they leave undecided.
    """

    def __init__(self, row_filter: RowFilter, *, use_kernels: bool = True) -> None:
        self._filter = row_filter
        self._known, self._is_complete = _known_part(row_filter.predicate) if use_kernels else (None, False)
        self._local = threading.local()

    @property
    def uses_kernels(self) -> bool:
        """True if text columns may be dictionary arrays, which kernels compare much faster."""
        return self._known is not None

    def mask(self, rows: pa.Table) -> NDArray[np.bool_]:
        """Return True for the rows to keep."""
        import numpy as np
        import pyarrow as pa

        if self._known is None:
            return self._evaluate_sql(rows)
        try:
            mask = evaluate_mask(self._known, rows)
        except pa.ArrowInvalid:  # an integer overflows; SQL may evaluate in an order that avoids the overflow
            return self._evaluate_sql(_decode_dictionaries(rows))
        if not self._is_complete:
            undecided = np.flatnonzero(mask)
            if len(undecided):
                mask[undecided] = self._evaluate_sql(_decode_dictionaries(rows.filter(as_bits(mask))))
        return mask

    def _evaluate_sql(self, rows: pa.Table) -> NDArray[np.bool_]:
        import duckdb

        stream = rows.__arrow_c_stream__()  # registering a table takes twice as long as a bare stream
        try:
            result = self._cursor().from_arrow(stream).project(f"({self._filter.sql}\n) IS TRUE AS keep")
            mask = as_bools(result.to_arrow_table()["keep"].combine_chunks())
        except duckdb.Error as error:
            raise BadInputError(
                f"the filter {self._filter.sql!r} fails on a row: {error}", kind=ErrorKind.INVALID_FILTER
            ) from error
        if len(mask) != rows.num_rows:
            raise BadInputError(
                f"the filter {self._filter.sql!r} does not evaluate one row at a time: "
                f"{rows.num_rows} rows give {len(mask)} results",
                kind=ErrorKind.INVALID_FILTER,
            )
        return mask

    def _cursor(self) -> DuckDBPyConnection:
        """Return the thread's cursor: a cursor runs one query at a time."""
        cursor: DuckDBPyConnection | None = getattr(self._local, "cursor", None)
        if cursor is None:
            cursor = self._local.cursor = sealed_cursor()
        return cursor


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
