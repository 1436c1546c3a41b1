"""If this fails, two forms of the same row selection disagree, or a sample differs between machines."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyroaring import BitMap

from warpdata.errors import BadInputError
from warpdata.primitives.permutation import permute
from warpdata.repository.rows import RowSelection

numbers = st.sets(st.integers(0, 60), max_size=40)


def forms(rows: set[int]) -> list[RowSelection]:
    """Every form of one selection."""
    ordered = sorted(rows)
    made = [RowSelection(numbers=np.array(ordered, np.int64)), RowSelection.of_bitmap(BitMap(ordered))]
    made.append(RowSelection.of_numbers(np.array(ordered, np.int64)))
    return made


@settings(max_examples=60)
@given(numbers, numbers, st.integers(0, 60), st.integers(0, 20), st.integers(0, 20))
def test_all_forms_are_sets(one: set[int], two: set[int], row: int, low: int, size: int) -> None:
    span = set(range(low, low + size))
    others = [*((two, form) for form in forms(two)), (span, RowSelection.all_rows(size, low))]
    for mine in [*forms(one)]:
        assert (len(mine), row in mine, mine.rank(row)) == (len(one), row in one, len([n for n in one if n < row]))
        assert mine.numbers.tolist() == sorted(one)
        assert [n for chunk in mine.chunks(7) for n in chunk.tolist()] == sorted(one)
        assert mine.between(low, low + size).numbers.tolist() == sorted(one & span)
        assert mine.slice(low, low + size).numbers.tolist() == sorted(one)[low : low + size]
        ranks = np.arange(len(one))[::-1]
        assert mine.select(ranks).tolist() == sorted(one, reverse=True)
        for rows, other in others:
            for a, b, left, right in ((mine, other, one, rows), (other, mine, rows, one)):
                assert (a & b).numbers.tolist() == sorted(left & right)
                assert (a | b).numbers.tolist() == sorted(left | right)
                assert (a - b).numbers.tolist() == sorted(left - right)
            assert (mine == other) == (one == rows)


def test_a_row_that_is_not_selected_has_no_rank() -> None:
    with pytest.raises(BadInputError, match="row 3 is not selected"):
        RowSelection.of_numbers(np.array([1, 5])).rank_of(3)


@settings(max_examples=60)
@given(st.integers(1, 3000), st.integers(0, 2**70), st.integers(0, 9))
def test_a_permutation_has_every_number_once(count: int, seed: int, stream: int) -> None:
    assert sorted(permute(np.arange(count), count, seed, stream).tolist()) == list(range(count))


def test_permutations_never_change() -> None:
    """Samples of published versions depend on these numbers."""
    assert permute(np.arange(6), 1_000_000, 1).tolist() == GOLDEN
    slow = [_naive(position, 1_000_000, 1, 0) for position in range(6)]
    assert slow == GOLDEN


def _naive(number: int, count: int, seed: int, stream: int) -> int:
    """Follow "Permutation" of docs/specs/tables.md in plain integers."""
    golden, word = 0x9E3779B97F4A7C15, 2**64

    def mix(x: int) -> int:
        x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9 % word
        x = (x ^ (x >> 27)) * 0x94D049BB133111EB % word
        return x ^ (x >> 31)

    half = -(-(count - 1).bit_length() // 2)
    while True:
        left, right = number >> half, number & ((1 << half) - 1)
        for turn in range(4):
            salt = seed % word
            for step in (4 * stream + turn, 5):
                salt = mix((salt + golden * (step + 1)) % word)
            key = mix(mix((right * golden + salt) % word) ^ salt)
            left, right = right, left ^ (key & ((1 << half) - 1))
        number = left << half | right
        if number < count:
            return number


GOLDEN = [939130, 35841, 79372, 365201, 587893, 402084]
