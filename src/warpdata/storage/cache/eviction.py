"""Space for new blobs: a scan of the cache directory, and eviction of the least recently used entries.

A scan makes two system calls for each entry, so it runs when space is needed or a user asks, not for each blob. A
million entries take about 90 MB of memory. Implements "Eviction" of docs/specs/cache.md.
"""

from __future__ import annotations

import math
import os
from array import array
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from warpdata.errors import AccessDeniedError
from warpdata.primitives.hashing import is_digest
from warpdata.primitives.lock_file import LockFile
from warpdata.storage import IOMetrics, is_private_file, open_private
from warpdata.storage.cache.entries import OpenEntries
from warpdata.storage.cache.layout import CacheLayout
from warpdata.storage.cache.quota import QuotaTransaction

__all__ = ["IDLE_S", "TARGET_FRACTION", "CacheScan", "EvictionResult", "LruEvictor", "scan_cache"]

TARGET_FRACTION = 0.9
"""Eviction frees space down to this share of the limit, so that not every new blob needs a scan."""
IDLE_S = 600.0
"""A policy that is not eager evicts only entries that were not used for this long."""
_ALIEN = "alien"
"""Links, and files that another user can change. They are no entries."""
_SUFFIXES = ("", ".ok", ".part", ".new", ".map", _ALIEN)
_SAMPLE_ENTRIES = 2000
_CHECK_S = 600.0
_RETRY_S = 60.0
_EAGER_RETRY_S = 1.0


@dataclass(frozen=True, slots=True)
class EvictionResult:
    """The evicted entries. `kept_pinned` entries would have been evicted, but are in use."""

    entries: int
    bytes: int
    kept_pinned: int


