"""Local files that stay mapped between scans, and what of them was found sound.

Mapping a file, touching its pages for the first time and unmapping it again take a twentieth of a
short scan; comparing checksums takes a tenth. So the files that were read last stay mapped, as many
as are not too large together, and a column chunk is compared once while its file stays mapped. A
file is known by what the system says of it: one that was replaced or changed is another file.
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from warpdata.limits import MAX_OPEN_HANDLES, TABLES_MAPPED_BYTES

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["MAPPED", "MappedFile", "MappedFiles"]

_Identity = tuple[int, int, int, int, int]


@dataclass(frozen=True, slots=True)
class MappedFile:
    """Others may have the same one, so it is to be read by position only."""

    source: pa.NativeFile
    sound: set[tuple[int, int]] = field(default_factory=set)
    """The column chunks whose pages were all compared with their checksums: row group and leaf column."""


class MappedFiles:
    """The files that were asked for last, no more than `limit_bytes` together. Safe to share between threads."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self.begin_anew()

    def begin_anew(self) -> None:
        """With nothing, as a forked process does: another thread of its parent may have held the lock."""
        self._lock = threading.Lock()
        self._files: OrderedDict[_Identity, MappedFile] = OrderedDict()
        self._size_bytes = 0

    def open(self, path: Path) -> MappedFile:
        import pyarrow as pa

        identity = _identity(path)
        with self._lock:
            found = self._files.get(identity)
            if found is not None:
                self._files.move_to_end(identity)
                return found
        return self._keep(identity, MappedFile(pa.memory_map(str(path))))

    def _keep(self, identity: _Identity, file: MappedFile) -> MappedFile:
        """This file, or the same one if another thread was faster."""
        with self._lock:
            found = self._files.get(identity)
            if found is not None or _size(identity) > self._limit_bytes:
                return found or file
            self._files[identity] = file
            self._size_bytes += _size(identity)
            while self._size_bytes > self._limit_bytes or len(self._files) > MAX_OPEN_HANDLES:
                oldest, _ = self._files.popitem(last=False)
                self._size_bytes -= _size(oldest)
            return file


def _identity(path: Path) -> _Identity:
    status = path.stat()
    return status.st_size, status.st_dev, status.st_ino, status.st_mtime_ns, status.st_ctime_ns


def _size(identity: _Identity) -> int:
    return identity[0]


MAPPED = MappedFiles(TABLES_MAPPED_BYTES)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=MAPPED.begin_anew)
