"""The samples of a window, in memory while they are handed out, and those of the next one on their way.

Samples are counted among the rows that a filter keeps; rows are counted over the whole table. Of a window
only what this consumer hands out is loaded: other ranks and workers load the rest.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from warpdata.kinds.artifacts import FutureBytes
from warpdata.query import as_arrow
from warpdata.streaming.order import Order

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray

__all__ = ["Mine", "TakeSamples", "Taken", "Windows"]

TakeSamples: TypeAlias = Callable[["NDArray[np.int64]", "NDArray[np.int64]"], "Taken"]
"""Samples by their numbers, which ascend, and the positions of these in the order in which they are needed."""

Mine: TypeAlias = Callable[[int, int], "NDArray[np.int64]"]
"""The places within a stretch that this consumer will ask for, ascending."""

_NOTHING = np.empty(0, np.int64)


@dataclass(frozen=True, slots=True)
class Taken:
    """Rows, and for columns of references what waits for the bytes they lead to, as far as these are on their way."""

    rows: pa.Table
    contents: Mapping[str, Sequence[FutureBytes | None]]

    def pick(self, positions: NDArray[np.int64]) -> Taken:
        wanted = positions.tolist()
        contents = {name: [values[at] for at in wanted] for name, values in self.contents.items()}
        return Taken(self.rows.take(as_arrow(positions)), contents)

    @staticmethod
    def joined(parts: Sequence[Taken]) -> Taken:
        """One after the other; they have the same columns."""
        import pyarrow as pa

        if len(parts) == 1:
            return parts[0]
        names = set.intersection(*(set(part.contents) for part in parts))
        contents = {name: [coming for part in parts for coming in part.contents[name]] for name in names}
        return Taken(pa.concat_tables([part.rows for part in parts]), contents)


class Windows:
    """Loads windows of one epoch as they are needed, or one ahead, in a thread of the pool it is given."""

    def __init__(self, order: Order, take: TakeSamples, span_rows: int, pool: ThreadPoolExecutor, mine: Mine) -> None:
        self._order = order
        self._take = take
        self._span_rows = span_rows
        self._mine = mine
        self._loaded: dict[int, Future[tuple[NDArray[np.int64], Taken]]] = {}
        self._lock = threading.Lock()
        self._pool = pool

    def samples(self, start: int, stop: int) -> Taken:
        """The samples at places [start, stop), in the order of the epoch."""
        parts = []
        while start < stop:
            window, end = self._window_of(start)
            end = min(end, stop)
            loaded, taken = self._load(window).result()
            parts.append(self._picked(loaded, taken, self._order.samples(start, end)))
            start = end
        return Taken.joined(parts) if parts else self._take(_NOTHING, _NOTHING)

    def ahead(self, place: int) -> None:
        """The consumer has come so far: windows before this place go, and the next one is loaded now.

        Not before, so that the first batch has the machine and the network for itself.
        """
        window, _ = self._window_of(place)
        with self._lock:
            for old in [number for number in self._loaded if number < window]:
                del self._loaded[old]
        self._load(window + 1)

    def _picked(self, loaded: NDArray[np.int64], taken: Taken, wanted: NDArray[np.int64]) -> Taken:
        """Samples of a loaded window; those that are loaded for nobody here, such as padding, one by one."""
        at = np.searchsorted(loaded, wanted)
        if len(loaded) and np.array_equal(loaded[np.minimum(at, len(loaded) - 1)], wanted):
            return taken.pick(at)
        unique, at = np.unique(wanted, return_inverse=True)
        return self._take(unique, at).pick(at)

    def _window_of(self, place: int) -> tuple[int, int]:
        """Which window a place is in, and where that ends. Without a shuffle, windows are stretches of places."""
        if self._order.shuffle is None:
            window = place // self._span_rows
            return window, (window + 1) * self._span_rows
        window = min(self._order.window_at(place), self._order.window_count - 1)
        return window, self._order.window_span(window)[1]

    def _span(self, window: int) -> tuple[int, int]:
        """The places of a window; none beyond the last."""
        if self._order.shuffle is None:
            first = min(window * self._span_rows, self._order.count)
            return first, min(first + self._span_rows, self._order.count)
        if window >= self._order.window_count:
            return self._order.count, self._order.count
        return self._order.window_span(window)

    def _load(self, window: int) -> Future[tuple[NDArray[np.int64], Taken]]:
        with self._lock:
            future = self._loaded.get(window)
            if future is None:
                future = self._loaded[window] = self._pool.submit(self._read, window)
            return future

    def _read(self, window: int) -> tuple[NDArray[np.int64], Taken]:
        start, stop = self._span(window)
        wanted = self._order.samples(start, stop)[self._mine(start, stop) - start]
        samples = np.sort(wanted)
        return samples, self._take(samples, np.searchsorted(samples, wanted))
