"""The cache folder: blobs by their SHA-256, shared by all processes of a machine, within a limit of bytes.

It fetches nothing and starts no thread; a `CachedReader` does. To those who read, a disk that fails
means that nothing is cached; only those who ask about the folder itself get an error. Implements
"Files" and "Filling" of docs/specs/cache.md.
"""

from __future__ import annotations

import errno
import hashlib
import logging
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from warpdata.errors import StorageError, WarpError
from warpdata.limits import CACHE_REST_S, STREAM_CHUNK_BYTES
from warpdata.primitives.hashing import Blob, OnBytes, ignore_bytes
from warpdata.storage.cache.dir_scan import survey
from warpdata.storage.cache.entries import Entry, OpenEntries, read_record
from warpdata.storage.cache.eviction import Collected, Room
from warpdata.storage.cache.layout import Places, Record, encode_record, sync_folder
from warpdata.storage.cache.locks import Handle
from warpdata.storage.cache.metrics import IOMetrics, IOStats
from warpdata.storage.cache.partial import (
    MAP_BEAT_BYTES,
    TRAILER_BYTES,
    Claim,
    Part,
    Progress,
    reserved_bytes,
    unit_count,
)
from warpdata.storage.cache.quota import Ledger
from warpdata.storage.cache.shared_partial import Elsewhere
from warpdata.storage.cache.stats_file import add_to_totals

__all__ = ["BlobCache", "CacheStats", "Damage", "Refusal"]

_LOG = logging.getLogger("warpdata.storage.cache")
_CLAIM_TRIES, _CLAIM_TRIES_AT_LEAST = 100, 3
_CLAIM_PAUSE_S = 0.003


class Refusal(Enum):
    """Why a blob can not be filled now."""

    PRESENT = "it is there already"
    BUSY = "another process is filling it"
    TOO_LARGE = "it is larger than the cache may be"
    NO_ROOM = "the cache is full of what is in use"
    RESTING = "the cache could not be written a moment ago"


@dataclass(frozen=True, slots=True)
class CacheStats:
    """What the folder holds. `parts` are being filled, or were when their process was killed."""

    entries: int
    bytes: int
    limit_bytes: int
    parts: int
    part_bytes: int


@dataclass(frozen=True, slots=True)
class Damage:
    """An entry that was not what its name promises, and is gone now."""

    digest: str
    fact: str


