"""A cache directory: blobs by their SHA-256, shared by all processes of a machine, within a limit of bytes.

It fetches nothing and starts no thread; `BlobFetcher` does. A disk that fails means a cache miss to readers. Only
methods about the directory itself raise. Implements "Files" and "Partial blobs" of docs/specs/cache.md.
"""

from __future__ import annotations

import errno
import hashlib
import logging
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from weakref import finalize

from warpdata.errors import StorageError, WarpError
from warpdata.limits import STREAM_CHUNK_BYTES
from warpdata.primitives.atomic_file import sync_directory
from warpdata.primitives.hashing import Blob, OnBytes, ignore_bytes, sha256_hex
from warpdata.primitives.lock_file import HAS_RANGE_LOCKS, LockFile
from warpdata.primitives.ranges import ByteRange
from warpdata.storage import (
    IOMetrics,
    check_private_directory,
    is_private_file,
    make_private_directories,
    open_private,
)
from warpdata.storage.cache.entries import CacheEntry, OpenEntries, read_record
from warpdata.storage.cache.eviction import EvictionResult, LruEvictor, scan_cache
from warpdata.storage.cache.layout import CacheLayout, PartialPaths, Record, encode_record
from warpdata.storage.cache.partial import PartialBlob, PartialState, new_map, read_map_size
from warpdata.storage.cache.quota import TIMEOUT_S, Quota, QuotaTransaction
from warpdata.storage.cache.stats import CacheStats, TotalsWriter

__all__ = ["BACKOFF_S", "BlobCache", "CorruptEntry", "Refusal"]

_LOG = logging.getLogger("warpdata.storage.cache")
BACKOFF_S = 60.0
"""No blob is filled for this long after the disk failed."""
_PUT_ATTEMPTS = 3
_OPEN_TIMEOUT_S = 2.0
"""A read does not wait longer for the quota: a process may be stopped while it holds the lock."""


class Refusal(Enum):
    """The reason why a blob cannot be filled now."""

    PRESENT = "the blob is cached already"
    UNKNOWN_SIZE = "the size of the blob is not known"
    BUSY = "another process blocks the cache, or fills the blob with another size"
    TOO_LARGE = "the blob is larger than the cache"
    NO_SPACE = "the cache is full of entries in use"
    BACKOFF = "the cache could not be written a moment ago"


@dataclass(frozen=True, slots=True)
class CorruptEntry:
    """An entry that did not match its name, and was removed."""

    digest: str
    fact: str


