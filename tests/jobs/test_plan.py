"""If these fail, a task is too large for a worker, or an item is in two tasks or in none."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from warpdata.jobs import group_by_bytes


@given(st.lists(st.integers(0, 50)), st.integers(1, 100), st.integers(1, 5))
def test_neighbours_are_grouped(sizes: list[int], max_bytes: int, max_items: int) -> None:
    groups = list(group_by_bytes(sizes, lambda size: size, max_bytes=max_bytes, max_items=max_items))
    assert [size for group in groups for size in group] == sizes
    assert all(0 < len(group) <= max_items for group in groups)
    assert all(sum(group) <= max_bytes or len(group) == 1 for group in groups)
    for group, following in itertools.pairwise(groups):
        assert len(group) == max_items or sum(group) + following[0] > max_bytes, "the group could have been larger"
