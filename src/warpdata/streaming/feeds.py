"""Samples by their place: of one table, or of a mixture of several. What a stream is made over."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, runtime_checkable

import numpy as np

from warpdata.artifacts import Coming, read_ahead
from warpdata.errors import BadInputError, WarpError
from warpdata.limits import MAX_REQUESTS_AT_ONCE, SMALL_SHARD_BYTES, STREAM_KEPT_BYTES, STREAM_SPAN_BYTES
from warpdata.streaming.columns import Columns
from warpdata.streaming.mixture import Mixture, Stop
from warpdata.streaming.order import Shuffle
from warpdata.streaming.plan import Identity, MixedIdentity, TableIdentity
from warpdata.streaming.windows import Mine, Taken, Windows
from warpdata.tables import Table, TakeRows

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray

__all__ = ["ArrayFeed", "Feed", "MixedPlan", "Place", "Plan", "TablePlan"]

_OPEN_EPOCHS = 4

Place: TypeAlias = tuple[int, int]
"""Which part of a mixture, and which row of its table; the part is 0 where there is only one."""


class Pools:
    """The threads of a feed: one loads windows, others fetch what their rows refer to."""

    def __init__(self) -> None:
        self.rows = ThreadPoolExecutor(1, thread_name_prefix="warp-window")
        self.media = ThreadPoolExecutor(MAX_REQUESTS_AT_ONCE, thread_name_prefix="warp-media")

    def close(self) -> None:
        for pool in (self.rows, self.media):
            pool.shutdown(wait=True, cancel_futures=True)


class Feed(Protocol):
    """Samples of one epoch. Closed, it ends its threads."""

    def columns(self, start: int, stop: int) -> Columns:
        """The samples at these places, in their order."""
        ...

    def rows(self, start: int, stop: int) -> pa.Table:
        """The same as an Arrow table."""
        ...

    def ahead(self, place: int) -> None:
        """The consumer has come so far, and what comes later may be fetched."""
        ...

    def close(self) -> None: ...


@runtime_checkable
class ArrayFeed(Protocol):
    """In place of a `Feed`, one that makes whole batches: it writes samples straight into their arrays."""

    def arrays(self, spans: Sequence[tuple[int, int]], turn: int) -> dict[str, NDArray[Any]]:
        """The samples at these places, stacked by name. `turn` counts the batches of this worker, from 0."""
        ...

    def ahead(self, place: int) -> None:
        """The consumer has come so far, and what comes later may be fetched."""
        ...

    def close(self) -> None: ...


class Plan(Protocol):
    """What there is to stream."""

    @property
    def identity(self) -> Identity: ...

    @property
    def known_count(self) -> int | None:
        """The number of samples, if that is known without reading."""
        ...

    @property
    def most_samples(self) -> int:
        """More there can not be."""
        ...

    @property
    def sample_bytes(self) -> float:
        """Of one sample on average, its media included."""
        ...

    @property
    def media_bytes(self) -> float:
        """Of one sample's media on average."""
        ...

    @property
    def table_bytes(self) -> int: ...

    @property
    def table_requests(self) -> int:
        """About how many requests reading all rows once takes."""
        ...

    @property
    def shuffle(self) -> Shuffle | None: ...

    def open(self, epoch: int, mine: Mine, *, with_media: bool) -> Feed | ArrayFeed:
        """The samples of an epoch; those at the places of `mine` are fetched ahead, with the bytes of their media."""
        ...

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

    @property
    def known_count(self) -> int | None:
        is_known = not self.table.filters or "identity" in self.__dict__
        return self.identity.sample_count if is_known else None

    @property
    def most_samples(self) -> int:
        return self.table.entry.shards.row_count

    @property
    def media_bytes(self) -> float:
        return self.sample_bytes - self.row_bytes

    @property
    def table_bytes(self) -> int:
        return self.table.entry.shards.data_bytes

    @property
    def table_requests(self) -> int:
        """Of a small shard one; of others one for the footer, and one for each row group."""
        shards = self.table.entry.shards
        if shards.data_bytes <= SMALL_SHARD_BYTES * shards.shard_count:
            return shards.shard_count
        return shards.shard_count + max(shards.shard_count, -(-shards.row_count // max(self.table.group_rows(), 1)))

    @cached_property
    def _take_rows(self) -> TakeRows:
        return self.table.taker(STREAM_KEPT_BYTES)

    @cached_property
    def identity(self) -> TableIdentity:
        selection = self.selection
        return self.table_identity(self.table.entry.shards.row_count if selection is None else len(selection))

    def table_identity(self, sample_count: int) -> TableIdentity:
        return TableIdentity(
            dataset_id=self.dataset_id,
            version=self.version,
            table=self.table.name,
            filter=self.table.filter_text,
            sample_count=sample_count,
            seed=self.seed,
            shuffle=self.shuffle,
        )

    def open(self, epoch: int, mine: Mine, *, with_media: bool) -> TableFeed:
        pools = Pools()
        return TableFeed(self.windows(epoch, pools, mine, with_media=with_media), pools)

    def windows(self, epoch: int, pools: Pools, mine: Mine, *, with_media: bool) -> Windows:
        """The windows of an epoch, loaded by pools that somebody else ends."""
        order = self.identity.order(epoch)
        held_bytes = self.sample_bytes if with_media else self.row_bytes
        most = max(1, int(STREAM_SPAN_BYTES / max(held_bytes, 1.0)))
        take = functools.partial(self._take, media=pools.media if with_media else None)
        return Windows(order, take, min(most, max(1, order.count)), pools.rows, mine)

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

    def _take(
        self, samples: NDArray[np.int64], needed: NDArray[np.int64], *, media: ThreadPoolExecutor | None
    ) -> Taken:
        rows = self._take_rows(self._rows(samples)).combine_chunks()
        return Taken(rows, {} if media is None else _coming(rows, needed, media))

    def _rows(self, samples: NDArray[np.int64]) -> NDArray[np.int64]:
        return samples if self.selection is None else self.selection[samples]


class TableFeed:
    def __init__(self, windows: Windows, pools: Pools) -> None:
        self._windows = windows
        self._pools = pools

    def rows(self, start: int, stop: int) -> pa.Table:
        return self._windows.samples(start, stop).rows

    def columns(self, start: int, stop: int) -> Columns:
        taken = self._windows.samples(start, stop)
        return Columns.of(taken.rows, dict(taken.contents))

    def ahead(self, place: int) -> None:
        self._windows.ahead(place)

    def close(self) -> None:
        self._pools.close()


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


def _coming(rows: pa.Table, needed: NDArray[np.int64], pool: ThreadPoolExecutor) -> dict[str, Sequence[Coming | None]]:
    """What references lead to, on its way in the order of need. What fails here fails again where it is used."""
    import pyarrow as pa

    contents: dict[str, Sequence[Coming | None]] = {}
    for field in rows.schema:
        if isinstance(field.type, pa.BaseExtensionType):
            refs = rows[field.name].to_pylist()
            coming: list[Coming | None] = [None] * len(refs)
            order = list(dict.fromkeys(needed.tolist()))
            with contextlib.suppress(WarpError):
                for at, wait in zip(order, read_ahead([refs[at] for at in order], pool), strict=True):
                    coming[at] = wait
                contents[field.name] = coming
    return contents


def _stretches(turns: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Where runs of neighbouring places of one epoch begin and end."""
    cuts = [at for at in range(1, len(turns)) if turns[at][0] != turns[at - 1][0]]
    borders = [0, *cuts, len(turns)]
    return list(pairwise(borders))