class BlobCache:
    """The blobs under `directory`, which the first fill makes. Safe to share between threads.

    `clock` returns seconds since the epoch, the same in all processes that share the directory. Caches of one process
    may share the entries they have `opened`.
    """

    def __init__(
        self,
        directory: Path,
        limit_bytes: int,
        clock: Callable[[], float],
        counters: IOMetrics | None = None,
        opened: OpenEntries | None = None,
    ) -> None:
        self.directory = directory
        self.limit_bytes = limit_bytes
        self.clock = clock
        self.counters = counters or IOMetrics()
        self._layout = CacheLayout(directory / "blobs")
        self.opened = opened or OpenEntries(self._layout, clock)
        self._evictor = LruEvictor(self.opened, limit_bytes, clock, self.counters)
        self._quota = Quota(self._layout.quota)
        self._backoff_until = 0.0
        self._is_checked = False
        self._totals = TotalsWriter(directory, self.counters)
        finalize(self, self._totals.keep).atexit = False
        self._has_warned = False

    def save_counts(self) -> None:
        """Add the counts since the last call to the totals of the directory."""
        self._totals.save()

    # Reading: never raises

    def check_directory(self) -> None:
        """Raise `AccessDeniedError` if another user can replace files of the cache."""
        check_private_directory(self.directory, self._layout.directory.name)

    def find(self, digest: str) -> CacheEntry | None:
        """Return the entry, pinned while it is open or its bytes are used."""
        try:
            if not self._is_checked:
                self.check_directory()
                self._is_checked = True
            return self.opened.find(digest)
        except OSError as error:
            self.disable_temporarily(error)
            return None

    def find_intact(self, digest: str) -> CacheEntry | None:
        """Return the entry after checking all its bytes, for callers that do not verify what they read."""
        entry = self.find(digest)
        if entry is not None and not entry.is_in_place():
            self.opened.forget(digest)  # another process removed it
            entry = self.find(digest)
        if entry is None or self.opened.is_intact(entry):
            return entry
        self.evict_corrupt(digest)
        return None

    def contains(self, digest: str) -> bool:
        """Return whether a valid record and a file of its size exist. Cheaper than opening the entry."""
        try:
            found = read_record(self._layout, digest)
            if found is None:
                return False
            status = self._layout.data(digest).lstat()
            return status.st_size == found[0].size_bytes and is_private_file(status)
        except OSError:
            return False

    def evict_corrupt(self, digest: str) -> bool:
        """Remove an entry whose bytes are wrong. Return whether there was one."""
        was_present = self.remove(digest)
        if was_present:
            _LOG.warning("the cached copy of blob %s was corrupt and has been removed", digest)
            self.counters.add("healed")
        return was_present

    def remove(self, digest: str) -> bool:
        """Remove the entry, in use or not. Return whether there was one.

        Views of its bytes stay valid. An entry that cannot be removed is not used again by this process.
        """
        was_open = self.opened.forget(digest)
        try:
            if not self._layout.data(digest).exists():
                return was_open
            with self._quota.transaction() as quota:
                was_removed = self._evictor.remove(quota, digest)
            return self.opened.forget(digest) or was_removed or was_open  # a thread may have opened it meanwhile
        except OSError as error:
            self.opened.quarantine(digest)
            self.disable_temporarily(error)
            return True

    def disable_temporarily(self, error: OSError) -> None:
        """Fill nothing for a while, because the disk failed. Entries that can be read are still used."""
        self.counters.add("stepped_aside")
        self._backoff_until = self.clock() + BACKOFF_S
        level = logging.DEBUG if self._has_warned else logging.WARNING
        self._has_warned = True
        _LOG.log(level, "the cache in %s cannot be used and is bypassed: %s", self.directory, error)

    # Filling: raises `OSError` if the disk fails

    def can_fill(self, *, eager: bool) -> bool:
        """Return whether filling a blob could succeed. Costs no system call."""
        has_space = self.limit_bytes > 0 and not self._evictor.is_full(eager=eager)
        return has_space and self.clock() >= self._backoff_until

    def reset_backoff(self) -> None:
        """Allow fills at once: the caller asked explicitly."""
        self._backoff_until = 0.0

    def open_partial(self, digest: str, source: str, size_bytes: int | None, *, eager: bool) -> PartialBlob | Refusal:
        """Join the partial blob of this source, or reserve space and make one, for which the size is needed."""
        if size_bytes is not None and (size_bytes > self.limit_bytes or not self.limit_bytes):
            return Refusal.TOO_LARGE
        if self.clock() < self._backoff_until:
            return Refusal.BACKOFF
        if self.contains(digest):
            return Refusal.PRESENT
        name = source if HAS_RANGE_LOCKS else f"{source}-{os.urandom(8).hex()}"  # not shared without range locks
        paths = self._layout.partial(digest, name)
        if size_bytes is None and not paths.map.exists():
            return Refusal.UNKNOWN_SIZE
        make_private_directories(self.directory, self._layout.directory.name, paths.map.parent.name)
        try:
            with self._quota.transaction(TIMEOUT_S if eager else _OPEN_TIMEOUT_S) as quota:
                return self._join_or_create(quota, digest, size_bytes, paths, eager=eager)
        except BlockingIOError:
            return Refusal.BUSY

    def commit(self, partial: PartialBlob, quick: str) -> bool:
        """Turn a complete partial blob whose SHA-256 is right into an entry. False: another reader was first."""
        digest, size = partial.blob.hash, partial.blob.byte_size
        os.fsync(partial.data.fd)
        with self._quota.transaction() as quota:
            if partial.state is not PartialState.LIVE:
                return False
            if not partial.data.is_at(partial.paths.data):
                if self.contains(digest):
                    return False
                raise FileNotFoundError(errno.ENOENT, f"{partial.paths.data} was removed")
            data, staged = self._layout.data(digest), self._layout.staged_record(digest)
            replaced = data.stat().st_size if data.exists() else 0
            _write_new(staged, encode_record(digest, Record(size, quick)))
            now = self.clock()
            os.utime(staged, (now, now))
            staged.replace(self._layout.record(digest))
            partial.paths.data.replace(data)
            quota.add(-replaced)
            partial.set_state(PartialState.COMMITTED)
            partial.paths.map.unlink(missing_ok=True)
        partial.close()
        partial.map.unlock()
        sync_directory(data.parent)
        return True

    def abandon(self, partial: PartialBlob, *, for_all: bool = False) -> None:
        """Stop using a partial blob, and remove it if no other process uses it. Never raises.

        With `for_all`, remove it in any case, because its bytes are wrong. A file that cannot be removed now is
        removed by the next scan.
        """
        partial.close()
        try:
            with self._quota.transaction() as quota:
                is_unused = partial.map.try_lock(exclusive=True)
                if (is_unused or for_all) and partial.map.is_at(partial.paths.map):
                    partial.set_state(PartialState.DROPPED)
                    self._discard_unused(quota, partial.paths, partial.map)
                    partial.paths.map.unlink(missing_ok=True)
        except OSError as error:
            self.disable_temporarily(error)
        partial.map.unlock()

    def put(self, content: bytes) -> Path:
        """Cache bytes under their own hash, for callers that need a path. Return the path, pinned while open."""
        blob = Blob(sha256_hex(content), len(content))
        refusal: Refusal | OSError = Refusal.PRESENT
        for _ in range(_PUT_ATTEMPTS):
            entry = self.find_intact(blob.hash)
            if entry is not None:
                return entry.path
            try:
                refusal = self._try_put(blob, content)
            except OSError as error:
                refusal = error
            if refusal is not Refusal.PRESENT:
                break
        reason = refusal.value if isinstance(refusal, Refusal) else refusal.strerror or refusal
        raise StorageError(
            f"no file of {len(content)} bytes can be made in {self.directory}: {reason}",
            hint="Use read_bytes() or open(), or set WARP_CACHE_DIR and WARP_CACHE_SIZE_GB.",
        )

    def _try_put(self, blob: Blob, content: bytes) -> Refusal:
        """Return `PRESENT` if the bytes are cached now."""
        partial = self.open_partial(blob.hash, f"put-{os.urandom(8).hex()}", blob.byte_size, eager=True)
        if isinstance(partial, Refusal):
            return partial
        try:
            for span in partial.claim([ByteRange(0, blob.byte_size)]):
                partial.write(span, memoryview(content)[span.start : span.end])
            self.commit(partial, partial.hashes()[1])
        except BaseException:
            self.abandon(partial)
            raise
        return Refusal.PRESENT

    def _join_or_create(
        self, quota: QuotaTransaction, digest: str, size_bytes: int | None, paths: PartialPaths, *, eager: bool
    ) -> PartialBlob | Refusal:
        if self.contains(digest):
            return Refusal.PRESENT
        units = LockFile(open_private(paths.map, os.O_RDWR | os.O_CREAT))
        if not units.try_lock(exclusive=True):
            return _join(digest, size_bytes, paths, units)
        self._discard_unused(quota, paths, units)
        if size_bytes is None:
            paths.map.unlink()
            return Refusal.UNKNOWN_SIZE
        return self._create(quota, Blob(digest, size_bytes), paths, units, eager=eager)

    def _create(
        self, quota: QuotaTransaction, blob: Blob, paths: PartialPaths, units: LockFile, *, eager: bool
    ) -> PartialBlob | Refusal:
        """Make an empty partial blob. The map is locked exclusively, and gets its header last."""
        try:
            if not self._evictor.make_space(quota, blob.byte_size, eager=eager):
                paths.map.unlink(missing_ok=True)
                return Refusal.NO_SPACE
            quota.add(blob.byte_size)  # a process that is killed now leaves a total that is too high
            data = LockFile(open_private(paths.data, os.O_RDWR | os.O_CREAT))
            os.ftruncate(data.fd, blob.byte_size)
            new_map(units, blob.byte_size)
            units.try_lock(exclusive=False)
        except OSError:
            for path in (paths.data, paths.map):
                with suppress(OSError):
                    path.unlink(missing_ok=True)
            raise
        return PartialBlob(blob, paths, data, units)

    def _discard_unused(self, quota: QuotaTransaction, paths: PartialPaths, units: LockFile) -> None:
        """Remove the data of a partial blob. A valid map means that the quota counts it."""
        try:
            size = paths.data.stat().st_size
            paths.data.unlink()
        except FileNotFoundError:
            return
        if read_map_size(units) is not None:
            quota.add(-size)

    # Maintenance: raises typed errors

    def stats(self) -> CacheStats:
        """Scan the directory, which takes a second for a few hundred thousand entries."""
        with self._typed_errors():
            self.check_directory()
            found = scan_cache(self._layout)
        return CacheStats(len(found), found.entry_bytes, self.limit_bytes, found.part_count, found.part_bytes)

    def collect(self, limit_bytes: int) -> EvictionResult:
        """Evict the least recently used entries that are not in use, until at most `limit_bytes` are left."""
        with self._typed_errors():
            self.check_directory()
            try:
                self._layout.directory.stat()
            except FileNotFoundError:
                return EvictionResult(0, 0, 0)
            with self._quota.transaction() as quota:
                found = scan_cache(self._layout, clean=True)
                quota.total_bytes = found.total_bytes
                return self._evictor.evict(quota, found, limit_bytes, idle_s=None)

    def clear(self) -> EvictionResult:
        """Evict every entry that is not in use."""
        return self.collect(0)

    def verify(self, on_bytes: OnBytes = ignore_bytes) -> list[CorruptEntry]:
        """Hash every entry again and remove the corrupt ones."""
        with self._typed_errors():
            found = scan_cache(self._layout)
        problems = []
        for digest, _ in found.least_recent_first():
            fact = self._find_damage(digest, on_bytes)
            if fact is not None and self.evict_corrupt(digest):
                problems.append(CorruptEntry(digest, fact))
        return problems

    def _find_damage(self, digest: str, on_bytes: OnBytes) -> str | None:
        self.opened.forget(digest)
        entry = self.find(digest)
        if entry is None:
            # An entry that cannot be opened now may just be evicted by another process.
            return None if self.contains(digest) else "its record is corrupt or has another size"
        hasher = hashlib.sha256()
        for start in range(0, entry.size_bytes, STREAM_CHUNK_BYTES):
            chunk = entry.view[start : start + STREAM_CHUNK_BYTES]
            hasher.update(chunk)
            on_bytes(len(chunk))
        return None if hasher.hexdigest() == digest else "its bytes do not hash to its name"

    @contextmanager
    def _typed_errors(self) -> Iterator[None]:
        try:
            yield
        except WarpError:
            raise
        except OSError as error:
            raise StorageError(
                f"the cache in {self.directory} cannot be used: {error.strerror or error}",
                hint="Check the directory's owner and mode, or set WARP_CACHE_DIR.",
            ) from error


def _write_new(path: Path, data: bytes) -> None:
    """Write a new file in place of any other. Called with the quota locked, so that no other process writes it."""
    path.unlink(missing_ok=True)
    file = LockFile(open_private(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL))
    os.pwrite(file.fd, data, 0)


def _join(digest: str, size_bytes: int | None, paths: PartialPaths, units: LockFile) -> PartialBlob | Refusal:
    """Open a partial blob that another reader uses. Called with the quota locked, so it cannot end meanwhile."""
    found = read_map_size(units)
    if found is None or size_bytes not in (None, found) or not units.try_lock(exclusive=False):
        return Refusal.BUSY
    try:
        data = LockFile(open_private(paths.data, os.O_RDWR))
    except FileNotFoundError:
        return Refusal.BUSY
    is_current = units.is_at(paths.map) and data.size_bytes() == found
    return PartialBlob(Blob(digest, found), paths, data, units) if is_current else Refusal.BUSY
