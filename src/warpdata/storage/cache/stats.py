"""Statistics of a cache directory: its content, and the counts of all processes that used it.

The counts are best effort: a process that is killed, or a disk that fails, leaves them out. They are for people.
Implements "Totals" of docs/specs/cache.md.
"""

from __future__ import annotations

import atexit
import os
import threading
from collections import deque
from contextlib import suppress
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from weakref import WeakSet

import msgspec

from warpdata.primitives.fork import register_after_fork
from warpdata.primitives.lock_file import LockFile
from warpdata.storage import IOMetrics, IOStats, check_private_directory, open_private

__all__ = ["CacheStats", "TotalsWriter", "add_to_totals", "read_totals"]

_NAME = "totals.json"
_MAX_BYTES = 4096
_MAX_ORPHANS = 64


@dataclass(frozen=True, slots=True)
class CacheStats:
    """The content of a cache. `parts` are partial blobs, including those that killed processes left."""

    entries: int
    bytes: int
    limit_bytes: int
    parts: int
    part_bytes: int


class TotalsWriter:
    """Adds the counts of one session to the totals of a directory: when asked, and at the latest at exit.

    Counts outlive their session, so that one that is collected early loses nothing.
    """

    def __init__(self, directory: Path, counters: IOMetrics) -> None:
        self._directory = directory
        self._counters = counters
        self._reset_after_fork()
        _writers.add(self)
        while len(_orphans) > _MAX_ORPHANS:
            _orphans.popleft().save()

    def _reset_after_fork(self) -> None:
        self._lock = threading.Lock()
        self._saved = IOStats()

    def save(self) -> None:
        """Add the counts since the last call. Never raises."""
        with self._lock:
            now = self._counters.snapshot()
            if add_to_totals(self._directory, now.since(self._saved)):
                self._saved = now

    def keep(self) -> None:
        """Keep the counts of a session that is collected. Takes no lock, so it is safe in a finalizer."""
        _orphans.append(self)


_writers: WeakSet[TotalsWriter] = WeakSet()
_orphans: deque[TotalsWriter] = deque()


@atexit.register
def _save_all() -> None:
    for writer in [*_writers, *_orphans]:
        writer.save()


def _forget_parent() -> None:
    """Start a forked child without the counts of its parent, which saves them itself."""
    _orphans.clear()
    for writer in [*_writers]:
        writer._reset_after_fork()  # noqa: SLF001 - of this module


register_after_fork(_forget_parent)


def add_to_totals(directory: Path, counts: IOStats) -> bool:
    """Add counts to the totals. False: the directory does not exist, or another process has the file locked."""
    if not any(asdict(counts).values()) or not directory.is_dir():
        return False
    with suppress(OSError):
        check_private_directory(directory)
        file = LockFile(open_private(directory / _NAME, os.O_RDWR | os.O_CREAT))
        if file.try_lock(exclusive=True):
            known = asdict(_parse(os.pread(file.fd, _MAX_BYTES, 0)))
            added = {name: known[name] + amount for name, amount in asdict(counts).items()}
            data = msgspec.json.encode(added)
            os.pwrite(file.fd, data, 0)
            os.ftruncate(file.fd, len(data))
            file.unlock()
            return True
    return False


def read_totals(directory: Path) -> IOStats:
    """Return the totals; all zero where nothing was added yet."""
    with suppress(OSError):
        file = LockFile(open_private(directory / _NAME, os.O_RDONLY))
        return _parse(os.pread(file.fd, _MAX_BYTES, 0))
    return IOStats()


def _parse(data: bytes) -> IOStats:
    """Return zeros for bytes that are not valid totals. The next addition overwrites them."""
    try:
        found = msgspec.json.decode(data, type=dict[str, int])
    except msgspec.MsgspecError:
        return IOStats()
    return IOStats(**{field.name: max(0, found.get(field.name, 0)) for field in fields(IOStats)})
