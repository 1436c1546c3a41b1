"""Entries that this process has open: mapped into memory, and pinned so that nobody evicts them.

The mapping holds a copy of the locked descriptor. So an entry stays pinned exactly as long as
somebody has bytes of it, also after it was forgotten here. Implements "Pins" of docs/specs/cache.md.
"""

from __future__ import annotations

import mmap
import os
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from warpdata.errors import CorruptError
from warpdata.limits import CACHE_CHECKED_ENTRIES, CACHE_OPEN_ENTRIES, CACHE_PIECE_BYTES, CACHE_TOUCH_S
from warpdata.limits import CACHE_UNUSED_PIN_S as UNUSED_PIN_S
from warpdata.primitives.hashing import blob_key
from warpdata.storage import ByteRange, check_spans
from warpdata.storage.cache.layout import MAX_RECORD_BYTES, Places, Record, decode_record
from warpdata.storage.cache.locks import Handle, register_after_fork

__all__ = ["Entry", "OpenEntries", "read_record"]

_SWEEP_S = 1.0


@dataclass(slots=True, eq=False)
class Entry:
    """A blob on this machine. Its bytes are those that once had the right SHA-256; rot is found by `is_whole`."""

    digest: str
    path: Path
    record: Record
    view: memoryview
    size_bytes: int
    identity: tuple[int, int]
    used_at: float
    touched_at: float

    def slice(self, span: ByteRange) -> memoryview:
        start, end = span.start, span.end
        if 0 <= start <= end <= self.size_bytes:
            return self.view[start:end]
        check_spans([span])
        raise CorruptError(f"blob {self.digest} has {self.size_bytes} bytes; bytes {start}…{end} are not there")

    def slices(self, spans: Sequence[ByteRange]) -> list[memoryview]:
        return [self.slice(span) for span in spans]

    def is_in_place(self) -> bool:
        """Whether its path still leads to it."""
        try:
            return self.path.stat().st_ino == self.identity[0]
        except OSError:
            return False

    def is_whole(self) -> bool:
        """Read everything and compare the fast hash."""
        import xxhash

        quick = xxhash.xxh3_128()
        for start in range(0, self.size_bytes, CACHE_PIECE_BYTES):
            quick.update(self.view[start : start + CACHE_PIECE_BYTES])
        return quick.hexdigest() == self.record.quick


class OpenEntries:
    """Remembers entries by their key in a store. Looking one up costs no call of the system.

    `by_key` may be read without a lock by anybody in a hurry, who then calls `use`.
    """

    def __init__(self, places: Places, clock: Callable[[], float]) -> None:
        self.places = places
        self._clock = clock
        self._checked: dict[str, tuple[int, int]] = {}
        self._shunned: set[str] = set()
        self._swept_at = 0.0
        self.by_key: dict[str, Entry] = {}
        self.after_fork()
        register_after_fork(self)

    def after_fork(self) -> None:
        self._lock = threading.Lock()
        self.by_key.clear()

    def use(self, entry: Entry) -> None:
        """Note that the entry was used, on disk at most once a minute."""
        entry.used_at = now = self._clock()
        if now - entry.touched_at >= CACHE_TOUCH_S:
            self._touch(entry)

    def find(self, digest: str) -> Entry | None:
        """The entry, opened if need be. `OSError` where the folder or the file can not be used."""
        key = blob_key(digest)
        entry = self.by_key.get(key)
        if entry is None and digest not in self._shunned:
            entry = open_entry(self.places, digest, self._clock())
            if entry is not None:
                with self._lock:
                    entry = self.by_key.setdefault(key, entry)
                    self._make_way(key)
                if not entry.is_in_place():  # removed while it was opened; who removes it later makes us forget it
                    self.forget(digest)
                    return None
        if entry is not None:
            self.use(entry)
        return entry

    def forget(self, digest: str) -> bool:
        """Whether it was remembered."""
        with self._lock:
            return self.by_key.pop(blob_key(digest), None) is not None

    def shun(self, digest: str) -> None:
        """Never open it again: it is damaged, and can not be removed."""
        self._shunned.add(digest)
        self.forget(digest)

    def release(self, unused_s: float) -> None:
        """Unpin what has not been used for so long, after noting on disk when it was."""
        before = self._clock() - unused_s
        with self._lock:
            for key in [key for key, entry in self.by_key.items() if entry.used_at <= before]:
                self._let_go(key)

    def is_whole(self, entry: Entry) -> bool:
        """As the entry says, but only once for each file in the life of this process."""
        if self._checked.get(entry.digest) == entry.identity:
            return True
        if not entry.is_whole():
            return False
        with self._lock:
            if len(self._checked) >= CACHE_CHECKED_ENTRIES:
                self._checked.clear()
            self._checked[entry.digest] = entry.identity
        return True

    def _make_way(self, newest: str) -> None:
        """Let go of what is not used any more, now and then; and of some at once when there are too many."""
        now = self._clock()
        if now - self._swept_at >= _SWEEP_S or now < self._swept_at:
            self._swept_at = now
            for key in [k for k, entry in self.by_key.items() if now - entry.used_at > UNUSED_PIN_S and k != newest]:
                self._let_go(key)
        if len(self.by_key) > CACHE_OPEN_ENTRIES:
            others = sorted((key for key in self.by_key if key != newest), key=lambda key: self.by_key[key].used_at)
            for key in others[: CACHE_OPEN_ENTRIES // 8]:
                self._let_go(key)

    def _let_go(self, key: str) -> None:
        entry = self.by_key.pop(key)
        if entry.used_at > entry.touched_at:
            self._touch(entry)

    def _touch(self, entry: Entry) -> None:
        entry.touched_at = entry.used_at
        with suppress(OSError):  # a folder that can only be read keeps no times
            os.utime(self.places.record(entry.digest), (entry.used_at, entry.used_at))


def open_entry(places: Places, digest: str, now: float) -> Entry | None:
    """Pin and map the entry; None when there is none, or it is just being evicted."""
    path = places.data(digest)
    try:
        handle = Handle.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return None
    if not handle.try_lock(exclusive=False) or not handle.is_at(path):
        return None
    found = read_record(places, digest)
    status = os.fstat(handle.fd)
    if found is None or found[0].size_bytes != status.st_size:
        return None
    record, touched_at = found
    view = memoryview(b"")
    if record.size_bytes:
        view = memoryview(mmap.mmap(handle.fd, 0, access=mmap.ACCESS_READ))
    handle.close()
    return Entry(digest, path, record, view, record.size_bytes, (status.st_ino, status.st_mtime_ns), now, touched_at)


def read_record(places: Places, digest: str) -> tuple[Record, float] | None:
    """The record and when its entry was last used; None when it is not there or not sound."""
    try:
        handle = Handle.open(places.record(digest), os.O_RDONLY)
    except FileNotFoundError:
        return None
    record = decode_record(digest, os.pread(handle.fd, MAX_RECORD_BYTES, 0))
    return None if record is None else (record, os.fstat(handle.fd).st_mtime)
