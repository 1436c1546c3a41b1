"""Progress of long operations: a callback receives events. The default callback ignores them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

__all__ = ["Progress", "ProgressCounter", "ProgressEvent", "silent"]


@dataclass(frozen=True, slots=True)
class ProgressEvent:
    """A step of long work. Totals are 0 while unknown, and rows count as bytes.

    `stage` is "hash", "upload", "copy", "verify", "warm", "export", "rows", "list", "wait", "index"
    or "delete".
    """

    stage: str
    done_bytes: int
    total_bytes: int
    done_files: int
    total_files: int


Progress: TypeAlias = Callable[[ProgressEvent], None]


def silent(event: ProgressEvent) -> None:
    """Ignore progress."""


class ProgressCounter:
    """Counts bytes and finished files from many threads and reports each step, one at a time."""

    def __init__(self, progress: Progress, stage: str, total_bytes: int, total_files: int) -> None:
        self._progress = progress
        self._event = ProgressEvent(stage, 0, total_bytes, 0, total_files)
        self._lock = threading.Lock()
        progress(self._event)

    def add_bytes(self, size_bytes: int) -> None:
        """Bytes sent a second time, after a lost reply, do not lead beyond the total."""
        self._add(size_bytes, 0)

    def finish_file(self) -> None:
        self._add(0, 1)

    def finish_files(self, count: int) -> None:
        """Report many finished files in one step."""
        self._add(0, count)

    def _add(self, size_bytes: int, files: int) -> None:
        with self._lock:
            old = self._event
            done_bytes = min(old.done_bytes + size_bytes, old.total_bytes)
            self._event = ProgressEvent(old.stage, done_bytes, old.total_bytes, old.done_files + files, old.total_files)
            self._progress(self._event)
