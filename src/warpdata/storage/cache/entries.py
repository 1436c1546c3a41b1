"""Entries that this process has open: mapped into memory, and pinned so that no process evicts them.

The mapping holds a copy of the locked descriptor. An entry therefore stays pinned while any view of its bytes is
alive, also after it was dropped here. Implements "Pins" of docs/specs/cache.md.
"""

from __future__ import annotations

import mmap
import os
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from weakref import WeakValueDictionary

from warpdata.errors import AccessDeniedError, CorruptError
from warpdata.limits import MIB
from warpdata.primitives.concurrency import descriptor_share
from warpdata.primitives.fork import ForkSafeLock, register_after_fork
from warpdata.primitives.hashing import blob_key
from warpdata.primitives.live_objects import LiveObjects
from warpdata.primitives.lock_file import LockFile
from warpdata.primitives.ranges import ByteRange, check_ranges
from warpdata.storage import open_private
from warpdata.storage.cache.layout import MAX_RECORD_BYTES, CacheLayout, Record, decode_record

__all__ = ["MAX_OPEN", "PIN_S", "TOUCH_S", "CacheEntry", "OpenEntries", "open_entry", "read_record", "shared_entries"]

MAX_OPEN = 256
"""The most entries that a process has open, over all caches. A lower limit of the system allows fewer."""
_SHARE = 1 / 8
PIN_S = 60.0
"""An entry that was not used for this long is unpinned when another is opened."""
TOUCH_S = 60.0
"""The last use is written to disk at most this often."""
_MAX_CHECKED = 65_536
_HASH_CHUNK_BYTES = 8 * MIB
_SWEEP_S = 1.0


@dataclass(slots=True, eq=False)
class CacheEntry:
    """A blob on this machine. Its SHA-256 was right when it was committed; `is_intact` finds later damage."""

    digest: str
    path: Path
    record: Record
    view: memoryview
    size_bytes: int
    identity: tuple[int, int]
    used_at: float
    touched_at: float

    def slice(self, span: ByteRange) -> memoryview:
        start, end = span
        if 0 <= start <= end <= self.size_bytes:
            return self.view[start:end]
        check_ranges([span])
        raise CorruptError(f"blob {self.digest} has {self.size_bytes} bytes, so it has no bytes {start}…{end}")

    def slices(self, spans: Sequence[ByteRange]) -> list[memoryview]:
        return [self.slice(span) for span in spans]

    def is_in_place(self) -> bool:
        """Return whether the path still names this entry."""
        try:
            return self.path.stat().st_ino == self.identity[0]
        except OSError:
            return False

    def is_intact(self) -> bool:
        """Read all bytes and compare their XXH3-128."""
        import xxhash

        quick = xxhash.xxh3_128()
        for start in range(0, self.size_bytes, _HASH_CHUNK_BYTES):
            quick.update(self.view[start : start + _HASH_CHUNK_BYTES])
        return quick.hexdigest() == self.record.quick


