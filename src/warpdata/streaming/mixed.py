"""Samples of a mixture by their place: which part gives which, and the parts' windows behind them."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from warpdata.errors import BadInputError
from warpdata.primitives.cached_property import cached_property
from warpdata.streaming.columns import Columns
from warpdata.streaming.mixture import Mixture, Stop
from warpdata.streaming.order import Shuffle
from warpdata.streaming.shuffle_buffer import Mine, Windows
from warpdata.streaming.sources import Place, Pools, TablePlan
from warpdata.streaming.state import MixedIdentity

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray

__all__ = ["MixedPlan"]

_OPEN_EPOCHS = 4


@dataclass(frozen=True)
class MixedPlan:
    """Several tables, by weight. A part that is asked for more than it has begins its next epoch."""

    parts: tuple[TablePlan, ...]
    mixture: Mixture
    stop: Stop

    def __post_init__(self) -> None:
        names = {tuple(sorted(part.table.schema().names)) for part in self.parts}
        if len(names) > 1:
            raise BadInputError(
                f"the parts of a mixture have different columns: {sorted(names)}", hint="Select the same ones."
            )
        empty = [part.dataset_id for part in self.parts if not part.identity.sample_count]
        if empty:
            raise BadInputError(f"{', '.join(empty)} has no sample to mix in")

    @property
    def known_count(self) -> int:
        return self.identity.sample_count

    @property
    def most_samples(self) -> int:
        return self.identity.sample_count

    @property
    def sample_bytes(self) -> float:
        return self._average([part.sample_bytes for part in self.parts])

    @property
    def media_bytes(self) -> float:
        return self._average([part.media_bytes for part in self.parts])

    @property
    def table_bytes(self) -> int:
        return sum(part.table_bytes for part in self.parts)

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

    def open(self, epoch: int, mine: Mine, *, with_media: bool) -> MixedFeed:
        return MixedFeed(self, epoch, mine, with_media=with_media)

    def locate(self, start: int, stop: int, epoch: int) -> list[Place]:
        out: list[Place] = [(0, 0)] * (stop - start)
        for part, positions, first in self.runs(start, stop):
            for position, (at_epoch, place) in zip(
                positions, self.turns(part, first, len(positions), epoch), strict=True
            ):
                out[position] = (part, self.parts[part].locate(place, place + 1, at_epoch)[0][1])
        return out

    def place_of(self, where: Place, epoch: int) -> int:
        part, row = where
        place = self._place_of_nth(part, self.parts[part].place_of((0, row), epoch))
        if place >= self.identity.sample_count:
            raise BadInputError(f"row {row} of part {part} does not come in this epoch")
        return place

    def _place_of_nth(self, part: int, nth: int) -> int:
        """Where the n-th sample of a part comes; the end of the epoch if it does not."""
        low, high = 0, self.identity.sample_count
        while low < high:
            middle = (low + high) // 2
            if self.mixture.given_before(middle + 1)[part] > nth:
                high = middle
            else:
                low = middle + 1
        return low

    def mine_of(self, part: int, turn: int, mine: Mine) -> Mine:
        """As `mine`, for the places of a part in its `turn`-th time round."""
        first = turn * self.parts[part].identity.sample_count

        def places(start: int, stop: int) -> NDArray[np.int64]:
            low, high = self._place_of_nth(part, first + start), self._place_of_nth(part, first + stop)
            comes = low + np.flatnonzero(self.mixture.sources(low, high) == part)
            return start + np.flatnonzero(np.isin(comes, mine(low, high)))

        return places

    def runs(self, start: int, stop: int) -> list[tuple[int, list[int], int]]:
        """For each part: at which of the places it comes, and how many samples it gave before them."""
        sources = self.mixture.sources(start, stop)
        before = self.mixture.given_before(start)
        found = [(part, np.flatnonzero(sources == part).tolist(), before[part]) for part in range(len(self.parts))]
        return [run for run in found if run[1]]

    def turns(self, part: int, first: int, count: int, epoch: int) -> list[tuple[int, int]]:
        """(epoch, place) of samples of a part that goes round and round. Epochs of a mixture never share orders."""
        size, begin = self.parts[part].identity.sample_count, self.first_epoch(part, epoch)
        return [(begin + at // size, at % size) for at in range(first, first + count)]

    def first_epoch(self, part: int, epoch: int) -> int:
        """The epoch of a part in which an epoch of the mixture begins."""
        size = self.parts[part].identity.sample_count
        return epoch * (-(-self.identity.sample_count // size) + 1)


class MixedFeed:
    """Opens each part's epochs as they come, and lets go of those that are long over. One thread loads for all."""

    def __init__(self, plan: MixedPlan, epoch: int, mine: Mine, *, with_media: bool) -> None:
        self._plan = plan
        self._epoch = epoch
        self._mine = mine
        self._with_media = with_media
        self._pools = Pools()
        self._windows = functools.lru_cache(maxsize=_OPEN_EPOCHS * len(plan.parts))(self._open_windows)

    def rows(self, start: int, stop: int) -> pa.Table:
        raise BadInputError("a mixture has no Arrow rows", hint="Use collate='dict', 'numpy' or 'torch'.")

    def columns(self, start: int, stop: int) -> Columns:
        parts = []
        for part, positions, first in self._plan.runs(start, stop):
            turns = self._plan.turns(part, first, len(positions), self._epoch)
            for low, high in _stretches(turns):
                epoch, place = turns[low]
                taken = self._windows(part, epoch).samples(place, place + high - low)
                parts.append((positions[low:high], Columns.of(taken.rows, dict(taken.contents))))
        if not parts:
            return Columns({name: [] for name in self._plan.parts[0].table.schema().names}, {})
        return Columns.placed(stop - start, parts)

    def ahead(self, place: int) -> None:
        """Of each part, what comes after what was taken of it before."""
        for part, given in enumerate(self._plan.mixture.given_before(place)):
            ((epoch, inner),) = self._plan.turns(part, max(given - 1, 0), 1, self._epoch)
            self._windows(part, epoch).ahead(inner)

    def close(self) -> None:
        self._pools.close()

    def _open_windows(self, part: int, epoch: int) -> Windows:
        mine = self._plan.mine_of(part, epoch - self._plan.first_epoch(part, self._epoch), self._mine)
        return self._plan.parts[part].windows(epoch, self._pools, mine, with_media=self._with_media)


def _stretches(turns: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Where runs of neighbouring places of one epoch begin and end."""
    cuts = [at for at in range(1, len(turns)) if turns[at][0] != turns[at - 1][0]]
    borders = [0, *cuts, len(turns)]
    return list(pairwise(borders))
