"""The shuffle buffer: loaded rows of the current window, while the next window loads.

Samples are numbered among the rows that the filters keep. A buffer loads only the samples that its consumer takes;
other ranks and workers load theirs.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, TypeAlias

import numpy as np

from warpdata.errors import CorruptError
from warpdata.limits import MIB
from warpdata.primitives.arrow_buffers import as_arrow
from warpdata.primitives.parallel import IO_POOL, BoundedExecutor
from warpdata.streaming.order import Order

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray

__all__ = ["LoadExecutors", "LoadRows", "LoadedRows", "OwnedPositions", "PendingBytes", "ShuffleBuffer", "span_rows"]


class PendingBytes(Protocol):
    """Bytes that are being fetched. A call waits for them, and returns them."""

    @property
    def size_bytes(self) -> int: ...

    @property
    def name(self) -> str:
        """The member, for messages."""
        ...

    def __call__(self) -> bytes: ...


LoadRows: TypeAlias = Callable[["NDArray[np.int64]", "NDArray[np.int64]"], "LoadedRows"]
"""Loads ascending samples. The second argument lists their indices in the order in which they are needed."""

OwnedPositions: TypeAlias = Callable[[int, int], "NDArray[np.int64]"]
"""Returns the positions within [start, stop) that this consumer takes, ascending."""

_SPAN_BYTES = 32 * MIB
_NOTHING = np.empty(0, np.int64)


@dataclass(frozen=True, slots=True)
class LoadExecutors:
    """Shares of the I/O pool for one reader: a thread loads rows, others fetch the media that rows refer to."""

    rows: BoundedExecutor = field(default_factory=lambda: IO_POOL.executor(1))
    media: BoundedExecutor = field(default_factory=IO_POOL.executor)

    def close(self) -> None:
        """Cancel what has not started and wait for the rest."""
        for executor in (self.rows, self.media):
            executor.shutdown(wait=True, cancel_futures=True)


@dataclass(frozen=True, slots=True)
class LoadedRows:
    """Rows, and for columns of references the content that is being fetched for them."""

    rows: pa.Table
    contents: Mapping[str, Sequence[PendingBytes | None]]

    def take(self, indices: NDArray[np.int64]) -> LoadedRows:
        """Return these rows, in this order."""
        wanted = indices.tolist()
        contents = {name: [values[at] for at in wanted] for name, values in self.contents.items()}
        return LoadedRows(self.rows.take(as_arrow(indices)), contents)

    @staticmethod
    def concat(parts: Sequence[LoadedRows]) -> LoadedRows:
        """Concatenate rows of the same columns."""
        import pyarrow as pa

        if len(parts) == 1:
            return parts[0]
        names = set.intersection(*(set(part.contents) for part in parts))
        contents = {name: [pending for part in parts for pending in part.contents[name]] for name in names}
        return LoadedRows(pa.concat_tables([part.rows for part in parts]), contents)


class ShuffleBuffer:
    """Loads the windows of one epoch on demand, and one ahead. The caller closes the executor."""

    def __init__(
        self, order: Order, load: LoadRows, executor: Executor, owned: OwnedPositions, *, sample_bytes: float
    ) -> None:
        self._order = order
        self._load_rows = load
        self._span_rows = span_rows(order.count, sample_bytes)
        self._owned = owned
        self._loaded: dict[int, Future[tuple[NDArray[np.int64], LoadedRows]]] = {}
        self._lock = threading.Lock()
        self._executor = executor

    def samples(self, start: int, stop: int) -> LoadedRows:
        """Return the samples at positions [start, stop), in the order of the epoch."""
        parts = []
        while start < stop:
            window, end = self._window_of(start)
            end = min(end, stop)
            loaded, rows = self._load(window).result()
            parts.append(self._pick(loaded, rows, self._order.samples(start, end)))
            start = end
        return LoadedRows.concat(parts) if parts else self._load_rows(_NOTHING, _NOTHING)

    def advance(self, position: int) -> None:
        """Drop the windows before this position and load the next one.

        The next window loads no earlier, so that the first batch has the machine and the network for itself.
        """
        window, _ = self._window_of(position)
        with self._lock:
            for old in [number for number in self._loaded if number < window]:
                del self._loaded[old]
        start, stop = self._span(window + 1)
        if start < stop:
            self._load(window + 1)

    def _pick(self, loaded: NDArray[np.int64], rows: LoadedRows, wanted: NDArray[np.int64]) -> LoadedRows:
        """Return samples of a loaded window. Samples that this consumer does not own, such as padding, load now."""
        at = np.searchsorted(loaded, wanted)
        if len(loaded) and np.array_equal(loaded[np.minimum(at, len(loaded) - 1)], wanted):
            return rows.take(at)
        unique, at = np.unique(wanted, return_inverse=True)
        return self._load_checked(unique, at).take(at)

    def _window_of(self, position: int) -> tuple[int, int]:
        """Return the window of a position and its end. Without a shuffle, windows are spans of equal size."""
        if self._order.shuffle is None:
            window = position // self._span_rows
            return window, (window + 1) * self._span_rows
        window = min(self._order.window_at(position), self._order.window_count - 1)
        return window, self._order.window_span(window)[1]

    def _span(self, window: int) -> tuple[int, int]:
        """Return the positions of a window; an empty span after the last window."""
        if self._order.shuffle is None:
            first = min(window * self._span_rows, self._order.count)
            return first, min(first + self._span_rows, self._order.count)
        if window >= self._order.window_count:
            return self._order.count, self._order.count
        return self._order.window_span(window)

    def _load(self, window: int) -> Future[tuple[NDArray[np.int64], LoadedRows]]:
        with self._lock:
            future = self._loaded.get(window)
            if future is None:
                future = self._loaded[window] = self._executor.submit(self._read, window)
            return future

    def _read(self, window: int) -> tuple[NDArray[np.int64], LoadedRows]:
        start, stop = self._span(window)
        wanted = self._order.samples(start, stop)[self._owned(start, stop) - start]
        samples = np.sort(wanted)
        return samples, self._load_checked(samples, np.searchsorted(samples, wanted))

    def _load_checked(self, samples: NDArray[np.int64], needed: NDArray[np.int64]) -> LoadedRows:
        loaded = self._load_rows(samples, needed)
        if loaded.rows.num_rows != len(samples):
            raise CorruptError(
                f"a stream asked for {len(samples):,} rows and received {loaded.rows.num_rows:,} rows",
                hint="`warp verify` finds shards that differ from the manifest.",
            )
        return loaded


def span_rows(count: int, sample_bytes: float) -> int:
    """Return the samples that load together where nothing is shuffled."""
    return min(max(1, int(_SPAN_BYTES / max(sample_bytes, 1.0))), max(1, count))
