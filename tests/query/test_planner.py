"""If this fails, the planner takes a row for certain that a filter does not keep, or leaves out one that it keeps.

The oracle is SQL's three-valued logic, row by row. Leaves are answered by random indexes, which may cover some rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap

from warpdata.query import IsNull, LeafRows, Predicate, plan
from warpdata.query.expr import And, Compare, Leaf, Not, Or, Unknown

ROWS = 12
TRUTHS = st.lists(st.sampled_from([True, False, None]), min_size=ROWS, max_size=ROWS)
COVERED = st.sets(st.integers(0, ROWS - 1)) | st.just(set(range(ROWS)))
COLUMNS = ("a", "b", "c", "d")


@dataclass
class RandomIndex:
    """Knows the truth of one leaf for the rows that it covers."""

    truth: Sequence[bool | None]
    covered: set[int]
    cost: int = 0
    is_readable: bool = True
    name: str = "random"
    asked: list[str] = field(default_factory=list)

    def estimate(self) -> int:
        return sum(self.truth[row] is True for row in self.covered)

    def cost_rows(self) -> int:
        return self.cost

    def rows(self) -> LeafRows | None:
        self.asked.append(self.name)
        if not self.is_readable:
            return None
        true, null = ({row for row in self.covered if self.truth[row] is wanted} for wanted in (True, None))
        return LeafRows(BitMap(true), BitMap(null), BitMap(self.covered))


def truth_of(predicate: Predicate, truths: Mapping[str, list[bool | None]], row: int) -> bool | None:
    if isinstance(predicate, Not):
        inner = truth_of(predicate.part, truths, row)
        return None if inner is None else not inner
    if isinstance(predicate, And | Or):
        parts = [truth_of(part, truths, row) for part in predicate.parts]
        decisive = isinstance(predicate, Or)
        return decisive if decisive in parts else None if None in parts else not decisive
    if isinstance(predicate, Unknown):
        return truths["unknown"][row]
    assert isinstance(predicate, Compare)
    found = truths[predicate.column][row]
    return None if found is None else found != (predicate.op == "!=")


leaves: st.SearchStrategy[Predicate] = st.builds(
    Compare, st.sampled_from(COLUMNS), st.sampled_from(["=", "!="]), st.just(1)
) | st.just(Unknown())
predicates = st.recursive(
    leaves,
    lambda parts: (
        st.builds(Not, parts)
        | st.builds(And, st.lists(parts, min_size=1, max_size=3).map(tuple))
        | st.builds(Or, st.lists(parts, min_size=1, max_size=3).map(tuple))
    ),
    max_leaves=8,
)


@given(
    predicates,
    st.fixed_dictionaries(dict.fromkeys((*COLUMNS, "unknown"), TRUTHS)),
    st.dictionaries(
        st.sampled_from(COLUMNS),
        st.tuples(COVERED, st.booleans(), st.sampled_from([0, 99])),
    ),
)
def test_bounds_hold_the_rows_that_sql_keeps(
    predicate: Predicate,
    truths: dict[str, list[bool | None]],
    indexes: dict[str, tuple[set[int], bool, int]],
) -> None:
    def lookup(leaf: Leaf) -> RandomIndex | None:
        if leaf.column not in indexes:
            return None
        covered, is_readable, cost = indexes[leaf.column]
        return RandomIndex(truths[leaf.column], covered, cost, is_readable)

    answer = plan(predicate, lookup, ROWS)
    kept = {row for row in range(ROWS) if truth_of(predicate, truths, row) is True}
    assert set(answer.certain) <= kept <= set(answer.possible)
    assert answer.is_exact == (set(answer.certain) == set(answer.possible))
    is_known = all(
        name in indexes and indexes[name] == (set(range(ROWS)), True, 0) for name in COLUMNS
    ) and "Unknown" not in str(predicate)
    if is_known:
        assert answer.is_exact


def test_parts_that_cannot_help_are_not_read() -> None:
    everything = set(range(ROWS))
    known = RandomIndex([True] * 2 + [False] * 10, everything)
    other = RandomIndex([True] * ROWS, everything)

    def lookup(leaf: Leaf) -> RandomIndex | None:
        return {"a": known, "b": other}.get(leaf.column)

    alternative = Or((Compare("b", "=", 1), Unknown()))
    answer = plan(And((Compare("a", "=", 1), alternative)), lookup, ROWS)
    assert list(answer.possible) == [0, 1]
    assert not answer.certain
    assert not other.asked
    assert [(leaf.condition, leaf.index, leaf.reason) for leaf in answer.leaves] == [
        ("a = 1", "random", "answered"),
        ("b = 1", None, "not needed"),
    ]


def test_an_empty_part_ends_the_look_ups() -> None:
    nothing = RandomIndex([False] * ROWS, set(range(ROWS)))
    other = RandomIndex([True] * ROWS, set(range(ROWS)))
    answer = plan(
        And((Compare("b", "=", 1), Compare("a", "=", 1))),
        lambda leaf: nothing if leaf.column == "a" else other,
        ROWS,
    )
    assert not answer.possible
    assert not other.asked


def test_costs_leave_a_leaf_to_the_scan() -> None:
    costly = RandomIndex([True] * ROWS, set(range(ROWS)), cost=ROWS)
    answer = plan(IsNull("a"), lambda _: costly, ROWS)
    assert not answer.uses_indexes
    assert answer.leaves[0].reason == "a scan is faster than index random"
    assert list(answer.possible) == list(range(ROWS))
