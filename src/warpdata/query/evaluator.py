"""Which rows of an Arrow table a filter keeps.

The SQL engine decides. Where a filter is made of comparisons whose meaning is certain to be the
same, Arrow's kernels do it several times faster; a property test holds the two together.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from warpdata.errors import InvalidFilterError
from warpdata.primitives.arrow_buffers import as_bits, as_bools
from warpdata.query.arrow_eval import keep
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

    What the kernels can tell comes first; the SQL engine sees only the rows that are left.
    """

    def __init__(self, row_filter: RowFilter, *, use_kernels: bool = True) -> None:
        self._filter = row_filter
        self._known, self._is_complete = _known_part(row_filter.predicate) if use_kernels else (None, False)
        self._local = threading.local()

    @property
    def uses_kernels(self) -> bool:
        """Whether text columns may come as dictionaries, which kernels compare much faster."""
        return self._known is not None

    def mask(self, rows: pa.Table) -> NDArray[np.bool_]:
        """True for the rows to keep."""
        import numpy as np
        import pyarrow as pa

        if self._known is None:
            return self._ask_engine(rows)
        try:
            kept = keep(self._known, rows)
        except pa.ArrowInvalid:  # an integer overflows; whether that matters depends on how SQL goes about it
            return self._ask_engine(_spelled_out(rows))
        if not self._is_complete:
            likely = np.flatnonzero(kept)
            if len(likely):
                kept[likely] = self._ask_engine(_spelled_out(rows.filter(as_bits(kept))))
        return kept

    def _ask_engine(self, rows: pa.Table) -> NDArray[np.bool_]:
        import duckdb

        stream = rows.__arrow_c_stream__()  # a bare stream: registering a table costs as much again
        try:
            asked = self._cursor().from_arrow(stream).project(f"({self._filter.sql}\n) IS TRUE AS keep")
            kept = as_bools(asked.to_arrow_table()["keep"].combine_chunks())
        except duckdb.Error as error:
            raise InvalidFilterError(f"the filter {self._filter.sql!r} fails on a row: {error}") from error
        if len(kept) != rows.num_rows:
            raise InvalidFilterError(f"the filter {self._filter.sql!r} is not about one row at a time")
        return kept

    def _cursor(self) -> DuckDBPyConnection:
        """One per thread, since a connection runs one query at a time; it ends with the thread."""
        cursor: DuckDBPyConnection | None = getattr(self._local, "cursor", None)
        if cursor is None:
            cursor = self._local.cursor = sealed_cursor()
        return cursor


def _known_part(predicate: Predicate) -> tuple[Predicate | None, bool]:
    """What must be true and is within the kernels' reach, and whether that is everything."""
    if _is_known(predicate):
        return predicate, True
    if isinstance(predicate, And):
        parts = [_known_part(part)[0] for part in predicate.parts]
        known = tuple(part for part in parts if part is not None)
        return (And(known) if known else None), False
    return None, False


def _is_known(predicate: Predicate) -> bool:
    """Whether every part is within the kernels' reach."""
    if isinstance(predicate, And | Or):
        return all(_is_known(part) for part in predicate.parts)
    if isinstance(predicate, Not):
        return _is_known(predicate.part)
    return not isinstance(predicate, Unknown)


def _spelled_out(rows: pa.Table) -> pa.Table:
    """Dictionaries back as plain values, which the engine takes for what they are."""
    import pyarrow as pa

    for position, field in enumerate(rows.schema):
        if pa.types.is_dictionary(field.type):
            rows = rows.set_column(position, field.name, rows.column(position).cast(field.type.value_type))
    return rows
