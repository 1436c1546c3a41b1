"""Assignment of positions to ranks and steps. Pure.

Every rank makes the same number of steps, whatever remains at the end of an epoch. Implements "Steps" of
docs/specs/streaming.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias, get_args

import numpy as np

from warpdata.errors import BadInputError

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["REMAINDERS", "BatchSchedule", "Remainder", "Span"]

Remainder: TypeAlias = Literal["partial", "pad", "drop"]
REMAINDERS: tuple[str, ...] = get_args(Remainder)

Span: TypeAlias = tuple[int, int]
"""Positions [start, stop)."""


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
        if self.remainder not in REMAINDERS:
            raise BadInputError(f"remainder={self.remainder!r} is not known", hint=f"Use {', '.join(REMAINDERS)}.")
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
