"""How many bytes a cache holds or has promised room for, kept by all processes together.

One small file behind a lock. Whoever changes what the total counts holds the lock while doing so, and
a process that is killed can only leave a total that is too high. Implements "The limit" of
docs/specs/cache.md.
"""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from warpdata.limits import CACHE_LEDGER_PATIENCE_S
from warpdata.storage.cache.locks import Handle

__all__ = ["Account", "Ledger"]

_MAGIC = b"warp-cache-1"
_LINE_BYTES = 40
_PAUSE_S = 0.002


class Account:
    """The total, while the lock is held. None: nobody knows, and a survey must tell."""

    def __init__(self, handle: Handle) -> None:
        self._handle = handle
        self._written = self.total_bytes = _parse(os.pread(handle.fd, _LINE_BYTES + 1, 0))

    def add(self, size_bytes: int) -> None:
        """More is on disk when this returns, and then may be taken; less is written at the end."""
        if self.total_bytes is not None:
            self.total_bytes = max(0, self.total_bytes + size_bytes)
            if size_bytes > 0:
                self.write()

    def write(self) -> None:
        if self.total_bytes is not None and self.total_bytes != self._written:
            os.pwrite(self._handle.fd, _spell(self.total_bytes), 0)
            self._written = self.total_bytes


class Ledger:
    """The file at `path`, which is made when first needed; its folder must be there."""

    def __init__(self, path: Path) -> None:
        self._path = path

    @contextmanager
    def locked(self, patience_s: float = CACHE_LEDGER_PATIENCE_S) -> Iterator[Account]:
        """The account, written back at the end whatever happens. `OSError` when the lock can not be had."""
        handle = self._lock(patience_s)
        try:
            account = Account(handle)
            try:
                yield account
            finally:
                account.write()
        finally:
            handle.unlock()
            handle.close()

    def _lock(self, patience_s: float) -> Handle:
        pause = threading.Event()
        for _ in range(max(1, int(patience_s / _PAUSE_S))):
            handle = Handle.open(self._path, os.O_RDWR | os.O_CREAT)
            while handle.try_lock(exclusive=True):
                if handle.is_at(self._path):
                    return handle
                handle = Handle.open(self._path, os.O_RDWR | os.O_CREAT)
            pause.wait(_PAUSE_S)
        raise OSError(errno.EAGAIN, f"{self._path} stayed locked for {patience_s:g} s")


def _spell(total_bytes: int) -> bytes:
    return b"%s %*d\n" % (_MAGIC, _LINE_BYTES - len(_MAGIC) - 2, total_bytes)


def _parse(line: bytes) -> int | None:
    words = line.split()
    if len(line) != _LINE_BYTES or len(words) != 2 or words[0] != _MAGIC or not words[1].isdigit():
        return None
    return int(words[1])
