"""Pauses between attempts that grow, with jitter, until a number of attempts or a time is over."""

from __future__ import annotations

import random
import threading
import time

__all__ = ["Backoff"]

_FIRST_PAUSE_S = 0.1
_MAX_PAUSE_S = 5.0


class Backoff:
    """The pauses of one call. The second half of each is random, so that failed calls do not all return together."""

    def __init__(self, max_retries: int, timeout_s: float) -> None:
        self._left = max_retries
        self._ends_at = time.monotonic() + timeout_s
        self._pause_s = _FIRST_PAUSE_S

    def wait(self) -> bool:
        """Pause, and return True; at once False if the call is to fail."""
        pause_s = self._pause_s * random.uniform(0.5, 1.0)  # noqa: S311 - spreads load
        if self._left <= 0 or time.monotonic() + pause_s > self._ends_at:
            return False
        self._left -= 1
        self._pause_s = min(_MAX_PAUSE_S, 2 * self._pause_s)
        threading.Event().wait(pause_s)
        return True
