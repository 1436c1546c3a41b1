"""If this fails, work on many files loses a result, mixes them up, goes on after a failure, or hides one."""

from __future__ import annotations

import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warpdata.publish.upload import in_parallel


@given(st.lists(st.integers(), max_size=50), st.integers(1, 8))
def test_results_come_in_the_order_of_the_items(items: list[int], workers: int) -> None:
    assert in_parallel(lambda item: item * 3, iter(items), workers) == [item * 3 for item in items]


def test_as_many_at_once_as_there_are_workers() -> None:
    together = threading.Barrier(4, timeout=10)
    assert len(in_parallel(lambda _: together.wait(), range(8), 4)) == 8


@given(st.sets(st.integers(0, 29), min_size=1), st.integers(1, 6))
def test_a_failure_stops_what_has_not_begun(bad: set[int], workers: int) -> None:
    begun: list[int] = []

    def work(item: int) -> None:
        begun.append(item)
        if item in bad:
            raise ValueError(f"item {item}")

    with pytest.raises(ValueError, match="item") as caught:
        in_parallel(work, range(30), workers)
    assert int(str(caught.value).split()[1]) in bad & set(begun)
    assert begun.count(max(begun)) == 1
    if workers == 1:
        assert begun == list(range(min(bad) + 1))
        assert str(caught.value) == f"item {min(bad)}"
