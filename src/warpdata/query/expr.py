"""Predicates: the part of a filter that pruning and the Arrow kernels understand. Pure.

A filter has the meaning that SQL gives its text. A predicate describes only comparisons of columns, constants and
arithmetic. Everything else in the filter becomes `Unknown`, from which no conclusion is drawn.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import date
from typing import TypeAlias

__all__ = [
    "MIRRORED",
    "And",
    "Arithmetic",
    "Column",
    "Compare",
    "CompareTerms",
    "Constant",
    "Contains",
    "In",
    "IsNull",
    "Leaf",
    "Literal",
    "Match",
    "Not",
    "Or",
    "Predicate",
    "Range",
    "Term",
    "Unknown",
    "columns_of",
    "over_column",
]

Constant: TypeAlias = int | float | str | bool | date
"""A constant of the column's own type, so that comparing needs no conversion."""

MIRRORED = {"=": "=", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
"""The operator that holds when both sides are swapped."""


@dataclass(frozen=True, slots=True)
class Compare:
    """A column compared with a constant: `=`, `!=`, `<`, `<=`, `>` or `>=`."""

    column: str
    op: str
    value: Constant


@dataclass(frozen=True, slots=True)
class In:
    column: str
    values: tuple[Constant, ...]


@dataclass(frozen=True, slots=True)
class Contains:
    """A list has the value as an element. Statistics cannot prune it."""

    column: str
    value: Constant


@dataclass(frozen=True, slots=True)
class Column:
    """A numeric column within arithmetic."""

    name: str


@dataclass(frozen=True, slots=True)
class Literal:
    value: int | float


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """`left` `op` `right`, computed after both sides are converted to the Arrow type `type_name`."""

    left: Term
    op: str
    right: Term
    type_name: str


Term: TypeAlias = Column | Literal | Arithmetic


@dataclass(frozen=True, slots=True)
class CompareTerms:
    """Two terms compared as values of the Arrow type `type_name`. Statistics cannot prune it."""

    left: Term
    op: str
    right: Term
    type_name: str


@dataclass(frozen=True, slots=True)
class Match:
    """LIKE with a pattern that `how` describes completely: "contains", "prefix" or "suffix"."""

    column: str
    how: str
    text: str


@dataclass(frozen=True, slots=True)
class IsNull:
    """The column is null. Never NULL itself."""

    column: str


@dataclass(frozen=True, slots=True)
class And:
    parts: tuple[Predicate, ...]


@dataclass(frozen=True, slots=True)
class Or:
    parts: tuple[Predicate, ...]


@dataclass(frozen=True, slots=True)
class Not:
    """True where the part is false, false where it is true. NULL stays NULL."""

    part: Predicate


@dataclass(frozen=True, slots=True)
class Unknown:
    """An expression that only the SQL engine evaluates."""


@dataclass(frozen=True, slots=True)
class Range:
    """Comparisons of one column that all hold. Only the planner makes it, to look up both ends at once."""

    column: str
    parts: tuple[Compare, ...]


Leaf: TypeAlias = Compare | In | Contains | Match | IsNull | Range
"""A condition on one column, which an index can answer. Only `IsNull` is true or false for null."""

Predicate: TypeAlias = Leaf | CompareTerms | And | Or | Not | Unknown


def columns_of(predicate: Predicate) -> set[str]:
    """Return the columns whose statistics can prune the predicate."""
    if isinstance(predicate, Compare | In | Match | IsNull):
        return {predicate.column}
    if isinstance(predicate, And | Or):
        return {name for part in predicate.parts for name in columns_of(part)}
    return columns_of(predicate.part) if isinstance(predicate, Not) else set()


def over_column(leaf: Leaf, column: str) -> Predicate:
    """Return the condition of a leaf over a column of another name."""
    if isinstance(leaf, Range):
        return And(tuple(replace(part, column=column) for part in leaf.parts))
    return replace(leaf, column=column)