class LruEvictor:
    """Evicts entries of one cache on behalf of this process.

    Every method that takes a `QuotaTransaction` runs while the quota is locked.
    """

    def __init__(self, opened: OpenEntries, limit_bytes: int, clock: Callable[[], float], counters: IOMetrics) -> None:
        self._layout: CacheLayout = opened.layout
        self._opened = opened
        self._limit_bytes = limit_bytes
        self._clock = clock
        self._counters = counters
        self._full_until = {False: 0.0, True: 0.0}

    def is_full(self, *, eager: bool) -> bool:
        """Return whether a recent scan found nothing to evict. The scan is not repeated for a while."""
        return self._clock() < self._full_until[eager]

    def make_space(self, quota: QuotaTransaction, needed_bytes: int, *, eager: bool) -> bool:
        """Return whether the bytes fit below the limit, evicting if necessary. The caller adds them to the quota."""
        if not self._is_plausible(quota):
            quota.total_bytes = None
        if self._fits(quota, needed_bytes):
            return True
        if quota.total_bytes is not None and self.is_full(eager=eager):
            return False
        now = self._clock()
        found = scan_cache(self._layout, clean=True)
        quota.total_bytes = found.total_bytes
        if self._fits(quota, needed_bytes):
            return True
        target = max(0, int(TARGET_FRACTION * self._limit_bytes) - needed_bytes)
        self.evict(quota, found, target, idle_s=None if eager else IDLE_S)
        if self._fits(quota, needed_bytes):
            return True
        self._full_until[eager] = now + (_EAGER_RETRY_S if eager else _RETRY_S)
        return False

    def evict(
        self, quota: QuotaTransaction, found: CacheScan, target_bytes: int, *, idle_s: float | None
    ) -> EvictionResult:
        """Evict the least recently used entries until the total is at most `target_bytes`.

        With `idle_s`, evict only entries that were not used for this long.
        """
        self._opened.release(idle_s or 0.0)
        used_before = math.inf if idle_s is None else self._clock() - idle_s
        count = size = pinned = 0
        for digest, used_at in found.least_recent_first():
            if used_at > used_before or (quota.total_bytes or 0) <= target_bytes:
                break
            freed = self._evict_one(digest, quota)
            if freed is None:
                pinned += 1
            else:
                count, size = count + 1, size + freed
        self._counters.add("evictions", count)
        self._counters.add("evicted_bytes", size)
        return EvictionResult(count, size, pinned)

    def remove(self, quota: QuotaTransaction, digest: str) -> bool:
        """Remove an entry. The record goes first: a file without a record is no entry, whatever happens next."""
        self._layout.record(digest).unlink(missing_ok=True)
        data = self._layout.data(digest)
        try:
            size = data.stat().st_size
            data.unlink()
        except FileNotFoundError:
            return False
        quota.add(-size)
        return True

    def _is_plausible(self, quota: QuotaTransaction) -> bool:
        """Return whether the total is not much lower than a sample of the files. Checked every ten minutes."""
        now, last = self._clock(), _checked_at.get(self._layout.directory, -math.inf)
        if quota.total_bytes is None or 0 <= now - last < _CHECK_S:
            return quota.total_bytes is not None
        _checked_at[self._layout.directory] = now
        sampled_bytes, is_exact = _sample_cache(self._layout)
        return quota.total_bytes >= (sampled_bytes if is_exact else sampled_bytes // 2)

    def _fits(self, quota: QuotaTransaction, needed_bytes: int) -> bool:
        return quota.total_bytes is not None and quota.total_bytes + needed_bytes <= self._limit_bytes

    def _evict_one(self, digest: str, quota: QuotaTransaction) -> int | None:
        """Return the number of freed bytes, or None if the entry is in use."""
        try:
            file = LockFile(open_private(self._layout.data(digest), os.O_RDWR))
        except FileNotFoundError:
            return 0
        except PermissionError:
            return None
        if not file.try_lock(exclusive=True):
            return None
        size = file.size_bytes()
        try:
            self.remove(quota, digest)
        except PermissionError:
            return None
        finally:
            file.unlock()
        return size


class CacheScan:
    """The entries of a cache in columns, and the sizes of entries and partial blobs."""

    def __init__(self) -> None:
        self._used_at = array("d")
        self._digests = bytearray()
        self.entry_bytes = 0
        self.part_bytes = 0
        self.part_count = 0

    def __len__(self) -> int:
        return len(self._used_at)

    @property
    def total_bytes(self) -> int:
        return self.entry_bytes + self.part_bytes

    def add(self, digest: str, size_bytes: int, used_at: float) -> None:
        self._used_at.append(used_at)
        self._digests += bytes.fromhex(digest)
        self.entry_bytes += size_bytes

    def least_recent_first(self) -> Iterator[tuple[str, float]]:
        """Yield each digest with the time of its last use."""
        for index in sorted(range(len(self)), key=self._used_at.__getitem__):
            yield self._digests[32 * index : 32 * index + 32].hex(), self._used_at[index]


def scan_cache(layout: CacheLayout, *, clean: bool = False) -> CacheScan:
    """Scan all directories. With `clean`, which needs the quota's lock, remove what killed processes left."""
    found = CacheScan()
    for directory in layout.shard_dirs():
        _scan_shard(directory, found, clean=clean)
    return found


_checked_at: dict[Path, float] = {}
"""For each cache directory, when this process last compared the total with the files."""


def _sample_cache(layout: CacheLayout) -> tuple[int, bool]:
    """Return the size of all entries, and whether it is exact. A large cache is estimated from some directories."""
    found, directories = CacheScan(), list(layout.shard_dirs())
    for position, directory in enumerate(directories):
        if len(found) + found.part_count >= _SAMPLE_ENTRIES:
            return found.total_bytes * len(directories) // position, False
        _scan_shard(directory, found, clean=False)
    return found.total_bytes, True


def _scan_shard(directory: Path, found: CacheScan, *, clean: bool) -> None:
    by_suffix = _list_by_suffix(directory)
    data, records, parts = by_suffix[""], by_suffix[".ok"], by_suffix[".part"]
    for digest, status in data.items():
        if f"{digest}.ok" in records:
            found.add(digest, status.st_size, records[f"{digest}.ok"].st_mtime)
    for name, status in parts.items():
        if not (clean and _remove_if_unused(directory / name)):
            found.part_bytes += status.st_size
            found.part_count += 1
    if clean:
        orphans = [digest for digest in data if f"{digest}.ok" not in records]
        orphans += [name for name in records if name[:64] not in data]
        for name in [*orphans, *by_suffix[".new"], *by_suffix[_ALIEN]]:
            with suppress(IsADirectoryError):
                (directory / name).unlink(missing_ok=True)
        for name in by_suffix[".map"]:
            if f"{name.removesuffix('.map')}.part" not in parts:
                _remove_if_unused((directory / name).with_suffix(".part"))


def _list_by_suffix(directory: Path) -> dict[str, dict[str, os.stat_result]]:
    by_suffix: dict[str, dict[str, os.stat_result]] = {suffix: {} for suffix in _SUFFIXES}
    with suppress(FileNotFoundError), os.scandir(directory) as listing:
        for item in listing:
            suffix = Path(item.name).suffix
            if suffix in by_suffix and is_digest(item.name[:64]) and item.name[64:65] in ("", "."):
                with suppress(FileNotFoundError):
                    status = item.stat(follow_symlinks=False)
                    by_suffix[suffix if is_private_file(status) else _ALIEN][item.name] = status
    return by_suffix


def _remove_if_unused(path: Path) -> bool:
    """Remove a partial blob and its map unless a process has the map locked. Return whether they are gone."""
    map_path = path.with_suffix(".map")
    try:
        file = LockFile(open_private(map_path, os.O_RDWR))
    except (FileNotFoundError, AccessDeniedError):  # no process of this user has such a map open
        path.unlink(missing_ok=True)
        map_path.unlink(missing_ok=True)
        return True
    if not file.try_lock(exclusive=True):
        return False
    path.unlink(missing_ok=True)
    map_path.unlink(missing_ok=True)
    file.unlock()
    return True
