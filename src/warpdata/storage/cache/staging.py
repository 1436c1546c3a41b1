"""Staging directories in the cache directory, each owned by one process.

A publish writes files here before it uploads them. The owner holds a lock, which ends with its process, so that
others can remove the directories of killed processes. Implements "Staging" of docs/specs/cache.md.
"""

from __future__ import annotations

import os
import secrets
import shutil
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from warpdata.primitives.lock_file import LockFile

__all__ = ["Reclaimed", "StagingDirectory", "reclaim_staging"]

_PREFIX, _LOCK_SUFFIX = "staging-", ".lock"
_UNLOCKED_S = 24 * 3600.0
"""A directory without a lock file belongs to an older release. It is removed after this time without a change."""


@dataclass(frozen=True, slots=True)
class Reclaimed:
    """The staging directories that were removed, and the size of their files."""

    directories: int
    size_bytes: int


class StagingDirectory:
    """A new directory that this process owns until `remove`."""

    def __init__(self, cache_dir: Path) -> None:
        cache_dir.mkdir(0o700, parents=True, exist_ok=True)
        reclaim_staging(cache_dir)
        self._pid = os.getpid()
        self._lock: LockFile | None = None
        while self._lock is None:
            self.path = cache_dir / f"{_PREFIX}{secrets.token_hex(8)}"
            self._lock = _lock_new(_lock_path(self.path))
        self.path.mkdir(mode=0o700)

    def remove(self) -> None:
        """Remove the directory and give up the lock. In a forked child, do nothing."""
        if self._lock is None or os.getpid() != self._pid:
            return
        shutil.rmtree(self.path, ignore_errors=True)
        with suppress(OSError):
            _lock_path(self.path).unlink(missing_ok=True)
        self._lock.close()
        self._lock = None


def reclaim_staging(cache_dir: Path) -> Reclaimed:
    """Remove the staging directories whose owner has ended. Those of running processes stay."""
    count = size_bytes = 0
    for path in _abandoned(cache_dir):
        size = _size_of(path)
        shutil.rmtree(path, ignore_errors=True)
        if not path.exists():
            count, size_bytes = count + 1, size_bytes + size
    return Reclaimed(count, size_bytes)


def _abandoned(cache_dir: Path) -> Iterator[Path]:
    """Yield directories without an owner. Each stays locked until the next one is asked for."""
    try:
        with os.scandir(cache_dir) as listing:
            names = sorted(entry.name for entry in listing if entry.name.startswith(_PREFIX))
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return
    locks = [name for name in names if name.endswith(_LOCK_SUFFIX)]
    for name in locks:
        lock_path = cache_dir / name
        with suppress(OSError):
            lock = LockFile.open(lock_path, os.O_RDWR | getattr(os, "O_NOFOLLOW", 0))
            if not lock.try_lock(exclusive=True):
                continue
            path = cache_dir / name.removesuffix(_LOCK_SUFFIX)
            if path.is_dir() and not path.is_symlink():
                yield path
            lock_path.unlink(missing_ok=True)
            lock.close()
    for name in names:
        path = cache_dir / name
        if not name.endswith(_LOCK_SUFFIX) and f"{name}{_LOCK_SUFFIX}" not in locks and _is_old(path):
            yield path


def _is_old(path: Path) -> bool:
    """Return whether nothing in an unlocked directory changed for a day. A lock that has just appeared counts."""
    try:
        if path.is_symlink() or not path.is_dir() or _lock_path(path).exists():
            return False
        newest = max(entry.lstat().st_mtime for entry in (path, *path.rglob("*")))
    except OSError:
        return False
    return time.time() - newest > _UNLOCKED_S


def _lock_path(path: Path) -> Path:
    return path.with_name(path.name + _LOCK_SUFFIX)


def _lock_new(path: Path) -> LockFile | None:
    """Create and lock a file. None: another process took it for abandoned before it was locked."""
    lock = LockFile.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL)
    with suppress(OSError):  # a file system without locks: the directory is only removed by its owner
        if not lock.try_lock(exclusive=True) or not lock.is_at(path):
            return None
    return lock


def _size_of(path: Path) -> int:
    total = 0
    for entry in path.rglob("*"):
        with suppress(OSError):
            total += entry.lstat().st_size
    return total
