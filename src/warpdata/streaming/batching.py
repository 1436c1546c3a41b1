"""Which places of the order each rank takes at each step. Pure.

Every rank makes the same number of steps, whatever is left over at the end. Implements "Steps" of
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

__all__ = ["REMAINDERS", "Remainder", "Span", "Steps"]

Remainder: TypeAlias = Literal["partial", "pad", "drop"]
REMAINDERS: tuple[str, ...] = get_args(Remainder)

Span: TypeAlias = tuple[int, int]
"""Places from the first up to, not including, the second."""


@dataclass(frozen=True, slots=True)
class Steps:
    """`count` places shared by `world_size` ranks, `batch_size` each; the first `begin` of them are done.

    A global batch is what all ranks take at one step. What is left over at the end is split evenly
    (`partial`: nothing lost or repeated, perhaps an empty batch for some), filled up from the beginning of
    the epoch (`pad`), or left out (`drop`).
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
            raise BadInputError(f"{self.begin} of {self.count} samples can not be done")

    @property
    def global_batch(self) -> int:
        return self.batch_size * self.world_size

    def __len__(self) -> int:
        full, rest = divmod(self.count - self.begin, self.global_batch)
        return full + (1 if rest and self.remainder != "drop" else 0)

    def global_span(self, step: int) -> Span:
        """The places of a global batch, without padding."""
        if not 0 <= step < len(self):
            raise BadInputError(f"step {step} is not within {len(self)}")
        first = self.begin + step * self.global_batch
        return first, min(self.count, first + self.global_batch)

    def done_after(self, step: int) -> int:
        """How many places are done, by all ranks, when this step is."""
        return self.global_span(step)[1]

    def spans(self, step: int, rank: int) -> Iterator[Span]:
        """The places one rank takes: one span, or several where padding goes round and round."""
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

    def places_of(self, rank: int, worker: int, workers: int, start: int, stop: int) -> NDArray[np.int64]:
        """The places within [start, stop) that one of a rank's workers takes; padding aside."""
        places = np.arange(max(start, self.begin), min(stop, self.count), dtype=np.int64)
        steps, within = np.divmod(places - self.begin, self.global_batch)
        mine = within // self.batch_size == rank
        if self.remainder != "pad" and (rest := (self.count - self.begin) % self.global_batch):
            low, high = self._shared(self.count - rest, rest, rank) if self.remainder == "partial" else (0, 0)
            last = places >= self.count - rest
            mine = np.where(last, (low <= places) & (places < high), mine)
        taken: NDArray[np.int64] = places[mine & (steps % workers == worker)]
        return taken

    def step_of(self, place: int) -> tuple[int, int]:
        """At which step, and by which rank, a place is taken; padding aside."""
        if not self.begin <= place < self.count:
            raise BadInputError(f"place {place} is not within {self.begin}…{self.count}")
        step = (place - self.begin) // self.global_batch
        for rank in range(self.world_size):
            for start, stop in self.spans(step, rank):
                if start <= place < stop:
                    return step, rank
        raise AssertionError("every place is some rank's")

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
