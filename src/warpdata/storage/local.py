"""A store in a local directory: durable, create-only, mappable.

Written by hand because the object-store library's local backend neither syncs what it writes nor
exposes the setting. A write goes to a temporary file under `.tmp/`, is synced, and is hard-linked
into place: the link either makes the key or fails because it exists, so a half-written object is
never visible and two writers never both win. Implements "Local stores" of docs/specs/store.md.
"""

from __future__ import annotations

import errno
import mmap
import os
import secrets
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from warpdata.errors import (
    AccessDeniedError,
    CorruptError,
    LimitExceededError,
    ObjectNotFoundError,
    ReadOnlyStoreError,
    StorageError,
    StoreFullError,
    UnsupportedError,
    WarpError,
    WriteUnknownError,
)
from warpdata.limits import (
    COALESCE_GAP_BYTES,
    COPY_CHUNK_BYTES,
    MAX_SMALL_OBJECT_BYTES,
    SMALL_READ_BYTES,
    STREAM_CHUNK_BYTES,
)
from warpdata.primitives.hashing import Fingerprint, OnBytes, ignore_bytes
from warpdata.storage.handles import Handle, Handles
from warpdata.storage.keys import check_key
from warpdata.primitives.ranges import ByteRange, check_ranges
from warpdata.storage.types import GetResult, ObjectInfo
from warpdata.storage.upload_source import read_rechecked

__all__ = ["LocalStore"]

_TEMPORARY = ".tmp"
_ABSENT = (FileNotFoundError, NotADirectoryError, IsADirectoryError)


