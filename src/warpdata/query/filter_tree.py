"""The syntax tree of a filter, as plain values. Pure.

`Filter` builds and combines trees, `filter_sql` writes them as SQL, `filter_json` as JSON, and `binding` checks them
against a schema. Nodes compare by value: 1, 1.0 and True are different values, and NaN equals NaN.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal, TypeAlias

from warpdata.errors import ErrorKind, LimitExceededError
from warpdata.limits import MAX_FILTER_DEPTH
from warpdata.query.literals import Value

__all__ = [
    "AllOf",
    "AllRows",
    "AnyOf",
    "ArithmeticTerm",
    "Between",
    "ColumnTerm",
    "Comparison",
    "Containment",
    "FilterNode",
    "FilterTerm",
    "Membership",
    "Metric",
    "Negation",
    "NullTest",
    "SampleClause",
    "SqlText",
    "TextMatch",
    "TimeRange",
    "ValueTerm",
    "VectorClause",
    "iter_filters",
]


Metric: TypeAlias = Literal["cosine", "l2", "dot"]


@dataclass(frozen=True, slots=True)
class ColumnTerm:
    """A column, or a field of a struct inside it."""

    path: tuple[str, ...]
    depth: int = field(default=0, init=False, compare=False, repr=False)


@dataclass(frozen=True, slots=True, eq=False)
class ValueTerm:
    value: Value
    depth: int = field(default=0, init=False, compare=False, repr=False)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ValueTerm) and _key(self.value) == _key(other.value)

    def __hash__(self) -> int:
        return hash(_key(self.value))


@dataclass(frozen=True, slots=True)
class ArithmeticTerm:
    """`left` `op` `right` for `+`, `-`, `*`, `/` or `%`."""

    left: FilterTerm
    op: str
    right: FilterTerm
    depth: int = field(default=0, init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        _set_depth(self, (self.left, self.right))


FilterTerm: TypeAlias = ColumnTerm | ValueTerm | ArithmeticTerm


@dataclass(frozen=True, slots=True)
class AllRows:
    depth: int = field(default=0, init=False, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class AllOf:
    """The outermost one may also have a `VectorClause` and a `SampleClause`."""

    parts: tuple[FilterNode, ...]
    depth: int = field(default=0, init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        _set_depth(self, self.parts)


@dataclass(frozen=True, slots=True)
class AnyOf:
    parts: tuple[FilterNode, ...]
    depth: int = field(default=0, init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        _set_depth(self, self.parts)


@dataclass(frozen=True, slots=True)
class Negation:
    part: FilterNode
    depth: int = field(default=0, init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        _set_depth(self, (self.part,))


@dataclass(frozen=True, slots=True)
class Comparison:
    """`left` `op` `right` for `=`, `!=`, `<`, `<=`, `>` or `>=`."""

    left: FilterTerm
    op: str
    right: FilterTerm
    depth: int = field(default=0, init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        _set_depth(self, (self.left, self.right))


@dataclass(frozen=True, slots=True)
class Between:
    """Both bounds belong to the range."""

    operand: FilterTerm
    lower: FilterTerm
    upper: FilterTerm
    depth: int = field(default=0, init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        _set_depth(self, (self.operand, self.lower, self.upper))


@dataclass(frozen=True, slots=True, eq=False)
class Membership:
    """IN. A None among the values is NULL."""

    operand: FilterTerm
    values: tuple[Value | None, ...]
    depth: int = field(default=0, init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        _set_depth(self, (self.operand,))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Membership) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def _key(self) -> tuple[object, ...]:
        return (self.operand, *map(_key, self.values))


@dataclass(frozen=True, slots=True)
class Containment:
    """A list has the value as an element, or a text has it as a part: the type of the operand decides."""

    operand: FilterTerm
    value: ValueTerm
    depth: int = field(default=0, init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        _set_depth(self, (self.operand,))


@dataclass(frozen=True, slots=True)
class NullTest:
    operand: FilterTerm
    depth: int = field(default=0, init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        _set_depth(self, (self.operand,))


@dataclass(frozen=True, slots=True)
class TextMatch:
    """`how` is "like", "starts_with" or "ends_with"."""

    operand: FilterTerm
    how: str
    text: str
    depth: int = field(default=0, init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        _set_depth(self, (self.operand,))


@dataclass(frozen=True, slots=True)
class SqlText:
    """One SQL expression over one row."""

    text: str
    depth: int = field(default=0, init=False, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class TimeRange:
    """Times in [start, end) of the only timestamp column."""

    start: datetime
    end: datetime
    depth: int = field(default=0, init=False, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class VectorClause:
    """The `k` rows whose vectors are nearest, of those that the other parts keep."""

    column: str
    vector: tuple[float, ...]
    k: int
    metric: Metric
    depth: int = field(default=0, init=False, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class SampleClause:
    """`count` random rows of those that the other parts keep."""

    count: int
    by: str | None
    seed: int
    depth: int = field(default=0, init=False, compare=False, repr=False)


FilterNode: TypeAlias = (
    AllRows
    | AllOf
    | AnyOf
    | Negation
    | Comparison
    | Between
    | Membership
    | Containment
    | NullTest
    | TextMatch
    | SqlText
    | TimeRange
    | VectorClause
    | SampleClause
)


def iter_filters(node: FilterNode) -> Iterator[FilterNode]:
    """Yield the node and all filters below it."""
    yield node
    if isinstance(node, AllOf | AnyOf):
        for part in node.parts:
            yield from iter_filters(part)
    elif isinstance(node, Negation):
        yield from iter_filters(node.part)


def _key(value: Value | None) -> tuple[str, str]:
    return type(value).__name__, repr(value)


def _set_depth(node: FilterNode | FilterTerm, children: Iterable[FilterNode | FilterTerm]) -> None:
    """Record how deeply a node is nested. `LimitExceededError` before a recursion over it could fail."""
    depth = 1 + max((child.depth for child in children), default=0)
    if depth > MAX_FILTER_DEPTH:
        raise LimitExceededError(
            f"the filter is nested more than {MAX_FILTER_DEPTH} levels deep",
            hint="Combine many parts with Filter.And([…]) or Filter.Or([…]), and many values with isin.",
            kind=ErrorKind.INVALID_FILTER,
        )
    object.__setattr__(node, "depth", depth)
