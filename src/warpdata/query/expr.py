"""The part of a filter that can be reasoned about: comparisons of columns, constants and sums of them. Pure.

A filter is evaluated row by row in SQL semantics; this is only what pruning and the fast path need
to know. What has no place here becomes `Unknown`, about which nothing is ever concluded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any, TypeAlias

__all__ = [
    "And",
    "Arithmetic",
    "Bounds",
    "Column",
    "Compare",
    "CompareTerms",
    "Constant",
    "In",
    "IsNull",
    "Literal",
    "Match",
    "Not",
    "Or",
    "Predicate",
    "Term",
    "Unknown",
    "can_match",
    "columns_of",
]

Constant: TypeAlias = int | float | str | bool | date
"""Of the column's own type, so that comparing needs no conversion."""


@dataclass(frozen=True, slots=True)
class Compare:
    column: str
    op: str
    value: Constant


@dataclass(frozen=True, slots=True)
class In:
    column: str
    values: tuple[Constant, ...]


@dataclass(frozen=True, slots=True)
class Column:
    """A numeric column within arithmetic."""

    name: str


@dataclass(frozen=True, slots=True)
class Literal:
    value: int | float


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """`left` `op` `right`, computed in the Arrow type `kind` after both were converted to it."""

    left: Term
    op: str
    right: Term
    kind: str


Term: TypeAlias = Column | Literal | Arithmetic


@dataclass(frozen=True, slots=True)
class CompareTerms:
    """Two terms compared as values of the Arrow type `kind`. Statistics say nothing about it."""

    left: Term
    op: str
    right: Term
    kind: str


@dataclass(frozen=True, slots=True)
class Match:
    """LIKE with a pattern that says no more than "contains", "prefix" or "suffix"."""

    column: str
    how: str
    text: str


@dataclass(frozen=True, slots=True)
class IsNull:
    column: str


@dataclass(frozen=True, slots=True)
class And:
    parts: tuple[Predicate, ...]


@dataclass(frozen=True, slots=True)
class Or:
    parts: tuple[Predicate, ...]


@dataclass(frozen=True, slots=True)
class Not:
    part: Predicate


@dataclass(frozen=True, slots=True)
class Unknown:
    """Something only the SQL engine understands."""


Predicate: TypeAlias = Compare | CompareTerms | In | Match | IsNull | And | Or | Not | Unknown


@dataclass(frozen=True, slots=True)
class Bounds:
    """What a row group's statistics promise about one column; None where they promise nothing.

    Statistics leave NaN out, which SQL puts above every number. So `maximum` bounds floating point only
    where it is known that there is no NaN.
    """

    minimum: Any
    maximum: Any
    null_count: int | None
    row_count: int
    may_have_nan: bool


def can_match(predicate: Predicate, bounds: Mapping[str, Bounds]) -> bool:
    """False only if no row within these bounds can satisfy the predicate."""
    if isinstance(predicate, And):
        return all(can_match(part, bounds) for part in predicate.parts)
    if isinstance(predicate, Or):
        return any(can_match(part, bounds) for part in predicate.parts)
    if isinstance(predicate, Not):
        return _can_fail(predicate.part, bounds)
    if isinstance(predicate, IsNull):
        known = bounds.get(predicate.column)
        return known is None or known.null_count is None or known.null_count > 0
    if isinstance(predicate, Compare):
        return _compare_can_match(predicate, bounds.get(predicate.column))
    if isinstance(predicate, In):
        known = bounds.get(predicate.column)
        return any(_compare_can_match(Compare(predicate.column, "=", value), known) for value in predicate.values)
    return True


_OPPOSITE = {"=": "!=", "!=": "=", "<": ">=", ">=": "<", ">": "<=", "<=": ">"}


def _can_fail(predicate: Predicate, bounds: Mapping[str, Bounds]) -> bool:
    """False only if the predicate cannot be FALSE for any row (NULL does not count as FALSE)."""
    if isinstance(predicate, Compare):
        return can_match(Compare(predicate.column, _OPPOSITE[predicate.op], predicate.value), bounds)
    if isinstance(predicate, In):
        return all(can_match(Compare(predicate.column, "!=", value), bounds) for value in predicate.values)
    if isinstance(predicate, IsNull):
        known = bounds.get(predicate.column)
        return known is None or known.null_count is None or known.null_count < known.row_count
    if isinstance(predicate, Not):
        return can_match(predicate.part, bounds)
    if isinstance(predicate, And):
        return any(_can_fail(part, bounds) for part in predicate.parts)
    if isinstance(predicate, Or):
        return all(_can_fail(part, bounds) for part in predicate.parts)
    return True


_EXCLUDES: Mapping[str, Callable[[Any, Any, Any], bool]] = {
    "=": lambda low, high, value: value < low or value > high,
    "!=": lambda low, high, value: low == high == value,
    "<": lambda low, _high, value: low >= value,
    "<=": lambda low, _high, value: low > value,
    ">": lambda _low, high, value: high <= value,
    ">=": lambda _low, high, value: high < value,
}


def _compare_can_match(predicate: Compare, known: Bounds | None) -> bool:
    if known is None:
        return True
    if known.null_count == known.row_count:
        return False
    if known.minimum is None or known.maximum is None:
        return True
    if known.may_have_nan and predicate.op in (">", ">=", "!="):
        return True
    return not _EXCLUDES[predicate.op](known.minimum, known.maximum, predicate.value)


def columns_of(predicates: Iterable[Predicate] | Sequence[Predicate]) -> set[str]:
    """Every column that is reasoned about."""
    out: set[str] = set()
    for predicate in predicates:
        if isinstance(predicate, Compare | In | Match | IsNull):
            out.add(predicate.column)
        elif isinstance(predicate, And | Or):
            out |= columns_of(predicate.parts)
        elif isinstance(predicate, Not):
            out |= columns_of([predicate.part])
    return out
