"""The record of one source: what it delivered, how it failed, and when it is preferred again.

A failing source is in back-off: reads prefer other sources, and use it only if no other has the bytes. The time grows
with consecutive failures and ends with a success. Implements "Failover" of docs/specs/tensors.md.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from warpdata.errors import CorruptError, WarpError
from warpdata.primitives.fork import register_after_fork

__all__ = ["SYSTEM_CLOCK", "Clock", "SourceHealth", "SourceStats", "error_text"]

Clock: TypeAlias = Callable[[], float]
"""Returns seconds since any moment."""

SYSTEM_CLOCK: Clock = time.monotonic
"""The only clock of this package: for back-off, and for time-outs of the server."""

_FIRST_BACKOFF_S = 1.0
_MAX_BACKOFF_S = 60.0
_MAX_ERROR_LENGTH = 300


@dataclass(frozen=True, slots=True)
class SourceStats:
    """The record of one source at one moment.

    `failures` counts all failed reads, `corrupt` those among them whose bytes did not match their hash. During the
    next `backoff_s` seconds, other sources are preferred. A source that is not open failed when the artifact was
    opened, or has something else; `last_error` says why it is not used. `space_kind` is `view` for a source of kept
    bytes of a view.
    """

    kind: str
    name: str
    requests: int
    bytes_read: int
    failures: int
    corrupt: int
    backoff_s: float
    last_error: str | None
    is_open: bool = True
    space_kind: str = "canonical"


class SourceHealth:
    """Counts the reads of one source. Safe to share between threads."""

    def __init__(self, kind: str, name: str, *, space_kind: str = "canonical", clock: Clock = SYSTEM_CLOCK) -> None:
        self.kind = kind
        self.space_kind = space_kind
        self.name = name
        self.is_open = True
        self._clock = clock
        self._lock = threading.Lock()
        self._requests = self._bytes = self._failures = self._corrupt = self._consecutive = 0
        self._is_probing = False
        self._retry_at = clock()
        self._last_error: str | None = None
        register_after_fork(self._reset_after_fork)

    def __repr__(self) -> str:
        return f"SourceHealth({self.kind} {self.name!r}, {self._requests} requests, {self._failures} failures)"

    def is_available(self) -> bool:
        """Return whether the source is not in back-off."""
        return self._clock() >= self._retry_at

    def admit(self) -> bool:
        """Return whether a read may begin here. After a back-off, one read at a time tries the source again.

        So a source that stalls holds up one thread, not all of them.
        """
        with self._lock:
            if self._clock() < self._retry_at:
                return False
            if self._consecutive:
                self._retry_at = self._clock() + _MAX_BACKOFF_S
                self._is_probing = True
            return True

    def succeed(self, size_bytes: int) -> None:
        """Count a read. It ends a back-off only if it was the try after it."""
        with self._lock:
            self._requests += 1
            self._bytes += size_bytes
            if self._is_probing or self._clock() >= self._retry_at:
                self._consecutive, self._is_probing, self._retry_at = 0, False, self._clock()

    def fail(self, error: Exception) -> None:
        """Count a failed read and begin a back-off. Failures during a back-off do not extend it."""
        with self._lock:
            self._requests += 1
            self._failures += 1
            self._corrupt += isinstance(error, CorruptError)
            self._last_error = error_text(error)
            now = self._clock()
            if self._is_probing or now >= self._retry_at:
                self._retry_at = now + min(_FIRST_BACKOFF_S * 2**self._consecutive, _MAX_BACKOFF_S)
                self._consecutive = min(self._consecutive + 1, 30)
                self._is_probing = False

    def fail_open(self, error: Exception) -> None:
        """Record that the source could not be opened."""
        self.fail(error)
        self.is_open = False

    def skip(self, reason: str) -> None:
        """Record that the source is valid, but has something else."""
        self._last_error = reason
        self.is_open = False

    def stats(self) -> SourceStats:
        with self._lock:
            return SourceStats(
                kind=self.kind,
                name=self.name,
                requests=self._requests,
                bytes_read=self._bytes,
                failures=self._failures,
                corrupt=self._corrupt,
                backoff_s=max(0.0, self._retry_at - self._clock()),
                last_error=self._last_error,
                is_open=self.is_open,
                space_kind=self.space_kind,
            )

    def _reset_after_fork(self) -> None:
        self._lock = threading.Lock()


def error_text(error: Exception) -> str:
    """Return the message of an error on one line, without its hint."""
    text = " ".join((error.message if isinstance(error, WarpError) else str(error) or type(error).__name__).split())
    return text if len(text) <= _MAX_ERROR_LENGTH else f"{text[: _MAX_ERROR_LENGTH - 1]}…"
