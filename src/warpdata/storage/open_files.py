"""Open files of local stores: one bounded LRU for the process, whatever the number of stores and datasets.

Files of blobs stay open between reads, because opening one takes longer than a small read. The bound is an eighth of
the limit of the process. Implements "Descriptors" of docs/specs/store.md.
"""

from __future__ import annotations

import errno
import mmap
import os
import weakref
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from warpdata.errors import CorruptError
from warpdata.limits import MAX_OPEN_HANDLES
from warpdata.primitives.byte_lru import ByteLRU
from warpdata.primitives.descriptors import descriptor_share

__all__ = ["OPEN_FILES", "OpenFile", "OpenFiles", "retry_without_descriptors"]

_SHARE = 1 / 8
_T = TypeVar("_T")


class OpenFile:
    """A file that is closed with its last reference, so a read never meets a reused descriptor.

    Reads are by position, so threads and forked processes may share it. A file that is truncated meanwhile gives a
    short read, never a crash.
    """

    __slots__ = ("__weakref__", "_mapping", "fd")

    def __init__(self, path: Path) -> None:
        self.fd = os.open(path, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))
        self._mapping: weakref.ref[mmap.mmap] | None = None

    def __del__(self) -> None:
        with suppress(AttributeError, OSError):
            os.close(self.fd)

    def read(self, key: str, start: int, end: int) -> bytes:
        data = os.pread(self.fd, end - start, start)
        while len(data) < end - start:
            more = os.pread(self.fd, end - start - len(data), start + len(data))
            if not more:
                raise CorruptError(f"{key!r} ends at byte {start + len(data)}, so it has no bytes {start}…{end}")
            data += more
        return data

    def map(self) -> memoryview:
        """Return the whole file, mapped. Views that are alive at the same time share one mapping and descriptor."""
        known = None if self._mapping is None else self._mapping()
        if known is None or len(known) != os.fstat(self.fd).st_size:
            known = mmap.mmap(self.fd, 0, access=mmap.ACCESS_READ)
            self._mapping = weakref.ref(known)
        return memoryview(known)


class OpenFiles:
    """The most recently used files, by path. Safe to share between threads."""

    def __init__(self) -> None:
        self._files: ByteLRU[str, OpenFile] = ByteLRU(max_entries=MAX_OPEN_HANDLES)

    def get(self, path: str) -> OpenFile | None:
        return self._files.get(path)

    def open(self, path: Path, *, keep: bool) -> OpenFile:
        """Open a file, and with `keep` leave it open for later reads."""
        file = retry_without_descriptors(lambda: OpenFile(path))
        if keep:
            self._files.max_entries = descriptor_share(_SHARE, MAX_OPEN_HANDLES)
            self._files.put(str(path), file)
        return file

    def forget(self, path: str) -> OpenFile | None:
        """Close a file that was replaced or removed, once no thread reads it."""
        return self._files.pop(path)

    def clear(self) -> None:
        self._files.clear()


OPEN_FILES = OpenFiles()


def retry_without_descriptors(act: Callable[[], _T]) -> _T:
    """Return `act()`. If the process has no descriptors left, close the files that are only kept, and try again."""
    try:
        return act()
    except OSError as error:
        if error.errno not in (errno.EMFILE, errno.ENFILE):
            raise
    OPEN_FILES.clear()
    return act()