class BlobCache:
    """The blobs under `folder`, which is made by the first fill. Safe to share between threads.

    `clock` gives seconds since the epoch, as all processes that share the folder tell them.
    """

    def __init__(
        self, folder: Path, limit_bytes: int, clock: Callable[[], float], counters: IOMetrics | None = None
    ) -> None:
        self.folder = folder
        self.limit_bytes = limit_bytes
        self.clock = clock
        self.counters = counters or IOMetrics()
        self._places = Places(folder / "blobs")
        self.opened = OpenEntries(self._places, clock)
        self._room = Room(self.opened, limit_bytes, clock, self.counters)
        self._ledger = Ledger(self._places.ledger)
        self._rest_until = 0.0
        self._saved = IOStats()
        self._has_complained = False

    def save_counts(self) -> None:
        """Add what was counted since the last time to the totals of the folder."""
        now = self.counters.snapshot()
        if add_to_totals(self.folder, now.since(self._saved)):
            self._saved = now

    # Reading: never fails

    def find(self, digest: str) -> Entry | None:
        """The entry, pinned for as long as it is remembered or its bytes are used."""
        try:
            return self.opened.find(digest)
        except OSError as error:
            self.step_aside(error)
            return None

    def find_whole(self, digest: str) -> Entry | None:
        """As `find`, but read in full and compared, for those who will not look at the bytes themselves."""
        entry = self.find(digest)
        if entry is not None and not entry.is_in_place():
            self.opened.forget(digest)  # somebody else found it damaged, or emptied the folder
            entry = self.find(digest)
        if entry is None or self.opened.is_whole(entry):
            return entry
        self.heal(digest)
        return None

    def heal(self, digest: str) -> bool:
        """Drop an entry that is damaged; whether there was one."""
        was_there = self.drop(digest)
        if was_there:
            _LOG.warning("the cached copy of blob %s was damaged, and was dropped", digest)
            self.counters.add("healed")
        return was_there

    def is_entry(self, digest: str) -> bool:
        """Whether the blob is there, as far as its record and its size tell. Costs less than opening it."""
        try:
            found = read_record(self._places, digest)
            return found is not None and self._places.data(digest).stat().st_size == found[0].size_bytes
        except OSError:
            return False

    def drop(self, digest: str) -> bool:
        """Remove the entry, in use or not; whether there was one.

        Those who have it mapped keep their bytes. One that can not be removed is not used any more.
        """
        was_open = self.opened.forget(digest)
        try:
            if not self._places.data(digest).exists():
                return was_open
            with self._ledger.locked() as account:
                was_removed = self._room.remove(account, digest)
            return self.opened.forget(digest) or was_removed or was_open  # it may have been opened again meanwhile
        except OSError as error:
            self.opened.shun(digest)
            self.step_aside(error)
            return True

    def progress_elsewhere(self, digest: str) -> Progress | None:
        """How far somebody else is with filling this blob; None if nobody is at it."""
        try:
            found = self.elsewhere(digest)
            return None if found is None else found.look()
        except OSError as error:
            self.step_aside(error)
            return None

    def elsewhere(self, digest: str) -> Elsewhere | None:
        """The part of this blob, as those see it who do not fill it; None if there is none."""
        return Elsewhere.open(self._places.part(digest), self._places.map(digest))

    def step_aside(self, error: OSError) -> None:
        """The disk does not help. Go on without it, and leave it in peace for a minute."""
        self.counters.add("stepped_aside")
        self._rest_until = self.clock() + CACHE_REST_S
        level = logging.DEBUG if self._has_complained else logging.WARNING
        self._has_complained = True
        _LOG.log(level, "the cache in %s can not be used, and is done without: %s", self.folder, error)

    # Filling: `OSError` where the disk does not help

    def has_hope(self, *, eager: bool) -> bool:
        """Whether trying to fill something could succeed. Costs nothing, so that nothing is asked in vain."""
        has_room = self.limit_bytes > TRAILER_BYTES and not self._room.is_full(eager=eager)
        return has_room and self.clock() >= self._rest_until

    def take_heart(self) -> None:
        """Try again at once, because somebody asks for it."""
        self._rest_until = 0.0

    def claim(self, digest: str) -> Claim | None:
        """Become the one who fills a blob, before it is known how large it is. None if somebody may be at it.

        Waits for nothing, and never fails. What is not made a part by `begin` is to be abandoned.
        """
        path = self._places.part(digest)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            handle = Handle.open(path, os.O_RDWR | os.O_CREAT)
            if not handle.try_lock(exclusive=True) or not handle.is_at(path):
                return None
        except OSError as error:
            self.step_aside(error)
            return None
        claim = Claim(handle, path)
        if self.is_entry(digest):
            self.abandon(claim)
            return None
        return claim

    def begin(self, blob: Blob, *, eager: bool, filling: bool = True, claim: Claim | None = None) -> Part | Refusal:
        """Reserve room for the blob and become the one who fills it; `filling` as in `Part.tell`."""
        need = blob.byte_size + TRAILER_BYTES
        refusal = self._refusal(blob.hash, need)
        if refusal is not None:
            if claim is not None:
                self.abandon(claim)
            return refusal
        path = self._places.part(blob.hash)
        path.parent.mkdir(parents=True, exist_ok=True)
        handle = _claim(path) if claim is None else claim.handle
        if handle is None:
            return Refusal.BUSY
        part = Part(handle, path, blob)
        try:
            refusal = self._reserve(part, need, eager=eager)
            if refusal is None:
                part.tell(filling=filling)
                return part
        except OSError:
            self.abandon(part)
            raise
        part.end()
        handle.unlock()
        return refusal

    def commit(self, part: Part, quick: str) -> bool:
        """Make an entry of a part whose SHA-256 was found right. False if it was abandoned or displaced before."""
        digest, handle, size = part.blob.hash, part.handle, part.blob.byte_size
        os.fsync(handle.fd)
        with self._ledger.locked() as account:
            if not part.end():
                return False
            if not handle.is_at(part.path):
                if part.path.exists() or self.is_entry(digest):
                    return False  # whoever fills it on purpose took its place
                raise FileNotFoundError(errno.ENOENT, f"{part.path} was removed")
            data, staged = self._places.data(digest), self._places.staged_record(digest)
            replaced = data.stat().st_size if data.exists() else 0
            staged.write_bytes(encode_record(digest, Record(size, quick)))
            now = self.clock()
            os.utime(staged, (now, now))
            before = handle.size_bytes()
            os.ftruncate(handle.fd, size)
            account.add(size - before)
            staged.replace(self._places.record(digest))
            self._places.map(digest).unlink(missing_ok=True)
            part.path.replace(data)
            account.add(-replaced)
            handle.unlock()  # from here on it is an entry like any other
        os.fsync(handle.fd)
        sync_folder(part.path.parent)
        return True

    def abandon(self, part: Part | Claim) -> None:
        """Throw a part away. Never fails: what can not be removed now goes with the next survey."""
        if isinstance(part, Part):
            part.end()
        try:
            with self._ledger.locked() as account:
                if part.handle.is_at(part.path):
                    size = part.handle.size_bytes()
                    part.path.with_suffix(".map").unlink(missing_ok=True)
                    part.path.unlink()
                    account.add(-size)
        except OSError as error:
            self.step_aside(error)
        part.handle.unlock()

    def displace(self, digest: str) -> None:
        """Make way for a fill where there is a part that only collects. Whoever has it keeps its bytes."""
        path = self._places.part(digest)
        with self._ledger.locked() as account:
            found = self.elsewhere(digest)
            if found is not None and found.is_collecting():
                size = path.stat().st_size
                self._places.map(digest).unlink(missing_ok=True)
                path.unlink()
                account.add(-size)

    def _refusal(self, digest: str, need: int) -> Refusal | None:
        """Why it can not be filled, as far as that shows without trying."""
        if need > self.limit_bytes:
            return Refusal.TOO_LARGE
        if self.clock() < self._rest_until:
            return Refusal.RESTING
        return Refusal.PRESENT if self.is_entry(digest) else None

    def _reserve(self, part: Part, need: int, *, eager: bool) -> Refusal | None:
        map_path = self._places.map(part.blob.hash)
        with self._ledger.locked() as account:
            map_path.unlink(missing_ok=True)  # before the part is emptied: what it says is true as long as it is there
            account.add(-reserved_bytes(part.handle))  # by a process that was killed
            os.ftruncate(part.handle.fd, 0)
            refusal = None
            if self.is_entry(part.blob.hash):
                refusal = Refusal.PRESENT
            elif not self._room.reserve(account, need, eager=eager):
                refusal = Refusal.NO_ROOM
            if refusal is None:
                account.add(need)
                os.ftruncate(part.handle.fd, need)
                if unit_count(part.blob.byte_size) > 1:
                    part.map = _new_map(map_path, part.blob)
            else:
                part.path.unlink(missing_ok=True)
        return refusal

    # Upkeep: typed errors, because somebody asked

    def stats(self) -> CacheStats:
        """Looks at each entry, so it takes a second for a few hundred thousand."""
        with self._explained():
            found = survey(self._places)
        return CacheStats(len(found), found.entry_bytes, self.limit_bytes, found.part_count, found.part_bytes)

    def collect(self, limit_bytes: int) -> Collected:
        """Evict the least recently used until no more than `limit_bytes` are taken, as far as nobody uses them."""
        with self._explained():
            try:
                self._places.folder.stat()
            except FileNotFoundError:
                return Collected(0, 0, 0)
            with self._ledger.locked() as account:
                found = survey(self._places, tidy=True)
                account.total_bytes = found.total_bytes
                return self._room.evict(account, found, limit_bytes, idle_s=None)

    def clear(self) -> Collected:
        """Evict everything that nobody uses."""
        return self.collect(0)

    def verify(self, on_bytes: OnBytes = ignore_bytes) -> list[Damage]:
        """Hash every entry again, and drop those that are damaged."""
        with self._explained():
            found = survey(self._places)
        problems = []
        for digest, _ in found.least_recent_first():
            fact = self._examine(digest, on_bytes)
            if fact is not None and self.heal(digest):
                problems.append(Damage(digest, fact))
        return problems

    def _examine(self, digest: str, on_bytes: OnBytes) -> str | None:
        self.opened.forget(digest)
        entry = self.find(digest)
        if entry is None:
            # One that can not be opened just now is somebody else's business, who evicts it.
            return None if self.is_entry(digest) else "its record is damaged or tells another size"
        hasher = hashlib.sha256()
        for start in range(0, entry.size_bytes, STREAM_CHUNK_BYTES):
            chunk = entry.view[start : start + STREAM_CHUNK_BYTES]
            hasher.update(chunk)
            on_bytes(len(chunk))
        return None if hasher.hexdigest() == digest else "its bytes do not hash to its name"

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except WarpError:
            raise
        except OSError as error:
            raise StorageError(
                f"the cache in {self.folder} can not be used: {error.strerror or error}",
                hint="Check the folder's owner and mode, or set WARP_CACHE_DIR.",
            ) from error


def _new_map(path: Path, blob: Blob) -> Handle:
    handle = Handle.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL)
    os.ftruncate(handle.fd, 2 * unit_count(blob.byte_size) + MAP_BEAT_BYTES)
    return handle


def _claim(path: Path) -> Handle | None:
    """The part's file, locked by us; None if somebody is filling it.

    Others may have it locked for a moment, to see whether somebody does. A part that has its size is
    surely in other hands; of one that has none yet, nobody knows, so that takes a little longer.
    """
    for attempt in range(_CLAIM_TRIES):
        handle = Handle.open(path, os.O_RDWR | os.O_CREAT)
        if handle.try_lock(exclusive=True):
            if handle.is_at(path):
                return handle
        elif attempt >= _CLAIM_TRIES_AT_LEAST and handle.size_bytes():
            return None
        threading.Event().wait(_CLAIM_PAUSE_S)
    return None
