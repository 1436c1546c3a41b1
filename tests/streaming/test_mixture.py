"""If this fails, a mixture favours a part, or a resumed mixture repeats or skips samples of a part."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from warpdata.errors import BadInputError
from warpdata.streaming.mixture import Mixture

mixtures = st.builds(
    Mixture.of,
    st.lists(st.floats(1e-4, 100), min_size=1, max_size=6),
    st.integers(0, 2**64 - 1),
)


@given(mixtures, st.integers(0, 6000), st.integers(0, 3000))
def test_samples_given_are_known_without_counting(mixture: Mixture, start: int, more: int) -> None:
    everything = mixture.parts(0, start + more)
    assert len(everything) == start + more
    np.testing.assert_array_equal(mixture.parts(start, start + more), everything[start:])
    counted = np.bincount(everything[:start], minlength=len(mixture.weights))
    assert mixture.given_before(start) == tuple(counted.tolist())


@given(mixtures, st.integers(1, 200))
def test_every_round_keeps_the_shares(mixture: Mixture, rounds: int) -> None:
    place = rounds * 1024
    for share, given_count in zip(mixture.weights, mixture.given_before(place), strict=True):
        assert abs(share * place - given_count) <= len(mixture.weights) + 1024 * share


@given(mixtures, st.lists(st.integers(0, 400), min_size=6, max_size=6))
def test_an_epoch_ends_when_a_part_is_exhausted(mixture: Mixture, counts: list[int]) -> None:
    counts = counts[: len(mixture.weights)]
    first = mixture.length(counts, "first_exhausted")
    given_count = mixture.given_before(first)
    assert all(given <= count for given, count in zip(given_count, counts, strict=True))
    after = mixture.given_before(first + 1)
    assert any(given > count for given, count in zip(after, counts, strict=True))
    last = mixture.given_before(mixture.length(counts, "all_exhausted"))
    assert all(given >= count for given, count in zip(last, counts, strict=True))


def test_weights_must_be_positive() -> None:
    with pytest.raises(BadInputError, match="not all positive"):
        Mixture.of([0.5, 0.0], 1)
    with pytest.raises(BadInputError, match="not all positive"):
        Mixture.of([], 1)
