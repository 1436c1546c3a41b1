"""If this fails, a rank reads a row twice, skips a row, or idles while other ranks work."""

from __future__ import annotations

from itertools import accumulate, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warpdata.errors import BadInputError
from warpdata.kinds.tables.assignment import assign_rows, check_rank, snap


@given(st.lists(st.integers(0, 60), min_size=1, max_size=30), st.integers(1, 64))
def test_ranges_are_complete_disjoint_and_nearly_even(sizes: list[int], world: int) -> None:
    total = sum(sizes)
    borders = [0, *accumulate(sizes)]
    parts = [assign_rows(total, rank, world, lambda row: borders) for rank in range(world)]
    assert parts[0].start == 0
    assert parts[-1].stop == total
    for left, right in pairwise(parts):
        assert left.stop == right.start
    lengths = [part.stop - part.start for part in parts]
    ideal = total / world
    assert all(abs(length - ideal) <= ideal / 4 + 1 for length in lengths)


@given(st.integers(1, 500), st.integers(1, 8))
def test_no_rank_is_idle_while_another_has_two_row_groups(rows_per_group: int, groups: int) -> None:
    total = rows_per_group * groups
    borders = [n * rows_per_group for n in range(groups + 1)]
    for world in range(1, total + 1, max(1, total // 7)):
        lengths = []
        for rank in range(world):
            part = assign_rows(total, rank, world, lambda row: borders)
            lengths.append(part.stop - part.start)
        if max(lengths) >= 2 * rows_per_group:
            assert min(lengths) > 0


def test_cuts_move_onto_close_borders() -> None:
    borders = [0, 1000, 2010, 3000, 4000]
    parts = [assign_rows(4000, rank, 4, lambda row: borders) for rank in range(4)]
    assert [part.start for part in parts] == [0, 1000, 2010, 3000]


def test_snap_prefers_the_lower_of_two_equally_near() -> None:
    assert snap(10, [8, 12], 5) == 8
    assert snap(10, [3, 17], 5) == 10
    assert snap(10, [], 5) == 10


@pytest.mark.parametrize("shard", [(0, 0), (2, 2), (-1, 3), (True, 2), (0.0, 2), (1,), (0, 1, 2)])
def test_a_rank_outside_its_world_is_refused(shard: tuple[int, int]) -> None:
    with pytest.raises(BadInputError, match="world_size"):
        check_rank(shard)
