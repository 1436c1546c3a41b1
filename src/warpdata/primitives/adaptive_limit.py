"""A number of requests in flight, and a size of requests, that follow the network.

The number doubles while throughput grows with it, returns when it does not, and is halved when a server fails or asks
for fewer requests. The size follows the time that a request takes. No value is fitted to a machine.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from warpdata.primitives.fork import register_after_fork

__all__ = ["AdaptiveLimit", "AdaptiveSize"]

_MIN_GAIN = 1.15
"""Less throughput than this, for twice the requests, does not pay."""
_REQUEST_WORK_BYTES = 1_000_000
"""Work of a request beyond its bytes, so that many small requests count as throughput too."""
_MIN_WINDOW_S = 0.02
_FIRST_HOLD_WINDOWS = 16
_MAX_HOLD_WINDOWS = 256
_TRANSFER_S = (0.25, 1.0)
"""Sizes grow while a transfer takes less time, and shrink if it takes more."""


class AdaptiveLimit:
    """A number of requests in flight that follows throughput. Safe to share between threads.

    A limit is judged by as many requests as it allows, after those that began under the previous limit. Only windows
    in which requests waited for a slot count: throughput of an idle network says nothing.
    """

    def __init__(self, first: int, highest: int, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._first, self.highest = first, highest
        self._clock = clock
        self._fixed: int | None = None
        self._value = first
        self._before: tuple[int, float] | None = None
        """The previous limit and its throughput, while another limit is tried; None while the limit holds."""
        self._settling = self._bytes = self._requests = self._saturated = 0
        self._hold_windows = self._windows_held = _FIRST_HOLD_WINDOWS
        self._in_flight = self._waiting = 0
        self._since = clock()
        self.slow_downs = 0
        """How often the limit was halved."""
        self._reset()
        register_after_fork(self._reset)

    @property
    def value(self) -> int:
        """The most requests to have in flight now."""
        return self._value if self._fixed is None else self._fixed

    @property
    def is_fixed(self) -> bool:
        return self._fixed is not None

    def fix(self, value: int | None) -> None:
        """Use this number, whatever the throughput; None to follow it again."""
        with self._freed:
            self._fixed = value
            self._freed.notify_all()

    def acquire(self) -> None:
        """Wait for a slot, for one request. Its holder must not wait for another slot, and ends with `release`."""
        with self._lock:
            if self._in_flight >= self.value:
                self._waiting += 1
                try:
                    self._freed.wait_for(lambda: self._in_flight < self.value)
                finally:
                    self._waiting -= 1
            self._in_flight += 1

    def release(self) -> None:
        """Give a slot back."""
        with self._lock:
            self._in_flight = max(0, self._in_flight - 1)  # a forked child begins with none
            if self._waiting:
                self._freed.notify()

    @property
    def is_saturated(self) -> bool:
        """Return whether requests wait for a slot."""
        return self._waiting > 0

    def record(self, size_bytes: int, *, is_saturated: bool) -> None:
        """Count a request that has ended. `is_saturated`: others waited for its slot, or for a thread."""
        with self._lock:
            if self._settling:
                self._settle()
                return
            self._bytes += size_bytes
            self._requests += 1
            self._saturated += is_saturated
            elapsed_s = self._clock() - self._since
            if self._requests < self._value or elapsed_s < _MIN_WINDOW_S:
                return
            if 2 * self._saturated >= self._requests:
                self._decide((self._bytes + _REQUEST_WORK_BYTES * self._requests) / elapsed_s)
            self._begin_window()

    def back_off(self) -> None:
        """Halve the limit: a server failed, or asked for fewer requests. One answer of many in flight counts."""
        with self._lock:
            if not self._settling or self._before is not None:  # else the request began before the limit was halved
                self.slow_downs += 1
                self._hold_windows = min(2 * self._hold_windows, _MAX_HOLD_WINDOWS)
                self._hold(max(1, self._value // 2))
            self._settle()

    def _decide(self, throughput: float) -> None:
        if self._before is None:  # holding
            self._windows_held += 1
            if self._windows_held >= self._hold_windows:
                self._probe(throughput)
        elif throughput >= _MIN_GAIN * self._before[1]:
            self._hold_windows = _FIRST_HOLD_WINDOWS
            self._probe(throughput)
        else:
            self._hold_windows = min(2 * self._hold_windows, _MAX_HOLD_WINDOWS)
            self._hold(self._before[0])

    def _probe(self, throughput: float) -> None:
        """Try twice the requests."""
        if self._value >= self.highest:
            self._hold(self._value)
            return
        self._before = (self._value, throughput)
        self._set(min(2 * self._value, self.highest))

    def _hold(self, value: int) -> None:
        self._before = None
        self._windows_held = 0
        self._set(value)

    def _set(self, value: int) -> None:
        self._settling = self._value  # requests that are in flight now
        self._value = value
        self._freed.notify_all()

    def _settle(self) -> None:
        """Count the end of a request that began under another limit."""
        self._settling -= 1
        if not self._settling:
            self._begin_window()

    def _begin_window(self) -> None:
        self._since = self._clock()
        self._bytes = self._requests = self._saturated = 0

    def _reset(self) -> None:
        self._lock = threading.RLock()
        self._freed = threading.Condition(self._lock)
        self._in_flight = self._waiting = 0
        self._value = self._first
        self._settling = 0
        self._before = None
        self._hold_windows = self._windows_held = _FIRST_HOLD_WINDOWS  # the first window decides
        self._begin_window()


class AdaptiveSize:
    """A size of transfers that take between a quarter of a second and a second. Safe to share between threads.

    Several transfers in flight then finish soon after each other, and a reader that waits for one sees progress.
    """

    def __init__(self, first: int, lowest: int, highest: int, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.value = first
        """The size of the next transfer, in bytes."""
        self._lowest, self._highest = lowest, highest
        self._clock = clock

    @contextmanager
    def measuring(self, size_bytes: int) -> Iterator[None]:
        """Measure the transfer of the block. Smaller ones than the present size say nothing about larger ones."""
        value = self.value
        if size_bytes < value:
            yield
            return
        begun = self._clock()
        yield
        elapsed_s, (fast_s, slow_s) = self._clock() - begun, _TRANSFER_S
        if value != self.value:
            return
        if elapsed_s < fast_s:
            self.value = min(self._highest, 2 * value)
        elif elapsed_s > slow_s:
            self.value = max(self._lowest, value // 2)
