"""If these fail, a read may return another column's bytes, or fetch far more than was asked for."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warpdata.errors import BadInputError
from warpdata.limits import COALESCE_GAP_BYTES
from warpdata.storage import ByteRange, RangeRequest, coalesce, split_reply

SIZE = 400
DATA = bytes(number % 251 for number in range(SIZE))

spans_of_data = st.lists(
    st.tuples(st.integers(0, SIZE), st.integers(0, 60)).map(lambda at: ByteRange(at[0], min(at[0] + at[1], SIZE))),
    max_size=25,
)
gaps = st.integers(0, 50)


@given(spans_of_data, gaps)
def test_split_replies_are_the_wanted_ranges(spans: list[ByteRange], gap: int) -> None:
    requests = coalesce(spans, gap)
    replies = [memoryview(DATA)[request.span.start : request.span.end] for request in requests]
    assert [bytes(part) for part in split_reply(spans, requests, replies)] == [
        DATA[span.start : span.end] for span in spans
    ]


@given(spans_of_data, gaps)
def test_requests_are_sorted_disjoint_and_more_than_a_gap_apart(spans: list[ByteRange], gap: int) -> None:
    for before, after in pairwise(coalesce(spans, gap)):
        assert after.span.start - before.span.end > gap


@given(spans_of_data, gaps)
def test_every_range_is_served_once_and_whole(spans: list[ByteRange], gap: int) -> None:
    requests = coalesce(spans, gap)
    assert sorted(index for request in requests for index in request.serves) == [
        index for index, span in enumerate(spans) if span.size_bytes
    ]
    for request in requests:
        for index in request.serves:
            assert request.span.start <= spans[index].start <= spans[index].end <= request.span.end


@given(spans_of_data, gaps)
def test_nothing_is_fetched_but_ranges_and_small_gaps(spans: list[ByteRange], gap: int) -> None:
    wanted = {byte for span in spans for byte in range(span.start, span.end)}
    for request in coalesce(spans, gap):
        assert request.span.start in wanted
        assert request.span.end - 1 in wanted
        run = 0
        for byte in range(request.span.start, request.span.end):
            run = 0 if byte in wanted else run + 1
            assert run <= gap


@given(spans_of_data.flatmap(lambda spans: st.tuples(st.just(spans), st.permutations(spans))), gaps)
def test_the_order_of_ranges_changes_no_request(both: tuple[list[ByteRange], list[ByteRange]], gap: int) -> None:
    one, other = both
    assert [request.span for request in coalesce(one, gap)] == [request.span for request in coalesce(other, gap)]


def test_split_replies_are_views() -> None:
    spans = [ByteRange(0, 4), ByteRange(2, 6)]
    reply = memoryview(DATA)[:6]
    assert all(part.obj is DATA for part in split_reply(spans, coalesce(spans, 0), [reply]))


def test_a_gap_of_exactly_the_limit_is_merged() -> None:
    near, far = ByteRange(10 + COALESCE_GAP_BYTES, 11 + COALESCE_GAP_BYTES), ByteRange(0, 10)
    assert coalesce([near, far], COALESCE_GAP_BYTES) == [RangeRequest(ByteRange(0, near.end), (1, 0))]
    beyond = ByteRange(near.start + 1, near.end + 1)
    assert coalesce([beyond, far], COALESCE_GAP_BYTES) == [RangeRequest(far, (1,)), RangeRequest(beyond, (0,))]


@pytest.mark.parametrize(("start", "end"), [(5, 4), (-1, 3), (-5, -2)])
def test_a_descending_range_is_refused(start: int, end: int) -> None:
    with pytest.raises(BadInputError, match=f"{start}…{end}"):
        coalesce([ByteRange(0, 1), ByteRange(start, end)], 0)


def test_a_missing_reply_is_an_error() -> None:
    spans = [ByteRange(0, 4)]
    with pytest.raises(ValueError, match="zip"):
        split_reply(spans, coalesce(spans, 0), [])
