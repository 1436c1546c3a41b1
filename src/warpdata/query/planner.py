"""The planner: which rows a predicate can be true for, by what indexes know. Pure.

SQL has three truth values. For each node the planner keeps two sets of rows for the truth that is asked for: those that
certainly have it, and those that possibly have it. A row in between is *undecided*, and a scan decides it. NOT asks for
the other truth; NULL is neither. A leaf without an index leaves all rows undecided.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, TypeAlias

from warpdata.primitives.bitmaps import range_bitmap
from warpdata.query.expr import And, Compare, Contains, In, IsNull, Leaf, Match, Not, Or, Predicate, Range

if TYPE_CHECKING:
    from pyroaring import BitMap

__all__ = ["Answer", "IndexLookup", "LeafIndex", "LeafPlan", "LeafRows", "describe_leaf", "plan"]

_MAX_SCAN_SHARE = 0.5
"""A leaf whose look-up takes longer than decoding this share of the column is left to the scan."""
_SHOWN_CHARACTERS = 60


@dataclass(frozen=True, slots=True)
class LeafRows:
    """Rows of the table, as an index knows them. `true` and `null` are parts of `covered`. None of them may change."""

    true: BitMap
    null: BitMap
    covered: BitMap


class LeafIndex(Protocol):
    """An index that can answer one leaf. Estimates read little; `rows` reads what it needs."""

    @property
    def name(self) -> str: ...
    def estimate(self) -> int:
        """Return an upper bound of the covered rows for which the leaf is true."""
        ...

    def cost_rows(self) -> int:
        """Return the work of `rows` as the number of column values that take as long to scan."""
        ...

    def rows(self) -> LeafRows | None:
        """Look the rows up. None if the index cannot be read; then the leaf has no index."""
        ...


IndexLookup: TypeAlias = Callable[[Leaf], "LeafIndex | None"]


@dataclass(frozen=True, slots=True)
class LeafPlan:
    """The part of one leaf in a plan. `index` is None if the scan decides it; `reason` says why."""

    condition: str
    index: str | None
    reason: str
    row_count: int | None = None
    """The covered rows for which the leaf is true."""


@dataclass(frozen=True)
class Answer:
    """The rows for which a predicate is certainly true, and those for which it possibly is. Neither may change."""

    certain: BitMap
    possible: BitMap
    leaves: tuple[LeafPlan, ...]

    @property
    def uses_indexes(self) -> bool:
        """False if all rows are undecided, because no index was of use."""
        return any(leaf.index for leaf in self.leaves)

    @property
    def is_exact(self) -> bool:
        """True if no row is undecided."""
        return len(self.certain) == len(self.possible)


def plan(predicate: Predicate, lookup: IndexLookup, row_count: int) -> Answer:
    """Answer a predicate over the rows 0 to `row_count` by the indexes that cover it."""
    planner = _Planner(lookup, row_count)
    tree = planner.node(predicate)
    certain, possible = tree.bounds(True) if tree.narrows(True) else _Unknown(planner).bounds(True)
    unread = [LeafPlan(describe_leaf(leaf), None, "not needed") for leaf in planner.unread]
    return Answer(certain, possible, (*planner.leaves, *unread))


def describe_leaf(leaf: Leaf) -> str:
    """Return a condition as a short text."""
    if isinstance(leaf, Range):
        text = " AND ".join(describe_leaf(part) for part in leaf.parts)
    elif isinstance(leaf, Compare):
        text = f"{leaf.column} {leaf.op} {leaf.value!r}"
    elif isinstance(leaf, In):
        text = f"{leaf.column} IN ({len(leaf.values)} values)"
    elif isinstance(leaf, Contains):
        text = f"{leaf.column} contains {leaf.value!r}"
    elif isinstance(leaf, Match):
        text = f"{leaf.column} {leaf.how} {leaf.text!r}"
    else:
        text = f"{leaf.column} IS NULL"
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[: _SHOWN_CHARACTERS - 1]}…"


def _join_ranges(predicate: And) -> list[Predicate]:
    """Return the parts of nested ANDs, with the comparisons of each column as one part. Both have the same truth."""
    listed: list[Predicate] = []
    compared: dict[str, list[Compare]] = {}
    waiting: list[Predicate] = list(reversed(predicate.parts))
    while waiting:
        part = waiting.pop()
        if isinstance(part, And):
            waiting += reversed(part.parts)
        elif isinstance(part, Compare) and part.op != "!=":
            compared.setdefault(part.column, []).append(part)
        else:
            listed.append(part)
    ranges = (found[0] if len(found) == 1 else Range(column, tuple(found)) for column, found in compared.items())
    return [*ranges, *listed]


_Bounds: TypeAlias = "tuple[BitMap, BitMap]"
"""The rows that certainly have a truth, and those that possibly have it."""


class _Node(Protocol):
    def narrows(self, truth: bool) -> bool:
        """Return whether the rows that possibly have this truth may be fewer than all."""
        ...

    def estimate(self, truth: bool) -> int:
        """Return an upper bound of the rows that possibly have this truth, by estimates alone."""
        ...

    def bounds(self, truth: bool) -> _Bounds: ...


@dataclass
class _Planner:
    lookup: IndexLookup
    row_count: int
    leaves: list[LeafPlan] = field(default_factory=list)
    unread: list[Leaf] = field(default_factory=list)
    """Leaves with an index that was not read yet."""

    def node(self, predicate: Predicate) -> _Node:
        if isinstance(predicate, Not):
            return _Negation(self.node(predicate.part))
        if isinstance(predicate, And):
            return _Junction(self, [self.node(part) for part in _join_ranges(predicate)], is_and=True)
        if isinstance(predicate, Or):
            return _Junction(self, [self.node(part) for part in predicate.parts], is_and=False)
        if isinstance(predicate, Compare) and predicate.op == "!=":
            return _Negation(self.node(Compare(predicate.column, "=", predicate.value)))
        if isinstance(predicate, Compare | In | Contains | Match | IsNull | Range):
            return self._leaf(predicate)
        return _Unknown(self)

    def _leaf(self, leaf: Leaf) -> _Node:
        index = self.lookup(leaf)
        if index is None:
            self.leaves.append(LeafPlan(describe_leaf(leaf), None, "no index"))
            return _Unknown(self)
        if index.cost_rows() > _MAX_SCAN_SHARE * self.row_count:
            self.leaves.append(LeafPlan(describe_leaf(leaf), None, f"a scan is faster than index {index.name}"))
            return _Unknown(self)
        self.unread.append(leaf)
        return _Known(self, leaf, index)

    def all_rows(self) -> BitMap:
        return range_bitmap(0, self.row_count)


@dataclass
class _Unknown:
    """A leaf without an index."""

    planner: _Planner

    def narrows(self, truth: bool) -> bool:
        return False

    def estimate(self, truth: bool) -> int:
        return self.planner.row_count

    def bounds(self, truth: bool) -> _Bounds:
        return range_bitmap(0, 0), self.planner.all_rows()


@dataclass
class _Known:
    """A leaf with an index."""

    planner: _Planner
    leaf: Leaf
    index: LeafIndex

    def narrows(self, truth: bool) -> bool:
        return True

    def estimate(self, truth: bool) -> int:
        return self.index.estimate() if truth else self.planner.row_count

    def bounds(self, truth: bool) -> _Bounds:
        self.planner.unread.remove(self.leaf)
        found = self.index.rows()
        condition = describe_leaf(self.leaf)
        if found is None:
            self.planner.leaves.append(LeafPlan(condition, None, f"index {self.index.name} cannot be read"))
            return _Unknown(self.planner).bounds(truth)
        self.planner.leaves.append(LeafPlan(condition, self.index.name, "answered", len(found.true)))
        certain = found.true if truth else found.covered - found.true - found.null
        if len(found.covered) == self.planner.row_count:
            return certain, certain
        return certain, certain | (self.planner.all_rows() - found.covered)


@dataclass
class _Negation:
    part: _Node

    def narrows(self, truth: bool) -> bool:
        return self.part.narrows(not truth)

    def estimate(self, truth: bool) -> int:
        return self.part.estimate(not truth)

    def bounds(self, truth: bool) -> _Bounds:
        return self.part.bounds(not truth)


@dataclass
class _Junction:
    """AND is true where all parts are, and false where one is. OR is the reverse."""

    planner: _Planner
    parts: Sequence[_Node]
    is_and: bool

    def narrows(self, truth: bool) -> bool:
        needs_all = self.is_and == truth
        return (any if needs_all else all)(part.narrows(truth) for part in self.parts)

    def estimate(self, truth: bool) -> int:
        estimates = [part.estimate(truth) for part in self.parts]
        return min(estimates) if self.is_and == truth else min(sum(estimates), self.planner.row_count)

    def bounds(self, truth: bool) -> _Bounds:
        return self._intersect(truth) if self.is_and == truth else self._unite(truth)

    def _intersect(self, truth: bool) -> _Bounds:
        """Begin with the fewest rows. Parts that cannot narrow the rows leave them undecided, and are not read."""
        useful = [part for part in self.parts if part.narrows(truth)]
        bounds: _Bounds | None = None
        for part in sorted(useful, key=lambda part: part.estimate(truth)):
            if bounds is None:
                bounds = part.bounds(truth)
            elif bounds[1]:
                bounds = _intersect(bounds, part.bounds(truth))
        certain, possible = bounds or (self.planner.all_rows(), self.planner.all_rows())
        return (certain if len(useful) == len(self.parts) else range_bitmap(0, 0)), possible

    def _unite(self, truth: bool) -> _Bounds:
        certain, possible = range_bitmap(0, 0), range_bitmap(0, 0)
        for part in self.parts:
            one, other = part.bounds(truth)
            certain |= one
            possible |= other
        return certain, possible


def _intersect(one: _Bounds, other: _Bounds) -> _Bounds:
    """Return the bounds of AND. Rows that are all decided are intersected once."""
    certain = one[0] & other[0]
    is_exact = one[0] is one[1] and other[0] is other[1]
    return certain, certain if is_exact else one[1] & other[1]
