"""If these fail, a read returns the bytes of another range, or a cache believes it holds bytes it never fetched."""

from __future__ import annotations

import itertools
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from warpdata.errors import BadInputError
from warpdata.primitives.ranges import ByteRange, RangeSet, coalesce, split_range, split_reply

SIZE = 60
DATA = bytes(range(SIZE))

spans = st.tuples(st.integers(0, SIZE), st.integers(0, SIZE)).map(lambda pair: ByteRange(*pair))
ascending = st.tuples(st.integers(0, SIZE), st.integers(0, SIZE)).map(lambda pair: ByteRange(*sorted(pair)))
span_lists = st.lists(spans, max_size=12)


def integers(ranges: RangeSet | list[ByteRange]) -> set[int]:
    return {byte for one in ranges for byte in range(one.start, one.end)}


def is_minimal(ranges: list[ByteRange]) -> bool:
    apart = all(before.end < after.start for before, after in pairwise(ranges))
    return apart and all(one.size_bytes > 0 for one in ranges)


class RangeSetMachine(RuleBasedStateMachine):
    """A range set against a set of integers."""

    def __init__(self) -> None:
        super().__init__()
        self.ranges = RangeSet()
        self.model: set[int] = set()

    @rule(span=spans)
    def add(self, span: ByteRange) -> None:
        self.ranges.add(span)
        self.model |= set(range(*span))

    @rule(span=spans)
    def discard(self, span: ByteRange) -> None:
        self.ranges.discard(span)
        self.model -= set(range(*span))

    @rule(span=spans)
    def query(self, span: ByteRange) -> None:
        wanted = set(range(*span))
        assert self.ranges.covers(span) == (wanted <= self.model)
        assert self.ranges.overlaps(span) == bool(wanted & self.model)
        assert integers(self.ranges.missing(span)) == wanted - self.model
        assert integers(self.ranges.present(span)) == wanted & self.model
        assert is_minimal(self.ranges.missing(span))
        assert is_minimal(self.ranges.present(span))

    @invariant()
    def equals_the_model(self) -> None:
        assert integers(self.ranges) == self.model
        assert is_minimal(list(self.ranges))
        assert self.ranges.size_bytes == len(self.model)
        assert self.ranges.prefix_end() == next(at for at in range(SIZE + 1) if at not in self.model)
        assert self.ranges == RangeSet(ByteRange(at, at + 1) for at in self.model)


TestRangeSet = RangeSetMachine.TestCase


@given(span_lists, span_lists)
def test_operators_are_those_of_sets(left: list[ByteRange], right: list[ByteRange]) -> None:
    one, other = RangeSet(left), RangeSet(right)
    for result, expected in [
        (one | other, integers(one) | integers(other)),
        (one & other, integers(one) & integers(other)),
        (one - other, integers(one) - integers(other)),
    ]:
        assert integers(result) == expected
        assert is_minimal(list(result))
        assert result.size_bytes == len(expected)


def test_plain_pairs_are_ranges() -> None:
    assert list(RangeSet([(5, 7), (0, 2), (2, 3), (4, 4)])) == [(0, 3), (5, 7)]
    assert len(RangeSet([(5, 7), (0, 2)])) == 2
    assert not RangeSet([(3, 3)])


@given(st.lists(ascending, max_size=12), st.integers(0, 10), st.none() | st.integers(1, 30))
def test_coalesced_requests_serve_every_range(wanted: list[ByteRange], gap: int, most: int | None) -> None:
    requests = coalesce(wanted, gap, max_bytes=most)
    replies = [memoryview(DATA)[request.span.start : request.span.end] for request in requests]
    assert [bytes(part) for part in split_reply(wanted, requests, replies)] == [DATA[s:e] for s, e in wanted]
    served = sorted(index for request in requests for index in request.serves)
    assert served == [index for index, span in enumerate(wanted) if span.size_bytes]
    for request in requests:
        assert most is None or request.span.size_bytes <= max(most, *(wanted[i].size_bytes for i in request.serves))
    if most is None:
        assert all(after.span.start - before.span.end > gap for before, after in pairwise(requests))


def test_ranges_that_descend_are_refused() -> None:
    for span in (ByteRange(3, 2), ByteRange(-1, 2)):
        with pytest.raises(BadInputError, match="not ascending"):
            coalesce([ByteRange(0, 1), span], 0)


@given(st.integers(0, 10**6), st.integers(0, 10**4), st.integers(1, 3000))
def test_parts_of_a_range_cover_it_once_and_are_nearly_equal(start: int, size: int, most: int) -> None:
    parts = split_range(ByteRange(start, start + size), most)
    assert parts[0].start == start
    assert parts[-1].end == start + size
    assert all(before.end == after.start for before, after in itertools.pairwise(parts))
    sizes = [part.size_bytes for part in parts]
    assert max(sizes) <= most
    assert max(sizes) - min(sizes) <= 1
    assert len(parts) == max(1, -(-size // most))
