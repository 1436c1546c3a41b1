"""A store in a local directory: durable, create-only, mappable.

The local backend of the object-store library neither syncs its writes nor offers a setting for it. Here, bytes go
to a temporary file under `.tmp/`, are synced, and get their name by a hard link. The link either makes the key or
fails because the key exists, so readers see whole objects and two writers never both succeed. Implements "Local
stores" of docs/specs/store.md.
"""

from __future__ import annotations

import errno
import mmap
import os
import secrets
import stat
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TypeVar

from warpdata.errors import (
    AccessDeniedError,
    CorruptError,
    DeniedError,
    ErrorKind,
    LimitExceededError,
    ObjectNotFoundError,
    StorageError,
    UnsupportedError,
    WarpError,
    WriteUnknownError,
)
from warpdata.limits import (
    COALESCE_GAP_BYTES,
    COPY_CHUNK_BYTES,
    KIB,
    MAX_OPEN_HANDLES,
    MAX_SMALL_OBJECT_BYTES,
    STREAM_CHUNK_BYTES,
)
from warpdata.primitives.atomic_file import AtomicFile, make_directories, make_unsynced_directories, sync_directory
from warpdata.primitives.byte_lru import ByteLRU
from warpdata.primitives.concurrency import descriptor_share
from warpdata.primitives.hashing import Fingerprint, OnBytes, ignore_bytes
from warpdata.primitives.parallel import IO_POOL
from warpdata.primitives.ranges import ByteRange, check_ranges
from warpdata.storage.types import GetResult, ObjectInfo, check_expiry, check_key
from warpdata.storage.verified_read import read_verified_chunks

__all__ = ["OPEN_FILES", "LocalStore", "OpenFile", "retry_without_descriptors"]

_TEMPORARY = ".tmp"
_UNSYNCED_PREFIX, _UNSYNCED_NAME = "leases/", "/latest.json"
"""Leases end with the processes of the machine, and a lost hint costs a request. Neither has to survive a power cut."""
_SMALL_READ_BYTES = 256 * KIB
"""Smaller ranges are copied by one system call, larger ones are mapped."""
_SHARE = 1 / 8
"""The share of the process's limit of open files that stay open between reads."""
_T = TypeVar("_T")
_ABSENT = (FileNotFoundError, NotADirectoryError, IsADirectoryError)


