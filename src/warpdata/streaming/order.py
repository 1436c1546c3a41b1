"""The order of samples and its batches: pure functions of a seed, an epoch, and the sizes of shuffle and batch.

Samples are numbered from 0 and cut into blocks of neighbours. A window takes one random block from every stretch of
the data, which mixes even sorted data, and puts its samples into random order. Randomness thus costs the memory of
one window, and neighbouring bytes are read together. The first window is small, so that training begins early. Any
position is found without computing the ones before it. Every rank makes the same number of steps. Implements "Order"
and "Steps" of docs/specs/streaming.md.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Literal, TypeAlias, get_args

import numpy as np

from warpdata.errors import BadInputError, LimitExceededError
from warpdata.limits import MAX_SHUFFLE_BLOCKS, MAX_SHUFFLE_SIZE
from warpdata.primitives.cached_property import cached_property
from warpdata.primitives.permutation import random_keys

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["BatchSchedule", "Order", "Remainder", "Shuffle", "Span"]

Remainder: TypeAlias = Literal["partial", "pad", "drop"]

Span: TypeAlias = tuple[int, int]
"""Positions [start, stop)."""

_BLOCKS, _SAMPLES, _OPENING = 1, 2, 4


@dataclass(frozen=True, slots=True)
class Shuffle:
    """Sizes of a shuffle: windows of `window_blocks` blocks of `block_rows` samples each.

    The first window has only `opening_blocks`; 0 makes it as large as the others.
    """

    block_rows: int
    window_blocks: int
    opening_blocks: int = 0

    def __post_init__(self) -> None:
        sizes = (self.block_rows, self.window_blocks, self.opening_blocks)
        if any(isinstance(size, bool) or not isinstance(size, int) or size > MAX_SHUFFLE_SIZE for size in sizes):
            raise BadInputError(f"the sizes {sizes!r} of a shuffle are not counts", hint="Use integers below 2**53.")
        if self.block_rows < 1 or self.window_blocks < 1 or self.opening_blocks < 0:
            raise BadInputError(f"{self!r} has a window without samples", hint="Use positive sizes.")

    @property
    def numbers(self) -> list[int]:
        """The numbers as a plan lists them. An opening of 0 is left out."""
        return [self.block_rows, self.window_blocks, *([self.opening_blocks] if self.opening_blocks else [])]


@dataclass(frozen=True)
class Order:
    """The order of `count` samples in one epoch. Without a shuffle, samples keep their order."""

    count: int
    shuffle: Shuffle | None
    seed: int
    epoch: int

    def samples(self, start: int, stop: int) -> NDArray[np.int64]:
        """Return the samples at positions [start, stop). The cost depends on the windows touched only."""
        if not 0 <= start <= stop <= self.count:
            raise BadInputError(f"positions {start}…{stop} are not within {self.count}")
        if self.shuffle is None:
            return np.arange(start, stop, dtype=np.int64)
        parts = []
        while start < stop:
            window = self.window_at(start)
            first = self._starts[window]
            order = self._window_order(window)
            end = min(stop, first + len(order))
            parts.append(order[start - first : end - first])
            start = end
        return np.concatenate(parts) if parts else np.empty(0, np.int64)

    def position_of(self, sample: int) -> int:
        """Return the position of a sample."""
        if not 0 <= sample < self.count:
            raise BadInputError(f"sample {sample} is not within {self.count}")
        if self.shuffle is None:
            return sample
        window = self._window_of_block(sample // self.shuffle.block_rows)
        (found,) = np.nonzero(self._window_order(window) == sample)
        return self._starts[window] + int(found[0])

    def window_at(self, position: int) -> int:
        """Return the window of a position."""
        if self.shuffle is None:
            return 0
        return bisect_right(self._starts, position) - 1

    def window_span(self, window: int) -> tuple[int, int]:
        """Return the positions of a window."""
        if self.shuffle is None:
            return 0, self.count
        return self._starts[window], self._starts[window + 1]

    @cached_property
    def window_count(self) -> int:
        return 1 if self.shuffle is None else len(self._windows)

    def window_blocks(self, window: int) -> NDArray[np.int64]:
        """Return the blocks of a window, ascending."""
        return self._windows[window]

    @property
    def _block_count(self) -> int:
        assert self.shuffle is not None, "an order without a shuffle has no blocks"
        blocks = -(-self.count // self.shuffle.block_rows)
        if blocks > MAX_SHUFFLE_BLOCKS:
            raise LimitExceededError(
                f"a shuffle of {self.count:,} samples in blocks of {self.shuffle.block_rows:,} has {blocks:,} blocks; "
                f"the limit is {MAX_SHUFFLE_BLOCKS:,}",
                hint="Use a Shuffle with more block_rows.",
            )
        return blocks

    @cached_property
    def _grid(self) -> NDArray[np.int64]:
        """One row per stretch, with as many blocks as there are windows. Column w has the block of window w.

        Numbers beyond the last block fill the last stretch.
        """
        assert self.shuffle is not None
        width = max(1, -(-self._block_count // self.shuffle.window_blocks))
        blocks = np.arange(-(-self._block_count // width) * width, dtype=np.int64)
        keys = random_keys(blocks, self.seed, self.epoch, _BLOCKS).reshape(-1, width)
        return np.take_along_axis(blocks.reshape(-1, width), np.argsort(keys, axis=1, kind="stable"), axis=1)

    @cached_property
    def _windows(self) -> list[NDArray[np.int64]]:
        """The blocks of each window. A shuffle with an opening cuts the first window of the grid in two."""
        assert self.shuffle is not None
        windows = [column[column < self._block_count] for column in self._grid.T]
        count = self.shuffle.opening_blocks
        if not 0 < count < len(windows[0]):
            return windows
        keys = random_keys(windows[0], self.seed, self.epoch, _OPENING)
        borders = (np.arange(count + 1) * len(windows[0]) // count).tolist()
        chosen = [low + int(np.argmin(keys[low:high])) for low, high in pairwise(borders)]
        return [windows[0][chosen], np.delete(windows[0], chosen), *windows[1:]]

    @cached_property
    def _starts(self) -> list[int]:
        """The first position of each window, and the end of the last one."""
        assert self.shuffle is not None
        rows = min(self.shuffle.block_rows, self.count)
        lengths = [int(np.minimum(self.count - blocks * rows, rows).sum()) for blocks in self._windows]
        return list(accumulate(lengths, initial=0))

    def _window_of_block(self, block: int) -> int:
        (window,) = (int(found) for found in np.flatnonzero(self._grid[block // self._grid.shape[1]] == block))
        if len(self._windows) == self._grid.shape[1]:
            return window
        return 0 if window == 0 and block in self._windows[0] else window + 1

    def _window_order(self, window: int) -> NDArray[np.int64]:
        cached = self.__dict__.get("_window")
        if cached is not None and cached[0] == window:
            known: NDArray[np.int64] = cached[1]
            return known
        assert self.shuffle is not None
        rows = min(self.shuffle.block_rows, self.count)  # a larger block is one of all samples
        starts = self.window_blocks(window) * rows
        samples = (starts[:, None] + np.arange(rows)).ravel()
        samples = samples[samples < self.count]
        keys = random_keys(samples, self.seed, self.epoch, _SAMPLES)
        order = samples[np.argsort(keys, kind="stable")]
        self.__dict__["_window"] = (window, order)
        return order


@dataclass(frozen=True, slots=True)
class BatchSchedule:
    """Batches of `batch_size` samples for each of `world_size` ranks, over `count` positions from `begin` on.

    A global batch is what all ranks take at one step. `remainder` decides about an incomplete last one: split
    evenly, perhaps with an empty batch for some ranks ("partial"), filled up from the beginning of the epoch
    ("pad"), or left out ("drop").
    """

    count: int
    batch_size: int
    world_size: int = 1
    remainder: Remainder = "partial"
    begin: int = 0

    def __post_init__(self) -> None:
        if self.batch_size < 1 or self.world_size < 1:
            raise BadInputError(f"batch_size={self.batch_size} and world_size={self.world_size} must be positive")
        if self.remainder not in get_args(Remainder):
            hint = f"Use {', '.join(get_args(Remainder))}."
            raise BadInputError(f"remainder={self.remainder!r} is not known", hint=hint)
        if not 0 <= self.begin <= self.count:
            raise BadInputError(f"the schedule begins at {self.begin}, but the epoch has {self.count} samples")

    @property
    def global_batch(self) -> int:
        return self.batch_size * self.world_size

    def __len__(self) -> int:
        full, rest = divmod(self.count - self.begin, self.global_batch)
        return full + (1 if rest and self.remainder != "drop" else 0)

    def global_span(self, step: int) -> Span:
        """Return the positions of a global batch, without padding."""
        if not 0 <= step < len(self):
            raise BadInputError(f"step {step} is not within {len(self)}")
        first = self.begin + step * self.global_batch
        return first, min(self.count, first + self.global_batch)

    def done_after(self, step: int) -> int:
        """Return the number of positions that all ranks have taken after a step."""
        return self.global_span(step)[1]

    def spans(self, step: int, rank: int) -> Iterator[Span]:
        """Yield the positions that one rank takes: one span, or several where padding wraps around."""
        if not 0 <= rank < self.world_size:
            raise BadInputError(f"rank {rank} is not within {self.world_size}")
        first, last = self.global_span(step)
        size = last - first
        if size == self.global_batch:
            yield first + rank * self.batch_size, first + (rank + 1) * self.batch_size
        elif self.remainder == "pad":
            yield from self._padded(first + rank * self.batch_size, self.batch_size)
        else:
            yield self._shared(first, size, rank)

    def owned_positions(self, rank: int, worker: int, workers: int, start: int, stop: int) -> NDArray[np.int64]:
        """Return the positions within [start, stop) that one worker of a rank takes, without padding."""
        positions = np.arange(max(start, self.begin), min(stop, self.count), dtype=np.int64)
        steps, within = np.divmod(positions - self.begin, self.global_batch)
        is_owned = within // self.batch_size == rank
        if self.remainder != "pad" and (rest := (self.count - self.begin) % self.global_batch):
            low, high = self._shared(self.count - rest, rest, rank) if self.remainder == "partial" else (0, 0)
            is_last = positions >= self.count - rest
            is_owned = np.where(is_last, (low <= positions) & (positions < high), is_owned)
        owned: NDArray[np.int64] = positions[is_owned & (steps % workers == worker)]
        return owned

    def step_of(self, position: int) -> tuple[int, int]:
        """Return the step and the rank that take a position, without padding."""
        if not self.begin <= position < self.count:
            raise BadInputError(f"position {position} is not within {self.begin}…{self.count}")
        step = (position - self.begin) // self.global_batch
        for rank in range(self.world_size):
            for start, stop in self.spans(step, rank):
                if start <= position < stop:
                    return step, rank
        raise AssertionError("every position belongs to a rank")

    def _shared(self, first: int, size: int, rank: int) -> Span:
        even, more = divmod(size, self.world_size)
        start = first + rank * even + min(rank, more)
        return start, start + even + (1 if rank < more else 0)

    def _padded(self, start: int, size: int) -> Iterator[Span]:
        while size:
            at = start % self.count
            taken = min(size, self.count - at)
            yield at, at + taken
            start, size = start + taken, size - taken
