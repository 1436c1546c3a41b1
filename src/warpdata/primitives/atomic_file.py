"""Files that appear complete or not at all.

Bytes go to a temporary file on the same file system, are synced, and get their name by one rename or link. The
directory is synced last, so that the name survives a power cut too. Errors of the system pass through unchanged.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Self

__all__ = [
    "AtomicFile",
    "make_directories",
    "make_unsynced_directories",
    "preallocate",
    "replacing",
    "staged_path",
    "sync_directory",
    "sync_file",
]

_LONGEST_NAME_BYTES = 200


class AtomicFile:
    """A new file under a temporary name, open for reading and writing as `file`.

    `create` or `replace` gives it the name `path`; `close`, or leaving the `with` block, removes what has none.
    `temporary` must be new and on the same file system; by default it is a random name beside `path`. A fixed
    temporary name makes a second writer fail with `FileExistsError`. The mode is the user's default.
    With `is_durable=False` nothing is synced.
    """

    def __init__(
        self, path: Path, *, temporary: Path | None = None, size_bytes: int = 0, is_durable: bool = True
    ) -> None:
        self.path = path
        self.temporary = temporary or _temporary_beside(path)
        self.is_durable = is_durable
        self.file: BinaryIO = self.temporary.open("x+b")
        self._has_temporary = True
        self._is_synced = False
        try:
            preallocate(self.file.fileno(), size_bytes)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def create(self, *, sync_parent: bool = True) -> bool:
        """Give the file its name only if no other file has it. True: this call made it. False: `path` exists.

        With `sync_parent=False` the caller syncs the directory, to tell that failure from others.
        """
        self._finish()
        try:
            os.link(self.temporary, self.path)
        except FileExistsError:
            return False
        finally:
            self.close()
        self._sync_parent(sync_parent)
        return True

    def replace(self, *, sync_parent: bool = True) -> None:
        """Give the file its name, in place of any other file."""
        self._finish()
        self.temporary.replace(self.path)
        self._has_temporary = False  # another writer may use the same name from here on
        self._sync_parent(sync_parent)

    def close(self) -> None:
        """Close the file and remove its temporary name. Safe to call twice."""
        try:
            self.file.close()
        finally:
            if self._has_temporary:
                self.temporary.unlink(missing_ok=True)
                self._has_temporary = False

    def sync(self) -> None:
        """Force the bytes to the disk, once. They must be complete."""
        if self.is_durable and not self._is_synced:
            sync_file(self.file)
            self._is_synced = True

    def _finish(self) -> None:
        self.sync()
        self.file.close()

    def _sync_parent(self, sync_parent: bool) -> None:
        if sync_parent and self.is_durable:
            sync_directory(self.path.parent)


@contextmanager
def replacing(path: Path, *, is_durable: bool = True) -> Iterator[BinaryIO]:
    """Yield a file that replaces `path` when the block ends, and vanishes if the block raises."""
    with AtomicFile(path, is_durable=is_durable) as new:
        yield new.file
        new.replace()


@contextmanager
def staged_path(path: Path, *, replaces_empty: bool = False) -> Iterator[Path]:
    """Yield a free name beside `path` for a new file or directory, renamed when the block ends and else removed.

    `FileExistsError` if `path` exists; with `replaces_empty`, an empty directory is replaced by a directory. Parent
    directories are made. Nothing is synced.
    """
    if path.exists() and not (replaces_empty and path.is_dir() and not any(path.iterdir())):
        raise FileExistsError(f"{path} already exists")
    path.parent.mkdir(parents=True, exist_ok=True)
    staged = _temporary_beside(path)
    try:
        yield staged
        staged.rename(path)
    finally:
        if staged.is_dir():
            shutil.rmtree(staged, ignore_errors=True)
        else:
            staged.unlink(missing_ok=True)


def _temporary_beside(path: Path) -> Path:
    """Return a random name. A long name is left out, so that every valid name has a temporary one."""
    name = f".{path.name}" if len(os.fsencode(path.name)) <= _LONGEST_NAME_BYTES else ""
    return path.with_name(f"{name}.{os.urandom(8).hex()}.tmp")


def preallocate(fd: int, size_bytes: int) -> None:
    """Allocate the file's blocks now: a full disk met through a memory mapping would kill the process."""
    if size_bytes:
        allocate = getattr(os, "posix_fallocate", None)  # macOS has none
        if allocate is not None:
            allocate(fd, 0, size_bytes)
        else:
            os.ftruncate(fd, size_bytes)


def make_directories(path: Path) -> None:
    """Make the directory and its missing parents, each synced so that it survives a power cut."""
    for parent in make_unsynced_directories(path):
        sync_directory(parent)


def make_unsynced_directories(path: Path) -> list[Path]:
    """Make the directory and its missing parents. Return the directories that have a new entry, from the top down.

    The caller syncs them before anything in the new directories must survive a power cut.
    """
    missing = []
    while not path.exists():
        missing.append(path)
        path = path.parent
    missing.reverse()
    for directory in missing:
        directory.mkdir(exist_ok=True)
    return [directory.parent for directory in missing]


def sync_file(file: BinaryIO) -> None:
    """Force the file's bytes to the disk."""
    file.flush()
    os.fsync(file.fileno())


def sync_directory(path: Path) -> None:
    """Force the directory's entries to the disk: names that were made, renamed or removed."""
    fd = os.open(path, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
