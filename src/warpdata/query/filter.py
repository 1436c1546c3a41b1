"""`Filter` and `col`: filters built in Python, as immutable values.

A filter has the meaning of the SQL text that `to_sql` returns, except for the clauses `near` and `sample`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, NoReturn

from warpdata.errors import BadInputError, ErrorKind
from warpdata.primitives.arguments import check_arguments
from warpdata.primitives.reprs import shorten
from warpdata.query.clauses import near_clause, sample_clause, split_clauses, sql_text
from warpdata.query.filter_json import filter_json, parse_filter_json
from warpdata.query.filter_sql import filter_sql, term_sql
from warpdata.query.filter_tree import (
    AllOf,
    AllRows,
    AnyOf,
    ArithmeticTerm,
    Between,
    ColumnTerm,
    Comparison,
    Containment,
    FilterNode,
    FilterTerm,
    Membership,
    Metric,
    Negation,
    NullTest,
    TextMatch,
    TimeRange,
    ValueTerm,
)
from warpdata.query.literals import as_value

__all__ = ["ColumnNamespace", "Filter", "Metric", "ValueExpr", "col"]

_SHOWN_CHARS = 200
_SIGNS = ("=", "!=", "<", "<=", ">", ">=")
_COMPARISONS = {
    **dict(zip(("Eq", "Neq", "Lt", "Lte", "Gt", "Gte"), _SIGNS, strict=True)),
    **dict(zip(_SIGNS, _SIGNS, strict=True)),
    "==": "=",
    "<>": "!=",
}


@dataclass(frozen=True, slots=True, repr=False)
class Filter:
    """A condition on rows, as an immutable value. Combine filters with `&`, `|` and `~`.

    Equal filters have equal trees. `Table.filter`, `Dataset.stream` and all others that take SQL text take a filter.
    """

    tree: FilterNode

    def __and__(self, other: Filter | str) -> Filter:
        return _joined(AllOf, self, other)

    def __rand__(self, other: str) -> Filter:
        return _joined(AllOf, other, self)

    def __or__(self, other: Filter | str) -> Filter:
        return _joined(AnyOf, self, other)

    def __ror__(self, other: str) -> Filter:
        return _joined(AnyOf, other, self)

    def __invert__(self) -> Filter:
        return Filter(Negation(self.tree))

    def __bool__(self) -> NoReturn:
        raise BadInputError(
            "a filter is neither true nor false",
            hint="Combine filters with &, | and ~, each comparison in parentheses, and write a <= x <= b as between.",
            kind=ErrorKind.INVALID_FILTER,
        )

    def __repr__(self) -> str:
        try:
            text = self.to_sql()
        except BadInputError:  # clauses over all rows have no SQL
            text = self.to_json()
        return f"Filter({shorten(text, _SHOWN_CHARS)})"

    def to_sql(self) -> str:
        """Return the SQL expression that the filter means, with all names and values quoted.

        `BadInputError` for `near`, `sample`, and a `TimeRange` without a field.
        """
        return filter_sql(self.tree)

    def to_json(self) -> str:
        """Return the filter as a JSON document. Equal filters give the same text."""
        return filter_json(self.tree)

    @staticmethod
    @check_arguments
    def from_json(text: str | bytes) -> Filter:
        """Parse a document of `to_json`. `BadInputError` names the place of what is wrong."""
        tree = parse_filter_json(text)
        split_clauses(tree)
        return Filter(tree)

    @staticmethod
    def sql(text: str) -> Filter:
        """Return SQL text as a filter, to combine it with others. It must be exactly one expression."""
        return Filter(sql_text(text))

    @staticmethod
    def sample(count: int, *, by: str | None = None, seed: int = 0) -> Filter:
        """Return a clause that keeps `count` random rows of those that the rest of the filter keeps.

        The sample is that of `Table.sample`: uniform, or stratified by a column.
        """
        return Filter(sample_clause(count, by, seed))

    @staticmethod
    def All() -> Filter:  # noqa: N802 - the name of an operator, as in And
        """Return a filter that keeps every row."""
        return Filter(AllRows())

    @staticmethod
    def And(parts: Sequence[Filter | str]) -> Filter:  # noqa: N802
        """Return a filter that keeps the rows which all parts keep; every row without parts."""
        return Filter(AllOf(tuple(_tree_of(part) for part in _listed(parts))))

    @staticmethod
    def Or(parts: Sequence[Filter | str]) -> Filter:  # noqa: N802
        """Return a filter that keeps the rows which a part keeps; none without parts."""
        return Filter(AnyOf(tuple(_tree_of(part) for part in _listed(parts))))

    @staticmethod
    def Not(part: Filter | str) -> Filter:  # noqa: N802
        """Return a filter that keeps the rows for which the part is false, and not NULL."""
        return Filter(Negation(_tree_of(part)))

    @staticmethod
    def Where(field: str, op: str, value: Any) -> Filter:  # noqa: N802
        """Compare a column with a value. `op` is Eq, Neq, Lt, Lte, Gt, Gte, In or Contains, or a sign such as "=="."""
        column = col(field)
        if op in ("In", "in"):
            return column.isin(value)
        if op in ("Contains", "contains"):
            return column.contains(value)
        if op not in _COMPARISONS:
            raise _invalid(f"the operator {op!r} is not known", f"Use In, Contains, {', '.join(_COMPARISONS)}.")
        return _comparison(column, _COMPARISONS[op], value)

    @staticmethod
    def TimeRange(start: Any, end: Any, field: str | None = None) -> Filter:  # noqa: N802
        """Keep rows with `start` <= time < `end`. Without a field, the only timestamp column of the table is meant.

        Without a field, whole numbers are nanoseconds since 1970 in UTC.
        """
        if field is not None:
            column = col(field)
            return _joined(AllOf, _comparison(column, ">=", start), _comparison(column, "<", end))
        times = [_moment(start), _moment(end)]
        if not all(isinstance(each, datetime) for each in times):
            message = f"a TimeRange takes datetimes or nanoseconds, not {start!r} and {end!r}"
            raise _invalid(message, "Pass the field of other times.")
        return Filter(TimeRange(times[0], times[1]))

    @staticmethod
    def Vector(field: str, query: Iterable[float], top_k: int, metric: Metric = "cosine") -> Filter:  # noqa: N802
        """Return the clause `col(field).near(query, top_k)`."""
        return col(field).near(query, top_k, metric)

    @staticmethod
    def RandomSample(count: int, seed: int = 0) -> Filter:  # noqa: N802
        """Return the clause `Filter.sample(count, seed=seed)`."""
        return Filter.sample(count, seed=seed)

    @staticmethod
    def StratifiedSample(count: int, by: str, seed: int = 0) -> Filter:  # noqa: N802
        """Return the clause `Filter.sample(count, by=by, seed=seed)`."""
        return Filter.sample(count, by=by, seed=seed)


class ValueExpr:
    """A value of each row: a column, or arithmetic with columns. Comparisons of it are filters.

    Other operands are values: bool, int, float, str, bytes, date, datetime, Decimal, or such an expression.
    """

    __hash__ = None  # type: ignore[assignment]  # == makes a filter
    __slots__ = ("term",)

    def __init__(self, term: FilterTerm) -> None:
        self.term = term

    def __repr__(self) -> str:
        return f"ValueExpr({shorten(term_sql(self.term), _SHOWN_CHARS)})"

    def __bool__(self) -> NoReturn:
        raise _invalid(f"{self!r} is neither true nor false", "Compare it with a value: wd.col('paid') == True.")

    def __eq__(self, other: object) -> Filter:  # type: ignore[override]
        return self.is_null() if other is None else _comparison(self, "=", other)

    def __ne__(self, other: object) -> Filter:  # type: ignore[override]
        return ~self.is_null() if other is None else _comparison(self, "!=", other)

    def __lt__(self, other: object) -> Filter:
        return _comparison(self, "<", other)

    def __le__(self, other: object) -> Filter:
        return _comparison(self, "<=", other)

    def __gt__(self, other: object) -> Filter:
        return _comparison(self, ">", other)

    def __ge__(self, other: object) -> Filter:
        return _comparison(self, ">=", other)

    def __add__(self, other: object) -> ValueExpr:
        return ValueExpr(ArithmeticTerm(self.term, "+", _term_of(other)))

    def __radd__(self, other: object) -> ValueExpr:
        return ValueExpr(ArithmeticTerm(_term_of(other), "+", self.term))

    def __sub__(self, other: object) -> ValueExpr:
        return ValueExpr(ArithmeticTerm(self.term, "-", _term_of(other)))

    def __rsub__(self, other: object) -> ValueExpr:
        return ValueExpr(ArithmeticTerm(_term_of(other), "-", self.term))

    def __mul__(self, other: object) -> ValueExpr:
        return ValueExpr(ArithmeticTerm(self.term, "*", _term_of(other)))

    def __rmul__(self, other: object) -> ValueExpr:
        return ValueExpr(ArithmeticTerm(_term_of(other), "*", self.term))

    def __truediv__(self, other: object) -> ValueExpr:
        return ValueExpr(ArithmeticTerm(self.term, "/", _term_of(other)))

    def __rtruediv__(self, other: object) -> ValueExpr:
        return ValueExpr(ArithmeticTerm(_term_of(other), "/", self.term))

    def __mod__(self, other: object) -> ValueExpr:
        return ValueExpr(ArithmeticTerm(self.term, "%", _term_of(other)))

    def __rmod__(self, other: object) -> ValueExpr:
        return ValueExpr(ArithmeticTerm(_term_of(other), "%", self.term))

    def isin(self, values: Iterable[Any]) -> Filter:
        """Keep rows whose value is one of these. A list of 10⁵ values is as good as one of three."""
        listed = values.tolist() if hasattr(values, "tolist") and not _has_times(values) else values
        if isinstance(listed, str | bytes) or not isinstance(listed, Iterable):
            raise _invalid(f"isin takes a list of values, not {values!r}", "Pass isin([…]).")
        return Filter(Membership(self.term, tuple(None if each is None else as_value(each) for each in listed)))

    def between(self, lower: object, upper: object) -> Filter:
        """Keep rows with `lower` <= value <= `upper`: both bounds belong to the range."""
        return Filter(Between(self.term, _term_of(lower), _term_of(upper)))

    def contains(self, value: Any) -> Filter:
        """Keep rows whose list has this element, or whose text has this part: the type of the column decides."""
        return Filter(Containment(self.term, ValueTerm(as_value(value))))

    def is_null(self) -> Filter:
        """Keep rows without a value. NaN is a value."""
        return Filter(NullTest(self.term))

    def like(self, pattern: str) -> Filter:
        """Keep rows whose text matches the pattern: `%` for any text, `_` for any character."""
        return Filter(TextMatch(self.term, "like", _text_of(pattern)))

    def startswith(self, prefix: str) -> Filter:
        """Keep rows whose text begins so. Every character counts as it is."""
        return Filter(TextMatch(self.term, "starts_with", _text_of(prefix)))

    def endswith(self, suffix: str) -> Filter:
        """Keep rows whose text ends so. Every character counts as it is."""
        return Filter(TextMatch(self.term, "ends_with", _text_of(suffix)))

    def field(self, name: str) -> ValueExpr:
        """Return a field of a column of structs."""
        if not isinstance(self.term, ColumnTerm):
            raise _invalid(f"{self!r} has no field {name!r}", "Take the field of a column: wd.col('a').field('b').")
        return ValueExpr(ColumnTerm((*self.term.path, _text_of(name))))

    def near(self, vector: Iterable[float], k: int = 10, metric: Metric = "cosine") -> Filter:
        """Return a clause that keeps the `k` rows with the vectors nearest to this one, of those that the rest keeps.

        `metric` is "cosine", "l2" or "dot", the largest inner product. Of rows at the same distance, the first come
        first.
        """
        if not isinstance(self.term, ColumnTerm) or len(self.term.path) > 1:
            raise _invalid(f"near takes a column of vectors, not {self!r}", "Use wd.col('embedding').near(…).")
        return Filter(near_clause(self.term.path[0], vector, k, metric))


class ColumnNamespace:
    """`wd.col`: call it with the name of a column."""

    def __call__(self, name: str) -> ValueExpr:
        """Return a column, by its exact name."""
        return ValueExpr(ColumnTerm((_text_of(name),)))

    def __repr__(self) -> str:
        return "wd.col"

    sample = staticmethod(Filter.sample)


col = ColumnNamespace()
"""Columns for filters: `col("label") == "cat"`. `col.sample` is `Filter.sample`."""


def _joined(kind: type[AllOf | AnyOf], *filters: Filter | str) -> Filter:
    """Join filters; the parts of one that was joined by the same operator are not nested."""
    trees = [_tree_of(each) for each in filters]
    return Filter(kind(tuple(part for tree in trees for part in (tree.parts if isinstance(tree, kind) else (tree,)))))


def _tree_of(part: object) -> FilterNode:
    if isinstance(part, Filter):
        return part.tree
    if isinstance(part, str):
        return sql_text(part)
    raise _invalid(
        f"{part!r} is not a filter", "Combine filters, or SQL text; a bool column is wd.col('paid') == True."
    )


def _comparison(left: ValueExpr, op: str, right: object) -> Filter:
    return Filter(Comparison(left.term, op, _term_of(right)))


def _listed(parts: Any) -> list[Any]:
    if isinstance(parts, str | Filter) or not isinstance(parts, Iterable):
        raise _invalid(f"And and Or take a list of filters, not {parts!r}", "Pass Filter.And([…]).")
    return list(parts)


def _moment(value: object) -> Any:
    """Return a time, also one in nanoseconds since 1970, as a value."""
    plain = as_value(value)
    if not isinstance(plain, int) or isinstance(plain, bool):
        return plain
    if plain % 1000:
        raise _invalid(f"{plain} nanoseconds are no whole microseconds", "Times of a filter have microseconds.")
    try:
        return datetime(1970, 1, 1) + timedelta(microseconds=plain // 1000)  # noqa: DTZ001 - as columns store it
    except OverflowError as error:
        raise _invalid(f"{plain} nanoseconds are outside of the years 1 to 9999", "Pass datetimes.") from error


def _term_of(value: object) -> FilterTerm:
    if isinstance(value, ValueExpr):
        return value.term
    if isinstance(value, Filter):
        raise _invalid(f"{value!r} is a filter, not a value", "Put parentheses around each comparison.")
    return ValueTerm(as_value(value))


def _text_of(value: object) -> str:
    if not isinstance(value, str):
        raise _invalid(f"{value!r} ({type(value).__name__}) is not a text", "Pass a str.")
    return str(as_value(value))


def _has_times(values: Any) -> bool:
    """Return whether an array holds times, whose finest unit plain Python values do not have."""
    return getattr(getattr(values, "dtype", None), "kind", "") in ("M", "O")


def _invalid(message: str, hint: str) -> BadInputError:
    return BadInputError(message, hint=hint, kind=ErrorKind.INVALID_FILTER)