class LocalStore:
    """Implements `Writer` over a directory, which is made on the first write."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._handles = Handles()

    @property
    def url(self) -> str:
        return self._root.as_uri()

    def local_path(self, key: str) -> Path | None:
        path = self._path(key)
        with self._translated(key):
            return path if path.is_file() else None

    def read(self, key: str) -> GetResult:
        with self._translated(key), self._path(key).open("rb") as file:
            status = os.fstat(file.fileno())
            if status.st_size > MAX_SMALL_OBJECT_BYTES:
                raise LimitExceededError(f"{key!r} has {status.st_size} bytes, too many to read whole")
            return GetResult(file.read(), _etag(status))

    def read_if_changed(self, key: str, etag: str) -> GetResult | None:
        fetched = self.read(key)
        return None if fetched.etag == etag else fetched

    def read_range(self, key: str, span: ByteRange) -> memoryview:
        handle = self._handles.get(key)
        if handle is None or not 0 <= span.start <= span.end <= span.start + SMALL_READ_BYTES:
            return self.read_ranges(key, [span])[0]
        try:
            return memoryview(handle.read(key, span.start, span.end))
        except OSError as error:
            raise self._explain(error, key) from error

    def read_ranges(
        self, key: str, spans: Sequence[ByteRange], *, gap_bytes: int = COALESCE_GAP_BYTES
    ) -> list[memoryview]:
        check_ranges(spans)
        with self._translated(key):
            handle = self._handle(key)
            if all(span.size_bytes <= SMALL_READ_BYTES for span in spans):
                return [memoryview(handle.read(key, span.start, span.end)) for span in spans]
            size = os.fstat(handle.fileno()).st_size
            for span in spans:
                if span.end > size:
                    raise CorruptError(f"{key!r} has {size} bytes; bytes {span.start}…{span.end} are not there")
            mapped = memoryview(mmap.mmap(handle.fileno(), 0, access=mmap.ACCESS_READ))
            return [mapped[span.start : span.end] for span in spans]

    def stream(self, key: str) -> Iterator[memoryview]:
        with self._translated(key), self._path(key).open("rb", buffering=0) as file:
            while chunk := file.read(STREAM_CHUNK_BYTES):
                yield memoryview(chunk)

    def stat(self, key: str) -> ObjectInfo:
        with self._translated(key):
            status = self._path(key).stat()
            if stat.S_ISDIR(status.st_mode):
                raise IsADirectoryError(errno.EISDIR, "is a folder")
        return ObjectInfo(key, status.st_size, _etag(status))

    def list_objects(self, prefix: str) -> Iterator[ObjectInfo]:
        base = self._path(prefix) if prefix else self._root
        found: list[Path] = []
        with self._translated(prefix):
            for folder, folders, files in os.walk(base, onerror=_raise_unless_absent):
                if folder == str(self._root):
                    folders[:] = [name for name in folders if name != _TEMPORARY]
                found.extend(Path(folder, name) for name in files)
        for key, path in sorted((path.relative_to(self._root).as_posix(), path) for path in found):
            with suppress(FileNotFoundError):
                status = path.stat()
                yield ObjectInfo(key, status.st_size, _etag(status))

    def list_folders(self, prefix: str) -> list[str]:
        base = self._path(prefix) if prefix else self._root
        try:
            with self._translated(prefix):
                return sorted(e.name for e in os.scandir(base) if e.is_dir() and e.name != _TEMPORARY)
        except ObjectNotFoundError:
            return []

    def is_local(self, key: str) -> bool:
        return True

    def invalidate(self, key: str) -> bool:
        """A handle may outlive its file, when the object was taken away and stored anew."""
        path, handle = self._path(key), self._handles.drop(key)
        if handle is None:
            return False
        with suppress(OSError):
            return not os.path.samestat(os.fstat(handle.fileno()), path.stat())
        return False

    def signed_url(self, key: str, expires_s: int) -> str:
        raise UnsupportedError(f"{self.url} cannot sign a URL for {key!r}, as it is a local directory")

    def create(self, key: str, data: bytes) -> bool:
        if self._exists(key):
            return False
        with self._staged(key) as (file, staged):
            file.write(data)
            return self._publish(file, staged, self._path(key))

    def create_file(self, key: str, path: Path, fingerprint: Fingerprint, on_bytes: OnBytes = ignore_bytes) -> bool:
        if self._exists(key):
            return False
        with self._staged(key) as (file, staged):
            file.writelines(read_rechecked(path, fingerprint, COPY_CHUNK_BYTES, on_bytes))
            return self._publish(file, staged, self._path(key))

    def replace(self, key: str, data: bytes) -> None:
        path = self._path(key)
        with self._staged(key) as (file, staged):
            file.write(data)
            _sync(file)
            self._make_folder(path.parent)
            staged.replace(path)
            _sync_folder(path.parent)

    def delete(self, key: str) -> None:
        with suppress(ObjectNotFoundError), self._translated(key):
            self._path(key).unlink()

    def _handle(self, key: str) -> Handle:
        """Blobs never change, so theirs stay open; other objects are opened for each read."""
        kept = self._handles.get(key)
        if kept is not None:
            return kept
        path = self._path(key)
        handle = self._handles.add(key, path) if key.startswith("blobs/") else Handle(path)
        if stat.S_ISDIR(os.fstat(handle.fileno()).st_mode):
            self._handles.drop(key)
            raise IsADirectoryError(errno.EISDIR, "is a folder")
        return handle

    def _path(self, key: str) -> Path:
        return self._root.joinpath(*check_key(key).split("/"))

    def _exists(self, key: str) -> bool:
        with self._translated(key):
            return self._path(key).exists()

    def _publish(self, file: BinaryIO, staged: Path, path: Path) -> bool:
        _sync(file)
        self._make_folder(path.parent)
        try:
            path.hardlink_to(staged)
        except FileExistsError:
            return False
        try:
            _sync_folder(path.parent)
        except OSError as error:
            raise WriteUnknownError(f"{path} was made, but may not survive a power cut: {error}") from error
        return True

    @contextmanager
    def _staged(self, key: str) -> Iterator[tuple[BinaryIO, Path]]:
        """A temporary file inside the root, gone afterwards whatever happens.

        Its mode is the user's default, because the object keeps it: a shared store must be readable.
        """
        with self._translated(key, writing=True):
            folder = self._root / _TEMPORARY
            self._make_folder(folder)
            staged = folder / secrets.token_hex(16)
            try:
                with staged.open("xb") as file:
                    yield file, staged
            finally:
                staged.unlink(missing_ok=True)

    def _make_folder(self, folder: Path) -> None:
        """Create missing parents, syncing each so that the new entry survives a power cut."""
        missing = []
        while not folder.exists():
            missing.append(folder)
            folder = folder.parent
        for made in reversed(missing):
            made.mkdir(exist_ok=True)
            _sync_folder(made.parent)

    @contextmanager
    def _translated(self, key: str, *, writing: bool = False) -> Iterator[None]:
        """Turn the system's errors into ours. A write that meets no folder has not found an object missing."""
        try:
            yield
        except WarpError:
            raise
        except OSError as error:
            if isinstance(error, _ABSENT) and not writing:
                raise ObjectNotFoundError(f"{key!r} is not in {self.url}") from error
            raise self._explain(error, key) from error

    def _explain(self, error: OSError, key: str) -> StorageError | AccessDeniedError | ReadOnlyStoreError:
        where = f"{key!r} in {self.url}"
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            return StoreFullError(f"no space left for {where}", hint="Free space, or choose another --store.")
        if error.errno == errno.EROFS:
            return ReadOnlyStoreError(f"{where} is on a read-only file system", hint="Choose another --store.")
        if error.errno in (errno.EACCES, errno.EPERM):
            return AccessDeniedError(f"permission denied for {where}", hint="Check the directory's owner and mode.")
        return StorageError(f"{where}: {error.strerror or error}")


def _raise_unless_absent(error: OSError) -> None:
    """For `os.walk`, which would otherwise report a folder it may not look into as empty."""
    if not isinstance(error, _ABSENT):
        raise error


def _etag(status: os.stat_result) -> str:
    return f"{status.st_ino:x}-{status.st_mtime_ns:x}-{status.st_size:x}"


def _sync(file: BinaryIO) -> None:
    file.flush()
    os.fsync(file.fileno())


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
