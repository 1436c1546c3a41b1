"""Samples by their place: what a stream is made over, and one table as such. Mixtures are in mixed.py."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, runtime_checkable

import numpy as np

from warpdata.errors import BadInputError, WarpError
from warpdata.kinds.artifacts import FutureBytes, read_ahead
from warpdata.kinds.tables import Table, TakeRows
from warpdata.limits import MAX_REQUESTS_AT_ONCE, SMALL_SHARD_BYTES, STREAM_KEPT_BYTES, STREAM_SPAN_BYTES
from warpdata.primitives.cached_property import cached_property
from warpdata.streaming.columns import Columns
from warpdata.streaming.order import Shuffle
from warpdata.streaming.shuffle_buffer import Mine, Taken, Windows
from warpdata.streaming.state import Identity, TableIdentity

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray

__all__ = ["ArrayFeed", "Feed", "OnSelection", "Place", "Plan", "Pools", "TablePlan"]

Place: TypeAlias = tuple[int, int]
"""Which part of a mixture, and which row of its table; the part is 0 where there is only one."""

OnSelection: TypeAlias = Callable[[float], None]
"""Hears which share of the rows the filters keep, when that is known and before any of them is read."""


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

    @property
    def makers(self) -> int:
        """How many threads make batches best. Where making is copying, several only get into each other's way."""
        ...

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
    on_selection: OnSelection | None = field(default=None, kw_only=True, compare=False)

    @cached_property
    def selection(self) -> NDArray[np.int64] | None:
        """The rows that the filters keep; None for all of them. Costs a scan of the filters' columns."""
        if not self.table.filters:
            return None
        rows = self.table.row_numbers()
        if self.on_selection is not None:
            self.on_selection(len(rows) / max(self.most_samples, 1))
        return rows

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


def _coming(
    rows: pa.Table, needed: NDArray[np.int64], pool: ThreadPoolExecutor
) -> dict[str, Sequence[FutureBytes | None]]:
    """What references lead to, on its way in the order of need. What fails here fails again where it is used."""
    import pyarrow as pa

    contents: dict[str, Sequence[FutureBytes | None]] = {}
    for column in rows.schema:
        if isinstance(column.type, pa.BaseExtensionType):
            refs = rows[column.name].to_pylist()
            coming: list[FutureBytes | None] = [None] * len(refs)
            order = list(dict.fromkeys(needed.tolist()))
            with contextlib.suppress(WarpError):
                for at, wait in zip(order, read_ahead([refs[at] for at in order], pool), strict=True):
                    coming[at] = wait
                contents[column.name] = coming
    return contents