class OpenEntries:
    """The open entries by their key in a store. A lookup of an open entry makes no system call.

    `by_key` may be read without a lock; the reader then calls `use`.
    """

    def __init__(self, layout: CacheLayout, clock: Callable[[], float]) -> None:
        self.layout = layout
        self._clock = clock
        self._checked: dict[str, tuple[int, int]] = {}
        self._quarantined: set[str] = set()
        self._swept_at = 0.0
        self.by_key: dict[str, CacheEntry] = {}
        self._reset_after_fork()
        register_after_fork(self._reset_after_fork)

    def _reset_after_fork(self) -> None:
        self._lock = threading.Lock()
        self.by_key.clear()

    def use(self, entry: CacheEntry) -> None:
        """Record that the entry is used, on disk at most once a minute."""
        entry.used_at = now = self._clock()
        if now - entry.touched_at >= TOUCH_S:
            self._touch(entry)

    def find(self, digest: str) -> CacheEntry | None:
        """Return the entry, opened if necessary. `OSError` if the directory or the file cannot be used."""
        key = blob_key(digest)
        entry = self.by_key.get(key)
        if entry is None and digest not in self._quarantined:
            entry = open_entry(self.layout, digest, self._clock())
            if entry is not None:
                with self._lock:
                    entry = self.by_key.setdefault(key, entry)
                    self._limit_open(key)
                if not entry.is_in_place():  # removed while it was opened; a later removal calls `forget` itself
                    self.forget(digest)
                    return None
        if entry is not None:
            self.use(entry)
        return entry

    def forget(self, digest: str) -> bool:
        """Drop an entry from the open ones. Return whether it was open."""
        with self._lock:
            return self.by_key.pop(blob_key(digest), None) is not None

    def quarantine(self, digest: str) -> None:
        """Never open this entry again: it is corrupt and cannot be removed."""
        self._quarantined.add(digest)
        self.forget(digest)

    def release(self, unused_s: float) -> None:
        """Unpin the entries that were not used for this long, and write their last use to disk."""
        before = self._clock() - unused_s
        with self._lock:
            for key in [key for key, entry in self.by_key.items() if entry.used_at <= before]:
                self._close(key)

    def is_intact(self, entry: CacheEntry) -> bool:
        """Check the bytes of the entry, but each file only once in the life of this process."""
        if self._checked.get(entry.digest) == entry.identity:
            return True
        if not entry.is_intact():
            return False
        with self._lock:
            if len(self._checked) >= _MAX_CHECKED:
                self._checked.clear()
            self._checked[entry.digest] = entry.identity
        return True

    def _limit_open(self, newest: str) -> None:
        """Close unused entries once in a while, and the least recently used ones when too many are open."""
        now = self._clock()
        if now - self._swept_at >= _SWEEP_S or now < self._swept_at:
            self._swept_at = now
            for key in [k for k, entry in self.by_key.items() if now - entry.used_at > PIN_S and k != newest]:
                self._close(key)
        _all_opened.add(self)
        most = descriptor_share(_SHARE, MAX_OPEN)
        excess = sum(len(opened.by_key) for opened in _all_opened) - most
        if excess > 0:
            others = sorted((key for key in self.by_key if key != newest), key=lambda key: self.by_key[key].used_at)
            for key in others[: max(excess, most // 8)]:
                self._close(key)

    def _close(self, key: str) -> None:
        entry = self.by_key.pop(key)
        if entry.used_at > entry.touched_at:
            self._touch(entry)

    def _touch(self, entry: CacheEntry) -> None:
        entry.touched_at = entry.used_at
        with suppress(OSError):  # a read-only directory keeps no times
            os.utime(self.layout.record(entry.digest), (entry.used_at, entry.used_at))


_all_opened: LiveObjects[OpenEntries] = LiveObjects()
_shared: WeakValueDictionary[Path, OpenEntries] = WeakValueDictionary()
_shared_lock = ForkSafeLock()


def shared_entries(directory: Path, clock: Callable[[], float]) -> OpenEntries:
    """Return the open entries of a cache directory, one object for all sessions of this process."""
    with _shared_lock:
        found = _shared.get(directory)
        if found is None:
            found = _shared[directory] = OpenEntries(CacheLayout(directory / "blobs"), clock)
        return found


def open_entry(layout: CacheLayout, digest: str, now: float) -> CacheEntry | None:
    """Pin and map the entry. None: there is none, or another process is evicting it."""
    path = layout.data(digest)
    try:
        file = LockFile(open_private(path, os.O_RDONLY))
    except (FileNotFoundError, AccessDeniedError):  # a file that another user can change is no entry
        return None
    if not file.try_lock(exclusive=False) or not file.is_at(path):
        return None
    found = read_record(layout, digest)
    status = os.fstat(file.fd)
    if found is None or found[0].size_bytes != status.st_size:
        return None
    record, touched_at = found
    view = memoryview(b"")
    if record.size_bytes:
        view = memoryview(mmap.mmap(file.fd, 0, access=mmap.ACCESS_READ))
    file.close()
    identity = (status.st_ino, status.st_mtime_ns)
    return CacheEntry(digest, path, record, view, record.size_bytes, identity, now, touched_at)


def read_record(layout: CacheLayout, digest: str) -> tuple[Record, float] | None:
    """Return the record and the time of the entry's last use. None: there is no valid record."""
    try:
        file = LockFile(open_private(layout.record(digest), os.O_RDONLY))
    except (FileNotFoundError, AccessDeniedError):
        return None
    record = decode_record(digest, os.pread(file.fd, MAX_RECORD_BYTES, 0))
    return None if record is None else (record, os.fstat(file.fd).st_mtime)
