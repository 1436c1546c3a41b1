"""From which source each sample of a mixture comes. Pure.

Places are grouped in rounds. After every round each source has given its share, rounded to the nearest
sample; within a round the sources come in a random order. So how many samples a source has given before
any place is known without counting them. Implements "Mixtures" of docs/specs/streaming.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Literal, TypeAlias, get_args

import numpy as np

from warpdata.errors import BadInputError
from warpdata.streaming.order import random_keys

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["STOPS", "Mixture", "Stop"]

Stop: TypeAlias = Literal["first_exhausted", "all_exhausted"]
STOPS: tuple[str, ...] = get_args(Stop)
_ROUND = 1024
_MIXTURE = 3


@dataclass(frozen=True, slots=True)
class Mixture:
    """Sources by number, with weights as exact fractions that add up to one."""

    weights: tuple[Fraction, ...]
    seed: int

    @staticmethod
    def of(weights: Sequence[float], seed: int) -> Mixture:
        """Weights need not add up to one; each must be positive."""
        exact = [Fraction(weight).limit_denominator(10**9) for weight in weights]
        if not exact or any(weight <= 0 for weight in exact):
            raise BadInputError(f"weights {list(weights)} are not all positive")
        total = sum(exact)
        return Mixture(tuple(weight / total for weight in exact), seed)

    def given_before(self, place: int) -> tuple[int, ...]:
        """How many samples each source has given before this place."""
        number = self._round_at(place)
        before = self._quota(number)
        inside = self._round(number)[: place - sum(before)]
        counts = np.bincount(inside, minlength=len(self.weights))
        return tuple(given + int(count) for given, count in zip(before, counts, strict=True))

    def sources(self, start: int, stop: int) -> NDArray[np.int64]:
        """The source of each place in [start, stop)."""
        if start >= stop:
            return np.empty(0, np.int64)
        first = self._round_at(start)
        joined = np.concatenate([self._round(number) for number in range(first, self._round_at(stop) + 1)])
        offset = sum(self._quota(first))
        return joined[start - offset : stop - offset]

    def length(self, counts: Sequence[int], stop: Stop) -> int:
        """How many places there are until a source, or every source, has given all of its samples once."""
        ends = [self._exhausted_at(source, count) for source, count in enumerate(counts)]
        return min(ends) if stop == "first_exhausted" else max(ends)

    def _exhausted_at(self, source: int, count: int) -> int:
        """The first place before which the source has given `count` samples and would be asked for another."""
        low, high = 0, int((count + 2) / self.weights[source]) + 2 * _ROUND
        while low < high:
            middle = (low + high) // 2
            if self.given_before(middle)[source] > count:
                high = middle
            else:
                low = middle + 1
        return low - 1

    def _quota(self, rounds: int) -> tuple[int, ...]:
        """What each source has given after so many rounds. Grows with them, and so does the sum."""
        return tuple(int(weight * rounds * _ROUND + Fraction(1, 2)) for weight in self.weights)

    def _round_at(self, place: int) -> int:
        """The round a place is in. Rounds begin within a sample per source of where they would ideally."""
        number = max(0, (place - len(self.weights)) // _ROUND)
        while sum(self._quota(number + 1)) <= place:
            number += 1
        return number

    def _round(self, number: int) -> NDArray[np.int64]:
        before, after = self._quota(number), self._quota(number + 1)
        counts = [end - start for start, end in zip(before, after, strict=True)]
        slots = np.repeat(np.arange(len(counts), dtype=np.int64), counts)
        places = np.arange(sum(before), sum(after), dtype=np.int64)
        return slots[np.argsort(random_keys(places, self.seed, 0, _MIXTURE), kind="stable")]
