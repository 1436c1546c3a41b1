"""The number of bytes that a cache holds or has reserved, shared by all processes.

The total is one small file behind a lock. A process holds the lock while it changes what the total counts. A
process that is killed can only leave a total that is too high. Implements "Limit" of docs/specs/cache.md.
"""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from warpdata.primitives.lock_file import LockFile
from warpdata.storage import open_private

__all__ = ["TIMEOUT_S", "Quota", "QuotaTransaction"]

_MAGIC = b"warp-cache-1"
_LINE_BYTES = 40
_POLL_S = 0.002
TIMEOUT_S = 30.0
_STUCK_TIMEOUT_S = 0.1


class QuotaTransaction:
    """The total while its lock is held. `total_bytes` is None if it is unknown and must be counted by a scan."""

    def __init__(self, file: LockFile) -> None:
        self._file = file
        self._written = self.total_bytes = _parse(os.pread(file.fd, _LINE_BYTES + 1, 0))

    def add(self, size_bytes: int) -> None:
        """Change the total. An increase is written before this returns, a decrease when the transaction ends."""
        if self.total_bytes is None:
            return
        if self.total_bytes + size_bytes < 0:
            self.total_bytes = None  # the total was wrong before; the next reservation counts the files
            return
        self.total_bytes += size_bytes
        if size_bytes > 0:
            self.write()

    def write(self) -> None:
        if self.total_bytes == self._written:
            return
        if self.total_bytes is None:
            os.ftruncate(self._file.fd, 0)
        else:
            os.pwrite(self._file.fd, _format(self.total_bytes), 0)
            os.ftruncate(self._file.fd, _LINE_BYTES)
        self._written = self.total_bytes


class Quota:
    """The total in the file `path`, which is made by the first transaction. Its directory must exist."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._is_stuck = False
        """Set while the lock stays taken, for example by a stopped process. Later calls then wait only briefly."""

    @contextmanager
    def transaction(self, timeout_s: float = TIMEOUT_S) -> Iterator[QuotaTransaction]:
        """Lock the total and write it back in any case. `BlockingIOError` if the lock stays taken."""
        file = self._lock(timeout_s)
        try:
            transaction = QuotaTransaction(file)
            try:
                yield transaction
            finally:
                transaction.write()
        finally:
            file.unlock()
            file.close()

    def _lock(self, timeout_s: float) -> LockFile:
        pause = threading.Event()
        timeout_s = min(timeout_s, _STUCK_TIMEOUT_S) if self._is_stuck else timeout_s
        for _ in range(max(1, int(timeout_s / _POLL_S))):
            file = LockFile(open_private(self._path, os.O_RDWR | os.O_CREAT))
            while file.try_lock(exclusive=True):
                if file.is_at(self._path):
                    self._is_stuck = False
                    return file
                file = LockFile(open_private(self._path, os.O_RDWR | os.O_CREAT))
            pause.wait(_POLL_S)
        self._is_stuck = True
        raise OSError(errno.EAGAIN, f"{self._path} stayed locked for {timeout_s:g} s")


def _format(total_bytes: int) -> bytes:
    return b"%s %*d\n" % (_MAGIC, _LINE_BYTES - len(_MAGIC) - 2, total_bytes)


def _parse(line: bytes) -> int | None:
    words = line.split()
    if len(line) != _LINE_BYTES or len(words) != 2 or words[0] != _MAGIC or not words[1].isdigit():
        return None
    return int(words[1])
