"""Files kept open, because opening one costs more than reading a few kilobytes of it.

Only for objects that never change. Reads are by position, so threads and forked processes may share a
handle; a file that is cut off meanwhile gives a short read, never a crash.
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from contextlib import suppress
from pathlib import Path

from warpdata.errors import CorruptError
from warpdata.limits import MAX_OPEN_HANDLES

__all__ = ["Handle", "Handles"]


class Handle:
    """An open file. It is closed when the last user lets go of it, so no read can meet another file's bytes."""

    __slots__ = ("_number",)

    def __init__(self, path: Path) -> None:
        self._number = os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def __del__(self) -> None:
        with suppress(AttributeError, OSError):
            os.close(self._number)

    def fileno(self) -> int:
        return self._number

    def read(self, key: str, start: int, end: int) -> bytes:
        data = os.pread(self._number, end - start, start)
        while len(data) < end - start:
            more = os.pread(self._number, end - start - len(data), start + len(data))
            if not more:
                raise CorruptError(f"{key!r} ends at byte {start + len(data)}; bytes {start}…{end} are not there")
            data += more
        return data


class Handles:
    """The most recently used handles, by key. Safe to share between threads."""

    def __init__(self) -> None:
        self._open: OrderedDict[str, Handle] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: str) -> Handle | None:
        with self._lock:
            handle = self._open.get(key)
            if handle is not None:
                self._open.move_to_end(key)
            return handle

    def add(self, key: str, path: Path) -> Handle:
        handle = Handle(path)
        with self._lock:
            self._open[key] = handle
            if len(self._open) > MAX_OPEN_HANDLES:
                self._open.popitem(last=False)
        return handle

    def drop(self, key: str) -> Handle | None:
        with self._lock:
            return self._open.pop(key, None)
