"""The rows of a window, in memory while its samples are handed out, and those of the next one on their way.

Samples are counted among the rows that a filter keeps; rows are counted over the whole table.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from warpdata.streaming.order import Order

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray

__all__ = ["TakeSamples", "Windows"]

TakeSamples: TypeAlias = Callable[["NDArray[np.int64]"], "pa.Table"]
"""The columns of samples, which ascend."""

_KEPT = 2


class Windows:
    """Loads windows of one epoch as they are needed, one ahead, in a thread of the pool it is given."""

    def __init__(self, order: Order, take: TakeSamples, span_rows: int, pool: ThreadPoolExecutor) -> None:
        self._order = order
        self._take = take
        self._span_rows = span_rows
        self._loaded: dict[int, Future[tuple[NDArray[np.int64], pa.Table]]] = {}
        self._lock = threading.Lock()
        self._pool = pool

    def rows(self, start: int, stop: int) -> pa.Table:
        """The samples at places [start, stop), in the order of the epoch."""
        import pyarrow as pa

        parts = []
        while start < stop:
            window, end = self._window_of(start)
            end = min(end, stop)
            samples, rows = self._load(window).result()
            self._load(window + 1)
            wanted = self._order.samples(start, end)
            parts.append(rows.take(pa.array(np.searchsorted(samples, wanted))))
            start = end
        return pa.concat_tables(parts) if parts else self._take(np.empty(0, np.int64))

    def _window_of(self, place: int) -> tuple[int, int]:
        """Which window a place is in, and where that ends. Without a shuffle, windows are stretches of places."""
        if self._order.shuffle is None:
            window = place // self._span_rows
            return window, (window + 1) * self._span_rows
        window = self._order.window_at(place)
        return window, self._order.window_span(window)[1]

    def _samples(self, window: int) -> NDArray[np.int64]:
        if self._order.shuffle is None:
            first = min(window * self._span_rows, self._order.count)
            return np.arange(first, min(first + self._span_rows, self._order.count), dtype=np.int64)
        if window >= self._order.window_count:
            return np.empty(0, np.int64)
        return np.sort(self._order.samples(*self._order.window_span(window)))

    def _load(self, window: int) -> Future[tuple[NDArray[np.int64], pa.Table]]:
        with self._lock:
            future = self._loaded.get(window)
            if future is None:
                future = self._loaded[window] = self._pool.submit(self._read, window)
                for old in sorted(self._loaded)[:-_KEPT]:
                    if old < window - 1:
                        del self._loaded[old]
            return future

    def _read(self, window: int) -> tuple[NDArray[np.int64], pa.Table]:
        samples = self._samples(window)
        return samples, self._take(samples).combine_chunks()
