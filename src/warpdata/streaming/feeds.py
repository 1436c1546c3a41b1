"""Samples by their place: of one table, or of a mixture of several. What a stream is made over."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, runtime_checkable

import numpy as np

from warpdata.errors import BadInputError
from warpdata.limits import STREAM_WINDOW_BYTES
from warpdata.streaming.mixture import Mixture, Stop
from warpdata.streaming.order import Shuffle
from warpdata.streaming.plan import Identity, MixedIdentity, TableIdentity
from warpdata.streaming.windows import Windows
from warpdata.tables import Table

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray

__all__ = ["ArrayFeed", "Feed", "MixedPlan", "Place", "Plan", "TablePlan"]

_OPEN_EPOCHS = 4

Place: TypeAlias = tuple[int, int]
"""Which part of a mixture, and which row of its table; the part is 0 where there is only one."""


class Feed(Protocol):
    """Samples of one epoch. Closed, it ends its threads."""

    def columns(self, start: int, stop: int) -> dict[str, list[Any]]:
        """The samples at these places, in their order."""
        ...

    def rows(self, start: int, stop: int) -> pa.Table:
        """The same as an Arrow table."""
        ...

    def close(self) -> None: ...


@runtime_checkable
class ArrayFeed(Protocol):
    """In place of a `Feed`, one that makes whole batches: it writes samples straight into their arrays."""

    def arrays(self, spans: Sequence[tuple[int, int]], turn: int) -> dict[str, NDArray[Any]]:
        """The samples at these places, stacked by name. `turn` counts the batches of this worker, from 0."""
        ...

    def close(self) -> None: ...


class Plan(Protocol):
    """What there is to stream."""

    @property
    def identity(self) -> Identity: ...

    @property
    def sample_bytes(self) -> float: ...

    @property
    def shuffle(self) -> Shuffle | None: ...

    def open(self, epoch: int) -> Feed | ArrayFeed: ...

    def locate(self, start: int, stop: int, epoch: int) -> list[Place]:
        """Where the samples at these places are stored."""
        ...

    def place_of(self, where: Place, epoch: int) -> int:
        """The first place at which a row comes."""
        ...


@dataclass(frozen=True)
class TablePlan:
    """The rows of one table that its filters keep. `row_bytes` is what a row takes, `sample_bytes` with its media."""

    dataset_id: str
    version: str
    table: Table
    sample_bytes: float
    row_bytes: float
    shuffle: Shuffle | None
    seed: int

    @cached_property
    def selection(self) -> NDArray[np.int64] | None:
        """The rows that the filters keep; None for all of them. Costs a scan of the filters' columns."""
        return self.table.row_numbers() if self.table.filters else None

    @cached_property
    def identity(self) -> TableIdentity:
        selection = self.selection
        return TableIdentity(
            dataset_id=self.dataset_id,
            version=self.version,
            table=self.table.name,
            filter=self.table.filter_text,
            sample_count=self.table.entry.shards.row_count if selection is None else len(selection),
            seed=self.seed,
            shuffle=self.shuffle,
        )

    def open(self, epoch: int) -> TableFeed:
        pool = _window_pool()
        return TableFeed(self.windows(epoch, pool), pool)

    def windows(self, epoch: int, pool: ThreadPoolExecutor) -> Windows:
        """The windows of an epoch, loaded by a pool that somebody else ends."""
        order = self.identity.order(epoch)
        most = max(1, int(STREAM_WINDOW_BYTES / max(self.row_bytes, 1.0)))
        return Windows(order, self._take, min(most, max(1, order.count)), pool)

    def locate(self, start: int, stop: int, epoch: int) -> list[Place]:
        rows = self._rows(self.identity.order(epoch).samples(start, stop))
        return [(0, row) for row in rows.tolist()]

    def place_of(self, where: Place, epoch: int) -> int:
        sample, selection = where[1], self.selection
        if selection is not None:
            sample = int(np.searchsorted(selection, where[1]))
            if sample >= len(selection) or selection[sample] != where[1]:
                raise BadInputError(f"row {where[1]} is not kept by the filter")
        return self.identity.order(epoch).place_of(sample)

    def _take(self, samples: NDArray[np.int64]) -> pa.Table:
        return self.table.take(self._rows(samples))

    def _rows(self, samples: NDArray[np.int64]) -> NDArray[np.int64]:
        return samples if self.selection is None else self.selection[samples]


