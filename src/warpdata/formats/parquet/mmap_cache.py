"""Local files that stay memory-mapped between scans, with the column chunks that were verified.

Mapping a file, faulting in its pages and unmapping it take a twentieth of a short scan; verifying checksums takes a
tenth. So the most recently read files stay mapped, and a column chunk is verified once while its file stays mapped.
A file is identified by its status: a file that was replaced or changed is another file. Implements "Local files" of
docs/specs/tables.md.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from warpdata.limits import GIB
from warpdata.primitives.byte_lru import ByteLRU
from warpdata.primitives.concurrency import descriptor_share

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["MMAP_CACHE", "MappedFile", "MmapCache"]

_MAX_FILES = 128
_SHARE = 1 / 8
_MAX_BYTES = 1 * GIB

_Identity = tuple[int, int, int, int, int]


@dataclass(frozen=True, slots=True)
class MappedFile:
    """A mapped file. Several threads may share it, so read `source` by position only."""

    source: pa.NativeFile
    data: memoryview
    """All bytes of the file, not copied."""
    verified: set[tuple[int, int]] = field(default_factory=set)
    """The column chunks whose pages all match their checksums, as (row group, leaf column)."""


class MmapCache:
    """The most recently opened files, at most `max_bytes` together. Safe to share between threads.

    A forked child starts empty.
    """

    def __init__(self, max_bytes: int) -> None:
        most = descriptor_share(_SHARE, _MAX_FILES)
        self._files: ByteLRU[_Identity, MappedFile] = ByteLRU(max_bytes, max_entries=most, clear_after_fork=True)

    def open(self, path: Path) -> MappedFile:
        """Map the file that is at `path` now, or return its mapping. A file above `max_bytes` is not cached."""
        status = path.stat()
        identity = (status.st_size, status.st_dev, status.st_ino, status.st_mtime_ns, status.st_ctime_ns)
        return self._files.get_or_create(identity, lambda: _map(path), lambda _: status.st_size)

    def clear(self) -> None:
        """Drop all mappings that no reader uses."""
        self._files.clear()


def _map(path: Path) -> MappedFile:
    import pyarrow as pa

    source = pa.memory_map(str(path))
    return MappedFile(source, memoryview(source.read_buffer()).cast("B"))


MMAP_CACHE = MmapCache(_MAX_BYTES)
