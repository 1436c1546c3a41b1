"""Limits that follow the machine and the network: cores, memory for reads, open files, and requests in flight.

Cores and memory are those that the container may use. The number of requests follows measured throughput: it doubles
while throughput grows with it, and returns when it does not. No value is fitted to a machine.
"""

from __future__ import annotations

import contextlib
import functools
import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

from warpdata.limits import MIB
from warpdata.primitives.fork import register_after_fork

if sys.platform != "win32":
    import resource

__all__ = ["AdaptiveLimit", "descriptor_share", "read_ahead_bytes", "usable_cores"]

_MIN_GAIN = 1.15
"""Less throughput than this, for twice the requests, does not pay."""
_REQUEST_WORK_BYTES = 1_000_000
"""Work of a request beyond its bytes, so that many small requests count as throughput too."""
_MIN_WINDOW_S = 0.02
_FIRST_HOLD_WINDOWS = 16
_MAX_HOLD_WINDOWS = 256
_QUOTA_AGE_S = 5.0
_CGROUP = Path("/sys/fs/cgroup")
_MEMORY_FRACTION = 64
_MIN_READ_AHEAD_BYTES, _MAX_READ_AHEAD_BYTES = 128 * MIB, 1024 * MIB


class AdaptiveLimit:
    """A number of requests in flight that follows throughput. Safe to share between threads.

    A limit is judged by as many requests as it allows, after as many that began under the previous limit. Only
    windows in which requests waited for a slot count: throughput of an idle network says nothing.
    """

    def __init__(self, first: int, highest: int, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._first, self._highest = first, highest
        self._clock = clock
        self._value = first
        self._before: tuple[int, float] | None = None
        """The previous limit and its throughput, while another limit is tried; None while the limit holds."""
        self._settling = self._bytes = self._requests = self._saturated = 0
        self._hold_windows = self._windows_held = _FIRST_HOLD_WINDOWS
        self._since = clock()
        self._reset()
        register_after_fork(self._reset)

    @property
    def value(self) -> int:
        """The most requests to have in flight now."""
        return self._value

    def record(self, size_bytes: int, *, is_saturated: bool) -> None:
        """Count a request that has ended. `is_saturated`: others waited for its slot."""
        with self._lock:
            if self._settling:
                self._settling -= 1
                if not self._settling:
                    self._begin_window()
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
        if self._value >= self._highest:
            self._hold(self._value)
            return
        self._before = (self._value, throughput)
        self._set(min(2 * self._value, self._highest))

    def _hold(self, value: int) -> None:
        self._before = None
        self._windows_held = 0
        self._set(value)

    def _set(self, value: int) -> None:
        self._settling = max(self._value, value)
        self._value = value

    def _begin_window(self) -> None:
        self._since = self._clock()
        self._bytes = self._requests = self._saturated = 0

    def _reset(self) -> None:
        self._lock = threading.Lock()
        self._value = self._first
        self._settling = 0
        self._before = None
        self._hold_windows = self._windows_held = _FIRST_HOLD_WINDOWS  # the first window decides
        self._begin_window()


def usable_cores() -> int:
    """Return the number of cores this process may use. It can change while a container runs."""
    affinity = getattr(os, "sched_getaffinity", None)
    cores = len(affinity(0)) if affinity else os.cpu_count() or 1
    return max(1, min(cores, _quota.cores()))


@functools.cache
def read_ahead_bytes() -> int:
    """Return how many stored bytes one reader may hold ahead of its caller: a small part of the usable memory."""
    return min(max(_usable_memory(_CGROUP) // _MEMORY_FRACTION, _MIN_READ_AHEAD_BYTES), _MAX_READ_AHEAD_BYTES)


def _usable_memory(root: Path) -> int:
    """Return the bytes of memory of the machine, or of the container if it has fewer."""
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") if hasattr(os, "sysconf") else 0
    limits = [machine] if machine > 0 else [_MIN_READ_AHEAD_BYTES * _MEMORY_FRACTION]
    for name in ("memory.max", "memory/memory.limit_in_bytes"):
        with contextlib.suppress(OSError, ValueError):  # "max"
            limits.append(int((root / name).read_text()))
    return min(limits)


def descriptor_share(fraction: float, most: int) -> int:
    """Return a fraction of the soft limit of open files, at least 8 and at most `most`. One system call."""
    if sys.platform == "win32":
        return most
    else:
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        return most if soft == resource.RLIM_INFINITY else max(8, min(most, int(soft * fraction)))


class _Quota:
    """The cores that the container's CPU quota allows, read again every few seconds."""

    def __init__(self) -> None:
        self._cores = 0
        self._read_at = -_QUOTA_AGE_S

    def cores(self) -> int:
        now = time.monotonic()
        if now - self._read_at >= _QUOTA_AGE_S:
            self._cores, self._read_at = _read_quota(_CGROUP), now
        return self._cores


_UNLIMITED = 1 << 20
_quota = _Quota()


def _read_quota(root: Path) -> int:
    """Return the whole cores of the quota, rounded up. Reads the files of both versions of cgroups."""
    try:
        limit, period = (root / "cpu.max").read_text().split()
    except (OSError, ValueError):
        try:
            limit = (root / "cpu" / "cpu.cfs_quota_us").read_text().strip()
            period = (root / "cpu" / "cpu.cfs_period_us").read_text().strip()
        except OSError:
            return _UNLIMITED
    try:
        return -(-int(limit) // int(period)) if int(limit) > 0 else _UNLIMITED
    except (ValueError, ZeroDivisionError):
        return _UNLIMITED  # "max"
