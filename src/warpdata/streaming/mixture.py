"""Mixtures: several tables in one order, by weight.

Positions are grouped in rounds. After every round each part has given its share, rounded to the nearest sample;
within a round the parts come in a random order. The samples of a part before any position are therefore known without
counting them. Implements "Mixtures" of docs/specs/streaming.md.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from typing import TYPE_CHECKING, Literal, TypeAlias, get_args

import numpy as np

from warpdata.errors import BadInputError
from warpdata.primitives.cached_property import cached_property
from warpdata.primitives.permutation import random_keys
from warpdata.streaming.collate import Columns
from warpdata.streaming.order import Shuffle
from warpdata.streaming.shuffle_buffer import LoadExecutors, OwnedPositions, ShuffleBuffer
from warpdata.streaming.source import SampleLocation, VersionedSource
from warpdata.streaming.state import MixedIdentity

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray

__all__ = ["MixedSource", "Mixture", "Stop"]

Stop: TypeAlias = Literal["first_exhausted", "all_exhausted"]
_ROUND = 1024
_MIXTURE = 3
_OPEN_EPOCHS = 4


@dataclass(frozen=True, slots=True)
class Mixture:
    """The part of each position. Weights are exact fractions that add up to one. Pure."""

    weights: tuple[Fraction, ...]
    seed: int

    @staticmethod
    def of(weights: Sequence[float], seed: int) -> Mixture:
        """Normalize positive weights."""
        exact = [Fraction(weight).limit_denominator(10**9) for weight in weights]
        if not exact or any(weight <= 0 for weight in exact):
            raise BadInputError(f"weights {list(weights)} are not all positive")
        total = sum(exact)
        return Mixture(tuple(weight / total for weight in exact), seed)

    def given_before(self, position: int) -> tuple[int, ...]:
        """Return the number of samples that each part has given before this position."""
        number = self._round_at(position)
        before = self._quota(number)
        inside = self._round(number)[: position - sum(before)]
        counts = np.bincount(inside, minlength=len(self.weights))
        return tuple(given + int(count) for given, count in zip(before, counts, strict=True))

    def parts(self, start: int, stop: int) -> NDArray[np.int64]:
        """Return the part of each position in [start, stop)."""
        if start >= stop:
            return np.empty(0, np.int64)
        first = self._round_at(start)
        joined = np.concatenate([self._round(number) for number in range(first, self._round_at(stop) + 1)])
        offset = sum(self._quota(first))
        return joined[start - offset : stop - offset]

    def length(self, counts: Sequence[int], stop: Stop) -> int:
        """Return the number of positions until a part, or every part, has given all of its samples once."""
        ends = [self._exhausted_at(part, count) for part, count in enumerate(counts)]
        return min(ends) if stop == "first_exhausted" else max(ends)

    def _exhausted_at(self, part: int, count: int) -> int:
        """Return the last position before which the part has given at most `count` samples."""
        low, high = 0, int((count + 2) / self.weights[part]) + 2 * _ROUND
        while low < high:
            middle = (low + high) // 2
            if self.given_before(middle)[part] > count:
                high = middle
            else:
                low = middle + 1
        return low - 1

    def _quota(self, rounds: int) -> tuple[int, ...]:
        """Return the samples of each part after a number of rounds. Each grows with the rounds, and so does the sum."""
        return tuple(int(weight * rounds * _ROUND + Fraction(1, 2)) for weight in self.weights)

    def _round_at(self, position: int) -> int:
        """Return the round of a position. Rounding moves the start of a round by at most one sample per part."""
        number = max(0, (position - len(self.weights)) // _ROUND)
        while sum(self._quota(number + 1)) <= position:
            number += 1
        return number

    def _round(self, number: int) -> NDArray[np.int64]:
        before, after = self._quota(number), self._quota(number + 1)
        counts = [end - start for start, end in zip(before, after, strict=True)]
        slots = np.repeat(np.arange(len(counts), dtype=np.int64), counts)
        positions = np.arange(sum(before), sum(after), dtype=np.int64)
        return slots[np.argsort(random_keys(positions, self.seed, 0, _MIXTURE), kind="stable")]


@dataclass(frozen=True)
class MixedSource:
    """A `SampleSource` over several row sources. A part that runs out begins its next epoch."""

    parts: tuple[VersionedSource, ...]
    mixture: Mixture
    stop: Stop

    def __post_init__(self) -> None:
        if self.stop not in get_args(Stop):
            raise BadInputError(f"stop={self.stop!r} is not known", hint=f"Use {' or '.join(get_args(Stop))}.")
        names = {tuple(sorted(part.column_names)) for part in self.parts}
        if len(names) > 1:
            raise BadInputError(
                f"the parts of a mixture have different columns: {sorted(names)}", hint="Select the same columns."
            )
        empty = [part.identity.dataset_id for part in self.parts if not part.identity.sample_count]
        if empty:
            raise BadInputError(f"{', '.join(empty)} has no samples to mix")

    @property
    def known_count(self) -> int:
        return self.identity.sample_count

    @property
    def max_samples(self) -> int:
        return self.identity.sample_count

    @property
    def sample_bytes(self) -> float:
        return self._average([part.sample_bytes for part in self.parts])

    @property
    def media_bytes(self) -> float:
        return self._average([part.media_bytes for part in self.parts])

    @property
    def cache_bytes(self) -> int:
        return sum(part.cache_bytes for part in self.parts)

    @property
    def table_requests(self) -> int:
        return sum(part.table_requests for part in self.parts)

    def _average(self, values: Sequence[float]) -> float:
        return float(sum(value * float(weight) for value, weight in zip(values, self.mixture.weights, strict=True)))

    @property
    def shuffle(self) -> Shuffle | None:
        return self.parts[0].shuffle

    @cached_property
    def identity(self) -> MixedIdentity:
        counts = [part.identity.sample_count for part in self.parts]
        return MixedIdentity(
            parts=tuple(part.identity for part in self.parts),
            weights=tuple(str(weight) for weight in self.mixture.weights),
            seed=self.mixture.seed,
            stop=self.stop,
            sample_count=self.mixture.length(counts, self.stop),
        )

    def open(self, epoch: int, owned: OwnedPositions, *, with_media: bool) -> MixedReader:
        return MixedReader(self, epoch, owned, with_media=with_media)

    def locate(self, start: int, stop: int, epoch: int) -> list[SampleLocation]:
        out: list[SampleLocation] = [(0, 0)] * (stop - start)
        for part, indices, first in self.runs(start, stop):
            for index, (part_epoch, position) in zip(
                indices, self.part_positions(part, first, len(indices), epoch), strict=True
            ):
                out[index] = (part, self.parts[part].locate(position, position + 1, part_epoch)[0][1])
        return out

    def position_of(self, location: SampleLocation, epoch: int) -> int:
        part, row = location
        position = self._position_of_nth(part, self.parts[part].position_of((0, row), epoch))
        if position >= self.identity.sample_count:
            raise BadInputError(f"row {row} of part {part} does not occur in epoch {epoch}")
        return position

    def owned_by_part(self, part: int, turn: int, owned: OwnedPositions) -> OwnedPositions:
        """Translate owned positions of the mixture to those of a part, in the part's `turn`-th epoch."""
        first = turn * self.parts[part].identity.sample_count

        def positions(start: int, stop: int) -> NDArray[np.int64]:
            low, high = self._position_of_nth(part, first + start), self._position_of_nth(part, first + stop)
            of_part = low + np.flatnonzero(self.mixture.parts(low, high) == part)
            return start + np.flatnonzero(np.isin(of_part, owned(low, high)))

        return positions

    def runs(self, start: int, stop: int) -> list[tuple[int, list[int], int]]:
        """Return for each part its indices within [start, stop), and the samples that it gave before."""
        parts = self.mixture.parts(start, stop)
        before = self.mixture.given_before(start)
        found = [(part, np.flatnonzero(parts == part).tolist(), before[part]) for part in range(len(self.parts))]
        return [run for run in found if run[1]]

    def part_positions(self, part: int, first: int, count: int, epoch: int) -> list[tuple[int, int]]:
        """Return (epoch, position) of consecutive samples of a part. Epochs of a mixture never share part epochs."""
        size, begin = self.parts[part].identity.sample_count, self.first_epoch(part, epoch)
        return [(begin + at // size, at % size) for at in range(first, first + count)]

    def first_epoch(self, part: int, epoch: int) -> int:
        """Return the epoch of a part with which an epoch of the mixture begins."""
        size = self.parts[part].identity.sample_count
        return epoch * (-(-self.identity.sample_count // size) + 1)

    def _position_of_nth(self, part: int, nth: int) -> int:
        """Return the position of the n-th sample of a part, or the end of the epoch."""
        low, high = 0, self.identity.sample_count
        while low < high:
            middle = (low + high) // 2
            if self.mixture.given_before(middle + 1)[part] > nth:
                high = middle
            else:
                low = middle + 1
        return low


class MixedReader:
    """A `SampleReader` over the shuffle buffers of all parts, opened as epochs of the parts begin."""

    def __init__(self, source: MixedSource, epoch: int, owned: OwnedPositions, *, with_media: bool) -> None:
        self._source = source
        self._epoch = epoch
        self._owned = owned
        self._with_media = with_media
        self._executors = LoadExecutors()
        self._buffer = functools.lru_cache(maxsize=_OPEN_EPOCHS * len(source.parts))(self._open_buffer)

    def rows(self, start: int, stop: int) -> pa.Table:
        raise BadInputError("a mixture has no Arrow rows", hint="Use collate='dict', 'numpy' or 'torch'.")

    def columns(self, start: int, stop: int) -> Columns:
        parts = []
        for part, indices, first in self._source.runs(start, stop):
            positions = self._source.part_positions(part, first, len(indices), self._epoch)
            for low, high in _epoch_runs(positions):
                epoch, position = positions[low]
                loaded = self._buffer(part, epoch).samples(position, position + high - low)
                parts.append((indices[low:high], Columns.of(loaded)))
        if not parts:
            return Columns({name: [] for name in self._source.parts[0].column_names}, {})
        return Columns.scattered(stop - start, parts)

    def advance(self, position: int) -> None:
        for part, given in enumerate(self._source.mixture.given_before(position)):
            ((epoch, inner),) = self._source.part_positions(part, max(given - 1, 0), 1, self._epoch)
            self._buffer(part, epoch).advance(inner)

    def close(self) -> None:
        self._executors.close()

    def _open_buffer(self, part: int, epoch: int) -> ShuffleBuffer:
        owned = self._source.owned_by_part(part, epoch - self._source.first_epoch(part, self._epoch), self._owned)
        return self._source.parts[part].shuffle_buffer(epoch, self._executors, owned, with_media=self._with_media)


def _epoch_runs(positions: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the start and end of runs of consecutive positions in one epoch."""
    cuts = [at for at in range(1, len(positions)) if positions[at][0] != positions[at - 1][0]]
    return list(pairwise([0, *cuts, len(positions)]))