class TableFeed:
    def __init__(self, windows: Windows, pool: ThreadPoolExecutor) -> None:
        self._windows = windows
        self._pool = pool

    def rows(self, start: int, stop: int) -> pa.Table:
        return self._windows.rows(start, stop)

    def columns(self, start: int, stop: int) -> dict[str, list[Any]]:
        return _lists(self.rows(start, stop))

    def close(self) -> None:
        self._pool.shutdown(wait=True, cancel_futures=True)


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
    def sample_bytes(self) -> float:
        shares = zip(self.parts, self.mixture.weights, strict=True)
        return float(sum(part.sample_bytes * float(weight) for part, weight in shares))

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

    def open(self, epoch: int) -> MixedFeed:
        return MixedFeed(self, epoch)

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
        inner = self.parts[part].place_of((0, row), epoch)
        low, high = 0, self.identity.sample_count
        while low < high:
            middle = (low + high) // 2
            if self.mixture.given_before(middle + 1)[part] > inner:
                high = middle
            else:
                low = middle + 1
        if low >= self.identity.sample_count:
            raise BadInputError(f"row {row} of part {part} does not come in this epoch")
        return low

    def runs(self, start: int, stop: int) -> list[tuple[int, list[int], int]]:
        """For each part: at which of the places it comes, and how many samples it gave before them."""
        sources = self.mixture.sources(start, stop)
        before = self.mixture.given_before(start)
        found = [(part, np.flatnonzero(sources == part).tolist(), before[part]) for part in range(len(self.parts))]
        return [run for run in found if run[1]]

    def turns(self, part: int, first: int, count: int, epoch: int) -> list[tuple[int, int]]:
        """(epoch, place) of samples of a part that goes round and round. Epochs of a mixture never share orders."""
        size = self.parts[part].identity.sample_count
        stride = -(-self.identity.sample_count // size) + 1
        return [(epoch * stride + at // size, at % size) for at in range(first, first + count)]


class MixedFeed:
    """Opens each part's epochs as they come, and lets go of those that are long over. One thread loads for all."""

    def __init__(self, plan: MixedPlan, epoch: int) -> None:
        self._plan = plan
        self._epoch = epoch
        self._pool = _window_pool()
        self._windows = functools.lru_cache(maxsize=_OPEN_EPOCHS * len(plan.parts))(self._open_windows)

    def rows(self, start: int, stop: int) -> pa.Table:
        raise BadInputError("a mixture has no Arrow rows", hint="Use collate='dict', 'numpy' or 'torch'.")

    def columns(self, start: int, stop: int) -> dict[str, list[Any]]:
        names = self._plan.parts[0].table.schema().names
        out: dict[str, list[Any]] = {name: [None] * (stop - start) for name in names}
        for part, positions, first in self._plan.runs(start, stop):
            turns = self._plan.turns(part, first, len(positions), self._epoch)
            for low, high in _stretches(turns):
                epoch, place = turns[low]
                taken = _lists(self._windows(part, epoch).rows(place, place + high - low))
                for name in names:
                    for position, value in zip(positions[low:high], taken[name], strict=True):
                        out[name][position] = value
        return out

    def close(self) -> None:
        self._pool.shutdown(wait=True, cancel_futures=True)

    def _open_windows(self, part: int, epoch: int) -> Windows:
        return self._plan.parts[part].windows(epoch, self._pool)


def _window_pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(1, thread_name_prefix="warp-window")


def _lists(rows: pa.Table) -> dict[str, list[Any]]:
    return {name: rows[name].to_pylist() for name in rows.schema.names}


def _stretches(turns: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Where runs of neighbouring places of one epoch begin and end."""
    cuts = [at for at in range(1, len(turns)) if turns[at][0] != turns[at - 1][0]]
    borders = [0, *cuts, len(turns)]
    return list(pairwise(borders))
