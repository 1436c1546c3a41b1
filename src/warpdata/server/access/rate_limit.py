"""A limit on failed attempts, by the address of the client."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable

from warpdata.errors import RateLimitedError

__all__ = ["AttemptLimit"]

_WINDOW_S = 60.0
_MAX_ADDRESSES = 10_000


class AttemptLimit:
    """Counts failures within a minute. Memory is bounded: the longest silent addresses are forgotten."""

    def __init__(self, attempts: int, timer: Callable[[], float]) -> None:
        self._attempts = attempts
        self._timer = timer
        self._failures: OrderedDict[str, list[float]] = OrderedDict()
        self._lock = threading.Lock()

    def check(self, ip: str) -> None:
        """Raise `RateLimitedError` if the address has failed too often."""
        with self._lock:
            recent = self._recent(ip)
        if len(recent) >= self._attempts:
            wait = max(1, int(recent[0] + _WINDOW_S - self._timer()) + 1)
            raise RateLimitedError(
                f"{len(recent)} attempts to sign in failed within a minute",
                retry_after_s=wait,
                hint=f"Try again in {wait} seconds.",
            )

    def fail(self, ip: str) -> None:
        """Count a failure."""
        with self._lock:
            recent = self._recent(ip)
            recent.append(self._timer())
            self._failures[ip] = recent[-self._attempts :]
            self._failures.move_to_end(ip)
            while len(self._failures) > _MAX_ADDRESSES:
                self._failures.popitem(last=False)

    def _recent(self, ip: str) -> list[float]:
        start = self._timer() - _WINDOW_S
        return [time for time in self._failures.get(ip, ()) if time > start]
