"""The rows of many windows in one array for each key, so that a batch is taken from the array at once.

Adjacent windows share steps, so a block of windows has few rows, and gathering them is cheap compared to copying the
windows. The array position of each row is known before any row is read.
"""

from __future__ import annotations

import ctypes
import math
import weakref
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from warpdata.formats.wshard import Array
from warpdata.kinds.episodes.window_spec import WindowIndex, WindowKey
from warpdata.limits import KIB, MIB
from warpdata.streaming import Order

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["BlockGroups", "BufferPool", "EpisodeSlice", "GatherPlan", "RowSpan", "WindowGroup", "step_intervals"]

_POOLED_BYTES = 512 * MIB
"""Bound on the free buffers of one size."""
_MIN_POOLED_BYTES = 256 * KIB


class BlockGroups:
    """The blocks of windows that are loaded together: one shuffle window, or one block without a shuffle."""

    def __init__(self, order: Order, block_rows: int) -> None:
        self._order = order
        self._block_rows = block_rows

    @property
    def max_blocks(self) -> int:
        """Bound on the blocks of a group."""
        shuffle = self._order.shuffle
        return 1 if shuffle is None else min(shuffle.window_blocks, -(-self._order.count // self._block_rows))

    def group_at(self, position: int) -> int:
        return position // self._block_rows if self._order.shuffle is None else self._order.window_at(position)

    def runs(self, start: int, stop: int) -> Iterator[tuple[int, int]]:
        """Split the positions [start, stop) of the order into (group, number of positions)."""
        while start < stop:
            group = self.group_at(start)
            is_block = self._order.shuffle is None
            end = min(stop, (group + 1) * self._block_rows if is_block else self._order.window_span(group)[1])
            yield group, end - start
            start = end

    def blocks(self, group: int) -> Sequence[int]:
        """Return the blocks of a group; none after the last group."""
        if self._order.shuffle is None:
            return [group] if group * self._block_rows < self._order.count else []
        blocks: Sequence[int] = self._order.window_blocks(group).tolist() if group < self._order.window_count else []
        return blocks


class RowSpan(NamedTuple):
    """The rows [first, last) of a channel, which begin at `begin` in the array of their key."""

    first: int
    last: int
    begin: int


@dataclass(frozen=True, slots=True)
class EpisodeSlice:
    """Windows of one episode with current steps from `low` to `high`, and the rows they need of gathered keys."""

    position: int
    low: int
    high: int
    spans: Mapping[int, Sequence[RowSpan]]


@dataclass(frozen=True)
class GatherPlan:
    """The layout of gathered rows: groups of at most `max_blocks` blocks of `block_rows` windows.

    `formats` has the shape and type of a row, by the position of each gathered key.
    """

    windows: WindowIndex
    block_rows: int
    max_blocks: int
    lengths: NDArray[np.int64]
    formats: Mapping[int, tuple[tuple[int, ...], np.dtype[Any]]]
    pool: BufferPool

    def split_block(self, block: int) -> list[tuple[int, int, int]]:
        rows = self.block_rows
        return self.windows.split_by_episode(block * rows, min((block + 1) * rows, self.windows.count))

    def allocate(self, at: int, row_count: int) -> Array:
        """Allocate the array of a key. Most groups get the same capacity, so that they reuse the same memory."""
        shape, dtype = self.formats[at]
        spec = self.windows.spec
        steps = spec.keys[at].step_count
        typical = self.max_blocks * (self.block_rows * min(spec.stride, steps) + 2 * steps)
        return self.pool.array((max(row_count, typical), *shape), dtype)[:row_count]


class WindowGroup:
    """Blocks of windows that are loaded together. Blocks must be loaded before their windows are taken."""

    def __init__(self, plan: GatherPlan, blocks: Sequence[int]) -> None:
        self._plan = plan
        self._blocks = np.sort(np.asarray(blocks, np.int64))
        self._shifts = {at: np.zeros(len(blocks) * plan.block_rows, np.int64) for at in plan.formats}
        sizes = dict.fromkeys(plan.formats, 0)
        self.slices = {
            block: self._lay_out(number * plan.block_rows, block, sizes)
            for number, block in enumerate(self._blocks.tolist())
        }
        self.arrays = {at: plan.allocate(at, row_count) for at, row_count in sizes.items()}

    def slots(self, samples: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the position of each of these windows in the group."""
        rows = self._plan.block_rows
        found: NDArray[np.int64] = np.searchsorted(self._blocks, samples // rows) * rows + samples % rows
        return found

    def take(
        self, at: int, slots: NDArray[np.int64], steps: NDArray[np.int64], last: NDArray[np.int64], out: Array
    ) -> None:
        """Write windows of one key. Padding repeats the first step of the episode, or its `last`."""
        spec, shifts = self._plan.windows.spec, self._shifts[at][slots]
        offsets = np.arange(spec.keys[at].start, spec.keys[at].stop)
        if spec.pad is None:
            wanted = np.add.outer(steps + shifts, offsets)
        else:
            wanted = np.add.outer(steps, offsets)
            np.maximum(np.minimum(wanted, last[:, None], out=wanted), 0, out=wanted)
            wanted += shifts[:, None]
        # All indices are valid. The mode "raise" would copy the output once more.
        np.take(self.arrays[at], wanted, axis=0, out=out, mode="clip")

    def _lay_out(self, slot: int, block: int, sizes: dict[int, int]) -> list[EpisodeSlice]:
        """Assign positions to the rows of a block, after the `sizes` rows of each key. Its windows begin at `slot`."""
        out = []
        spec = self._plan.windows.spec
        for position, low, high in self._plan.split_block(block):
            steps, length = range(low, high + 1, spec.stride), int(self._plan.lengths[position])
            spans: dict[int, list[RowSpan]] = {}
            for at in sizes:
                spans[at] = found = []
                for first, last in step_intervals(spec.keys[at], steps, length):
                    found.append(RowSpan(first, last + 1, sizes[at]))
                    sizes[at] += last + 1 - first
                self._shifts[at][slot : slot + len(steps)] = _row_shifts(found, spec.keys[at], steps, length)
            out.append(EpisodeSlice(position, low, high, spans))
            slot += len(steps)
        return out


class BufferPool:
    """Arrays whose memory is reused when the last reference to an array ends. Safe to share between threads.

    The system maps fresh memory page by page, which takes as long as filling it. Memory may return at any time, even
    in the middle of a method of this class, so there is no lock, and every step is atomic.
    """

    def __init__(self) -> None:
        self._free: dict[int, list[Array]] = {}

    def array(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        """Return an uninitialized array."""
        size = math.prod(shape) * dtype.itemsize
        if size < _MIN_POOLED_BYTES:
            return np.empty(shape, dtype)
        grain = 1 << (size.bit_length() - 4)
        capacity = -(-size // grain) * grain  # rounded, so that similar sizes share memory
        try:
            memory = self._free[capacity].pop()
        except (KeyError, IndexError):
            memory = np.empty(capacity, np.uint8)  # NumPy asks for huge pages
        lease = (ctypes.c_ubyte * size).from_buffer(memory.data)
        # Every view of the array, direct or not, keeps the lease alive.
        weakref.finalize(lease, self._release, memory).atexit = False
        return np.frombuffer(memoryview(lease), dtype).reshape(shape)

    def _release(self, memory: Array) -> None:
        free = self._free.setdefault(len(memory), [])
        if (len(free) + 1) * len(memory) <= _POOLED_BYTES:
            free.append(memory)


def step_intervals(key: WindowKey, steps: range, length: int) -> list[tuple[int, int]]:
    """Return the steps that windows need of a channel, both ends included: one interval, or one for each window."""
    if steps.step <= key.step_count:
        return [(_clip(steps[0] + key.start, length), _clip(steps[-1] + key.stop - 1, length))]
    out: list[tuple[int, int]] = []
    for step in steps:
        low, high = _clip(step + key.start, length), _clip(step + key.stop - 1, length)
        if out and low <= out[-1][1]:
            out[-1] = (out[-1][0], max(high, out[-1][1]))
        else:
            out.append((low, high))
    return out


def _row_shifts(spans: Sequence[RowSpan], key: WindowKey, steps: range, length: int) -> NDArray[np.int64] | int:
    """Return for each window the distance from row number to array position, which is constant within a span."""
    if len(spans) == 1:
        return spans[0].begin - spans[0].first
    rows = np.clip(np.asarray(steps) + key.start, 0, length - 1)
    firsts = np.array([span.first for span in spans])
    shifts: NDArray[np.int64] = np.array([span.begin for span in spans]) - firsts
    found: NDArray[np.int64] = shifts[np.searchsorted(firsts, rows, side="right") - 1]
    return found


def _clip(step: int, length: int) -> int:
    return min(max(step, 0), length - 1)
