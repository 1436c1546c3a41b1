"""Which rows of an Arrow table a filter keeps.

The SQL engine decides. Where a filter is made of comparisons whose meaning is certain to be the
same, Arrow's kernels do it several times faster; a property test holds the two together.
"""

from __future__ import annotations

import functools
import threading
from typing import TYPE_CHECKING

from warpdata.errors import InvalidFilterError
from warpdata.tables.engine import sealed_cursor
from warpdata.tables.filters import RowFilter
from warpdata.tables.predicate import And, Compare, In, IsNull, Match, Not, Or, Predicate, Unknown

if TYPE_CHECKING:
    import pyarrow as pa
    from duckdb import DuckDBPyConnection

__all__ = ["Evaluator"]

_KERNELS = {
    "=": "equal",
    "!=": "not_equal",
    "<": "less",
    "<=": "less_equal",
    ">": "greater",
    ">=": "greater_equal",
}
_PATTERNS = {"contains": "match_substring", "prefix": "starts_with", "suffix": "ends_with"}


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

    def mask(self, rows: pa.Table) -> pa.Array:
        """True for the rows to keep, never null."""
        import pyarrow as pa
        import pyarrow.compute as pc

        if self._known is None:
            return self._ask_engine(rows)
        likely = pc.fill_null(_evaluate(self._known, rows), False)
        likely = likely.combine_chunks() if isinstance(likely, pa.ChunkedArray) else likely
        if self._is_complete or not likely.true_count:
            return likely
        return pc.replace_with_mask(likely, likely, self._ask_engine(_spelled_out(rows.filter(likely))))

    def _ask_engine(self, rows: pa.Table) -> pa.Array:
        stream = rows.__arrow_c_stream__()  # a bare stream: registering a table costs as much again
        asked = self._cursor().from_arrow(stream).project(f"({self._filter.sql}\n) IS TRUE AS keep")
        kept = asked.to_arrow_table()["keep"].combine_chunks()
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


def _evaluate(predicate: Predicate, rows: pa.Table) -> pa.ChunkedArray:
    """True, false or null for each row, in SQL's three-valued logic."""
    import pyarrow.compute as pc

    if isinstance(predicate, And):
        return functools.reduce(pc.and_kleene, (_evaluate(part, rows) for part in predicate.parts))
    if isinstance(predicate, Or):
        return functools.reduce(pc.or_kleene, (_evaluate(part, rows) for part in predicate.parts))
    if isinstance(predicate, Not):
        return pc.invert(_evaluate(predicate.part, rows))
    if isinstance(predicate, IsNull):
        return pc.is_null(rows[predicate.column])
    if isinstance(predicate, In):
        equal = [Compare(predicate.column, "=", value) for value in predicate.values]
        return functools.reduce(pc.or_kleene, (_evaluate(part, rows) for part in equal))
    assert isinstance(predicate, Compare | Match), "the SQL engine takes what is unknown"
    return _decide_column(rows[predicate.column], predicate)


def _decide_column(column: pa.ChunkedArray, predicate: Compare | Match) -> pa.ChunkedArray:
    """A dictionary is decided value by value of its few, then spread over the rows."""
    import pyarrow as pa

    if not pa.types.is_dictionary(column.type):
        return _decide(column, predicate)
    spread = [_spread(_decide(chunk.dictionary, predicate), chunk.indices) for chunk in column.chunks]
    return pa.chunked_array(spread, pa.bool_())


def _spread(decided: pa.BooleanArray, indices: pa.Array) -> pa.Array:
    """The decision for each row; where one value alone is meant, comparing indices is much faster."""
    import pyarrow.compute as pc

    if decided.true_count == 1 and not decided.null_count:
        return pc.equal(indices, pc.index(decided, True).cast(indices.type))
    return decided.take(indices)


def _decide(values: pa.Array | pa.ChunkedArray, predicate: Compare | Match) -> pa.Array | pa.ChunkedArray:
    import pyarrow.compute as pc

    if isinstance(predicate, Compare):
        return _compare(values, predicate)
    return pc.call_function(_PATTERNS[predicate.how], [values], pc.MatchSubstringOptions(predicate.text))


def _compare(values: pa.Array | pa.ChunkedArray, predicate: Compare) -> pa.Array | pa.ChunkedArray:
    """One comparison in SQL's order of values: NaN equals itself and stands above every number."""
    import pyarrow as pa
    import pyarrow.compute as pc

    kind = pa.int64() if pa.types.is_integer(values.type) else values.type
    compared = pc.call_function(_KERNELS[predicate.op], [values, pa.scalar(predicate.value, kind)])
    if pa.types.is_floating(values.type) and predicate.op in (">", ">="):
        return pc.or_kleene(compared, pc.is_nan(values))
    return compared
