"""If this fails, an epoch loses or repeats samples, or the order of an identity changes between releases."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from warpdata.errors import BadInputError
from warpdata.streaming.order import Order, Shuffle

orders = st.builds(
    Order,
    count=st.integers(0, 500),
    shuffle=st.none()
    | st.builds(
        Shuffle, block_rows=st.integers(1, 40), window_blocks=st.integers(1, 20), opening_blocks=st.integers(0, 9)
    ),
    seed=st.integers(-(2**70), 2**70),
    epoch=st.integers(0, 2**40),
)


@given(orders)
def test_every_sample_comes_exactly_once(order: Order) -> None:
    assert sorted(order.samples(0, order.count).tolist()) == list(range(order.count))


@given(orders, st.data())
def test_any_span_is_computed_alone(order: Order, data: st.DataObject) -> None:
    whole = order.samples(0, order.count)
    start = data.draw(st.integers(0, order.count))
    stop = data.draw(st.integers(start, order.count))
    again = Order(order.count, order.shuffle, order.seed, order.epoch)
    np.testing.assert_array_equal(again.samples(start, stop), whole[start:stop])
    if order.count:
        position = data.draw(st.integers(0, order.count - 1))
        assert again.position_of(int(whole[position])) == position


@given(orders)
def test_windows_tile_the_order_and_hold_their_blocks(order: Order) -> None:
    end = 0
    for window in range(order.window_count):
        start, stop = order.window_span(window)
        assert start == end
        end = stop
        if order.shuffle is None:
            continue
        blocks = order.window_blocks(window)
        assert len(blocks) <= order.shuffle.window_blocks
        assert sorted(blocks.tolist()) == blocks.tolist()
        inside = {sample // order.shuffle.block_rows for sample in order.samples(start, stop).tolist()}
        assert inside == set(blocks.tolist())
    assert end == order.count


def test_seeds_and_epochs_change_the_order() -> None:
    def first(seed: int, epoch: int) -> tuple[int, ...]:
        return tuple(Order(1000, Shuffle(10, 20), seed, epoch).samples(0, 100).tolist())

    assert len({first(seed, epoch) for seed in range(5) for epoch in range(5)}) == 25
    assert first(3, 1) == first(3, 1)
    assert first(2**64, 0) == first(0, 0), "a seed counts modulo 2⁶⁴"


def test_the_order_equals_the_recorded_one() -> None:
    """Runs of older releases resume with this one, so the list never changes."""
    assert Order(23, Shuffle(3, 4), seed=7, epoch=2).samples(0, 23).tolist() == RECORDED


def test_an_order_with_an_opening_equals_the_recorded_one() -> None:
    order = Order(23, Shuffle(2, 4, opening_blocks=2), seed=7, epoch=2)
    assert order.samples(0, 23).tolist() == OPENED
    assert order.window_span(0) == (0, 4), "two blocks of two"


OPENED = [13, 10, 12, 11, 5, 19, 4, 18, 0, 6, 22, 1, 14, 7, 15, 16, 20, 3, 21, 17, 8, 2, 9]

RECORDED = [19, 16, 20, 0, 18, 17, 6, 8, 1, 2, 7, 15, 5, 13, 3, 21, 10, 4, 12, 22, 11, 14, 9]


@pytest.mark.parametrize("classes", [2, 10, 100])
def test_sorted_data_mixes_like_a_full_shuffle(classes: int) -> None:
    """Windows hold a quarter of the data, in blocks of a hundred neighbours."""
    count = 40_000
    labels = np.arange(count) * classes // count
    ideal = _entropy(labels[np.random.default_rng(0).permutation(count)], classes)
    for opening in (0, 8):
        ours = _entropy(labels[Order(count, Shuffle(100, 100, opening), 1, 0).samples(0, count)], classes)
        assert ours >= 0.98 * ideal


def _entropy(labels: np.ndarray[tuple[int], np.dtype[np.int64]], classes: int, batch: int = 256) -> float:
    """Return the mean entropy of the labels of a batch."""
    found = []
    for start in range(0, len(labels) - batch + 1, batch):
        shares = np.bincount(labels[start : start + batch], minlength=classes) / batch
        found.append(-np.sum(shares * np.log(shares, where=shares > 0, out=np.zeros(classes))))
    return float(np.mean(found))


def test_positions_and_samples_out_of_range_are_refused() -> None:
    order = Order(10, Shuffle(2, 2), 0, 0)
    with pytest.raises(BadInputError, match="positions 3…11 are not within 10"):
        order.samples(3, 11)
    with pytest.raises(BadInputError, match="sample 10 is not within 10"):
        order.position_of(10)
    with pytest.raises(BadInputError, match="window without samples"):
        Shuffle(0, 1)