class LocalStore:
    """Implements `Writer` over a directory, which is made on the first write.

    Without `sync_writes`, writes are atomic, but a power cut may take those of the last seconds.
    """

    def __init__(self, root: Path, *, sync_writes: bool = True) -> None:
        self._root = root
        self._sync_writes = sync_writes
        self._prefix = f"{root}{os.sep}"

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.url!r})"

    @property
    def url(self) -> str:
        return self._root.as_uri()

    def local_path(self, key: str) -> Path | None:
        path = self._path(key)
        with self._translated(key):
            return path if path.is_file() else None

    def read(self, key: str) -> GetResult:
        with self._translated(key), open(self._prefix + check_key(key), "rb", buffering=0) as file:  # noqa: PTH123
            status = os.fstat(file.fileno())
            if status.st_size > MAX_SMALL_OBJECT_BYTES:
                raise LimitExceededError(f"{key!r} has {status.st_size} bytes, too many to read whole")
            return GetResult(file.read(), _etag(status))

    def read_if_changed(self, key: str, etag: str) -> GetResult | None:
        fetched = self.read(key)
        return None if fetched.etag == etag else fetched

    def read_range(self, key: str, span: ByteRange) -> memoryview:
        file = OPEN_FILES.get(self._prefix + key)
        if file is None or not 0 <= span.start <= span.end <= span.start + _SMALL_READ_BYTES:
            return self.read_ranges(key, [span])[0]
        try:
            return memoryview(file.read(key, span.start, span.end))
        except OSError as error:
            raise self._explain(error, key) from error

    def read_ranges(
        self, key: str, spans: Sequence[ByteRange], *, gap_bytes: int = COALESCE_GAP_BYTES
    ) -> list[memoryview]:
        check_ranges(spans)
        with self._translated(key):
            file = self._open_file(key)
            if all(span.size_bytes <= _SMALL_READ_BYTES for span in spans):
                return [memoryview(file.read(key, span.start, span.end)) for span in spans]
            size = os.fstat(file.fd).st_size
            for span in spans:
                if span.end > size:
                    raise CorruptError(f"{key!r} has {size} bytes, so it has no bytes {span.start}…{span.end}")
            mapped = retry_without_descriptors(file.map)
            return [mapped[span.start : span.end] for span in spans]

    def stream(self, key: str) -> Iterator[memoryview]:
        with self._translated(key), self._path(key).open("rb", buffering=0) as file:
            while chunk := file.read(STREAM_CHUNK_BYTES):
                yield memoryview(chunk)

    def stat(self, key: str) -> ObjectInfo:
        with self._translated(key):
            status = self._path(key).stat()
            if stat.S_ISDIR(status.st_mode):
                raise IsADirectoryError(errno.EISDIR, "is a directory")
        return _info(key, status)

    def list_objects(self, prefix: str, *, max_count: int | None = None) -> Iterator[ObjectInfo]:
        base = self._path(prefix) if prefix else self._root
        found: list[Path] = []
        with self._translated(prefix):
            for directory, names, files in os.walk(base, onerror=_raise_unless_absent):
                if directory == str(self._root):
                    names[:] = [name for name in names if name != _TEMPORARY]
                found.extend(Path(directory, name) for name in files)
        listed = sorted((path.relative_to(self._root).as_posix(), path) for path in found)
        for key, path in listed[:max_count]:
            with suppress(FileNotFoundError):
                yield _info(key, path.stat())

    def list_folders(self, prefix: str) -> list[str]:
        base = self._path(prefix) if prefix else self._root
        try:
            with self._translated(prefix):
                return sorted(e.name for e in os.scandir(base) if e.is_dir() and e.name != _TEMPORARY)
        except ObjectNotFoundError:
            return []

    def is_local(self, key: str) -> bool:
        return True

    def expect_size(self, key: str, size_bytes: int) -> None:
        """Ignore the size: nothing here is cached by size."""

    def invalidate(self, key: str) -> bool:
        """Close the open file. True: it was not the current one, because the object was deleted and made again."""
        path, file = self._path(key), OPEN_FILES.forget(self._prefix + key)
        if file is None:
            return False
        with suppress(OSError):
            return not os.path.samestat(os.fstat(file.fd), path.stat())
        return False

    def signed_url(self, key: str, expires_s: int) -> str:
        check_expiry(expires_s)
        raise UnsupportedError(f"{self.url} cannot sign a URL for {key!r}, as it is a local directory")

    def create(self, key: str, data: bytes) -> bool:
        if self._exists(key):
            return False
        with self._staged(key) as staged:
            staged.file.write(data)
            return self._publish(staged)

    def stage(self, key: str, data: bytes) -> _StagedObject:
        """Implements `StagingWriter`. The directories on the way to the key are made and synced, too."""
        with self._translated(key, writing=True):
            staged = self._new_file(key)
            try:
                staged.file.write(data)
                _sync_before_name(staged)
            except BaseException:
                staged.close()
                raise
            return _StagedObject(self, key, staged)

    def create_file(self, key: str, path: Path, fingerprint: Fingerprint, on_bytes: OnBytes = ignore_bytes) -> bool:
        if self._exists(key):
            return False
        with self._staged(key) as staged:
            staged.file.writelines(read_verified_chunks(path, fingerprint, COPY_CHUNK_BYTES, on_bytes))
            return self._publish(staged)

    def replace(self, key: str, data: bytes) -> None:
        with self._staged(key) as staged:
            staged.file.write(data)
            _sync_before_name(staged)
            if key.endswith(_UNSYNCED_NAME):
                # A file system may write a file to the disk when it takes the name of another, as ext4 does. That
                # takes milliseconds, and a hint that is absent for a moment costs a reader a listing.
                staged.path.unlink(missing_ok=True)
            staged.replace()
        self._forget(key)

    def replace_file(self, key: str, path: Path, fingerprint: Fingerprint, on_bytes: OnBytes = ignore_bytes) -> None:
        with self._staged(key) as staged:
            staged.file.writelines(read_verified_chunks(path, fingerprint, COPY_CHUNK_BYTES, on_bytes))
            _sync_before_name(staged)
            staged.replace()
        self._forget(key)

    def delete(self, key: str) -> None:
        with suppress(ObjectNotFoundError), self._translated(key):
            self._path(key).unlink()
        self._forget(key)

    def delete_many(self, keys: Sequence[str]) -> None:
        for key in keys:
            self.delete(key)

    def remove_abandoned(self, before: datetime, *, dry_run: bool = False) -> tuple[int, int]:
        """Remove old files of the temporary directory, which killed writers left."""
        directory = self._root / _TEMPORARY
        count = size_bytes = 0
        with self._translated(_TEMPORARY, writing=True), suppress(FileNotFoundError):
            for entry in os.scandir(directory):
                with suppress(FileNotFoundError):
                    status = entry.stat(follow_symlinks=False)
                    if stat.S_ISREG(status.st_mode) and status.st_mtime < before.timestamp():
                        count, size_bytes = count + 1, size_bytes + status.st_size
                        if not dry_run:
                            Path(entry.path).unlink()
        return count, size_bytes

    def _open_file(self, key: str) -> OpenFile:
        """Open the file of an object. Files of blobs stay open, because blobs never change."""
        known = OPEN_FILES.get(self._prefix + key)
        if known is not None:
            return known
        file = OPEN_FILES.open(self._path(key), key=self._prefix + key if key.startswith("blobs/") else None)
        if stat.S_ISDIR(os.fstat(file.fd).st_mode):
            OPEN_FILES.forget(self._prefix + key)
            raise IsADirectoryError(errno.EISDIR, "is a directory")
        return file

    def _forget(self, key: str) -> None:
        """Close the file of an object that was replaced or removed."""
        if key.startswith("blobs/"):
            OPEN_FILES.forget(self._prefix + key)

    def _path(self, key: str) -> Path:
        return Path(self._prefix + check_key(key))

    def _exists(self, key: str) -> bool:
        with self._translated(key):
            return os.path.exists(self._prefix + check_key(key))  # noqa: PTH110 - a path object costs as much again

    def _name(self, key: str, staged: AtomicFile) -> bool:
        with self._translated(key, writing=True):
            return self._publish(staged)

    def _publish(self, staged: AtomicFile) -> bool:
        """Give a staged file its name, which is durable when this returns. False: something has it."""
        _sync_before_name(staged)
        if not staged.create(sync_parent=False):
            return False
        if not staged.is_durable:
            return True
        try:
            sync_directory(staged.path.parent)
        except OSError as error:
            raise WriteUnknownError(f"{staged.path} was made, but may not survive a power cut: {error}") from error
        return True

    @contextmanager
    def _staged(self, key: str) -> Iterator[AtomicFile]:
        """Open a temporary file inside the root, removed in any case."""
        with self._translated(key, writing=True), self._new_file(key) as staged:
            yield staged

    def _new_file(self, key: str) -> AtomicFile:
        """Open a temporary file. Its mode is the user's default: the object keeps it, and others must read it."""
        directory = self._root / _TEMPORARY
        make_directories(directory)
        return AtomicFile(
            self._path(key),
            temporary=directory / secrets.token_hex(16),
            is_durable=self._sync_writes and _is_durable(key),
        )

    @contextmanager
    def _translated(self, key: str, *, writing: bool = False) -> Iterator[None]:
        """Turn errors of the system into typed errors. A missing directory during a write is no missing object."""
        try:
            yield
        except WarpError:
            raise
        except OSError as error:
            if isinstance(error, _ABSENT) and not writing:
                raise ObjectNotFoundError(f"{key!r} is not in {self.url}") from error
            raise self._explain(error, key) from error

    def _explain(self, error: OSError, key: str) -> StorageError | AccessDeniedError | DeniedError:
        where = f"{key!r} in {self.url}"
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            return StorageError(
                f"no space left for {where}", hint="Free space, or choose another --store.", kind=ErrorKind.STORE_FULL
            )
        if error.errno == errno.EROFS:
            return DeniedError(
                f"{where} is on a read-only file system", hint="Choose another --store.", kind=ErrorKind.READ_ONLY_STORE
            )
        if error.errno in (errno.EACCES, errno.EPERM):
            return AccessDeniedError(f"permission denied for {where}", hint="Check the directory's owner and mode.")
        return StorageError(f"{where}: {error.strerror or error}")


