"""Which rows of an Arrow table a filter keeps.

The SQL engine decides. Where a filter is made of comparisons whose meaning is certain to be the
same, Arrow's kernels do it several times faster; a property test holds the two together.
"""

from __future__ import annotations

import functools
import operator
import threading
from typing import TYPE_CHECKING

from warpdata.tables.engine import sealed_cursor
from warpdata.tables.filters import RowFilter
from warpdata.tables.predicate import And, Compare, In, IsNull, Not, Or, Predicate, Unknown

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.compute as pc
    from duckdb import DuckDBPyConnection

__all__ = ["Evaluator"]


class Evaluator:
    """Evaluates one filter, from any thread."""

    def __init__(self, row_filter: RowFilter, schema: pa.Schema, *, use_kernels: bool = True) -> None:
        self._filter = row_filter
        self._schema = schema
        self._expression = _expression(row_filter.predicate, schema) if use_kernels else None
        self._local = threading.local()

    def mask(self, rows: pa.Table) -> pa.ChunkedArray:
        """True for the rows to keep, never null."""
        if self._expression is not None:
            return _mask_by_kernel(rows, self._expression)
        cursor = self._cursor()
        cursor.register("rows", rows)
        try:
            query = f"SELECT ({self._filter.sql}\n) IS TRUE AS keep FROM rows"  # noqa: S608
            kept: pa.ChunkedArray = cursor.execute(query).to_arrow_table()["keep"]
        finally:
            cursor.unregister("rows")
        return kept

    def _cursor(self) -> DuckDBPyConnection:
        """One per thread, since a connection runs one query at a time; it ends with the thread."""
        cursor: DuckDBPyConnection | None = getattr(self._local, "cursor", None)
        if cursor is None:
            cursor = self._local.cursor = sealed_cursor()
        return cursor


def _mask_by_kernel(rows: pa.Table, expression: pc.Expression) -> pa.ChunkedArray:
    import pyarrow as pa
    import pyarrow.acero as acero
    import pyarrow.compute as pc

    plan = acero.Declaration.from_sequence(
        [
            acero.Declaration("table_source", acero.TableSourceNodeOptions(rows)),
            acero.Declaration("project", acero.ProjectNodeOptions([expression], ["keep"])),
        ]
    )
    keep = plan.to_table(use_threads=False)["keep"]
    return pa.chunked_array([pc.fill_null(chunk, False) for chunk in keep.chunks], pa.bool_())


def _expression(predicate: Predicate, schema: pa.Schema) -> pc.Expression | None:
    """The predicate for Arrow's kernels; None if any part of it is beyond them."""
    import pyarrow.compute as pc

    if isinstance(predicate, Unknown):
        return None
    if isinstance(predicate, And | Or):
        parts = [_expression(part, schema) for part in predicate.parts]
        known = [part for part in parts if part is not None]
        if len(known) < len(parts):
            return None
        return functools.reduce(operator.and_ if isinstance(predicate, And) else operator.or_, known)
    if isinstance(predicate, Not):
        inner = _expression(predicate.part, schema)
        return None if inner is None else ~inner
    if isinstance(predicate, IsNull):
        return pc.field(predicate.column).is_null()
    if isinstance(predicate, In):
        equal = [_compare(Compare(predicate.column, "=", value), schema) for value in predicate.values]
        return functools.reduce(operator.or_, equal)
    return _compare(predicate, schema)


def _compare(predicate: Compare, schema: pa.Schema) -> pc.Expression:
    """One comparison in SQL's order of values: NaN equals itself and stands above every number."""
    import pyarrow as pa
    import pyarrow.compute as pc

    kind = schema.field(predicate.column).type
    field = pc.field(predicate.column)
    if pa.types.is_integer(kind):
        field = field.cast(pa.int64())
        value = pc.scalar(pa.scalar(predicate.value, pa.int64()))
    else:
        value = pc.scalar(pa.scalar(predicate.value, kind))
    compared: pc.Expression = {
        "=": field == value,
        "!=": field != value,
        "<": field < value,
        "<=": field <= value,
        ">": field > value,
        ">=": field >= value,
    }[predicate.op]
    if pa.types.is_floating(kind) and predicate.op in (">", ">="):
        return compared | pc.is_nan(field)
    return compared