class _StagedObject:
    """A synced temporary file on its way to a key."""

    def __init__(self, store: LocalStore, key: str, staged: AtomicFile) -> None:
        self._store = store
        self._key = key
        self._staged = staged

    def create(self) -> bool:
        return self._store._name(self._key, self._staged)  # noqa: SLF001 - its own store

    def close(self) -> None:
        with suppress(OSError):  # garbage collection removes what is left
            self._staged.close()


class OpenFile:
    """A file that is closed with its last reference, so a read never meets a reused descriptor.

    Reads are by position, so threads and forked processes may share it. A file that is truncated meanwhile gives a
    short read, never a crash.
    """

    __slots__ = ("__weakref__", "_mapping", "fd", "kept_mapping")

    def __init__(self, path: Path) -> None:
        self.fd = os.open(path, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))
        self._mapping: weakref.ref[mmap.mmap] | None = None
        self.kept_mapping: memoryview | None = None

    def __del__(self, close: Callable[[int], None] = os.close) -> None:
        # An argument, because the names of a module are gone when the interpreter exits.
        try:  # noqa: SIM105
            close(self.fd)
        except (AttributeError, OSError):
            pass

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
    """The most recently used files of the process, of all stores and all `FileRangeSource`. Safe between threads.

    They stay open between reads, because opening one takes longer than a small read. Keys of stores are paths.
    """

    def __init__(self) -> None:
        self._files: ByteLRU[str, OpenFile] = ByteLRU(max_entries=descriptor_share(_SHARE, MAX_OPEN_HANDLES))

    def get(self, key: str) -> OpenFile | None:
        return self._files.get(key)

    def open(self, path: Path, *, key: str | None) -> OpenFile:
        """Open a file, and with a key leave it open for later reads."""
        file = retry_without_descriptors(lambda: OpenFile(path))
        if key is not None:
            self._files.put(key, file)
        return file

    def forget(self, key: str) -> OpenFile | None:
        """Close a file that was replaced, removed or closed, once no thread reads it."""
        return self._files.pop(key)

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


def _sync_before_name(staged: AtomicFile) -> None:
    """Force the bytes of a file, and new directories on the way to it, to the disk.

    All are synced at the same time, because a file system with a journal commits them together. Syncing each directory
    when it is made would wait for the disk each time.
    """
    grown = make_unsynced_directories(staged.path.parent)
    if not staged.is_durable:
        return
    syncs: list[Callable[[], None]] = [staged.sync, *(partial(sync_directory, directory) for directory in grown)]
    IO_POOL.run_all(syncs)


def _is_durable(key: str) -> bool:
    return not key.startswith(_UNSYNCED_PREFIX) and not key.endswith(_UNSYNCED_NAME)


def _raise_unless_absent(error: OSError) -> None:
    """Handle errors of `os.walk`, which would report an unreadable directory as empty."""
    if not isinstance(error, _ABSENT):
        raise error


def _info(key: str, status: os.stat_result) -> ObjectInfo:
    modified = datetime.fromtimestamp(status.st_mtime, UTC)
    return ObjectInfo(key, status.st_size, _etag(status), modified)


def _etag(status: os.stat_result) -> str:
    return f"{status.st_ino:x}-{status.st_mtime_ns:x}-{status.st_size:x}"
