"""Bytes that are read by range: the contract between file formats and storage.

A format reads one file or object through a `RangeSource`. It uses the other protocols where a source implements
them, and falls back to `read_range` where it does not. Nothing here imports a third-party module.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from warpdata.errors import AccessDeniedError, ObjectNotFoundError, StorageError
from warpdata.primitives.concurrency import descriptor_share
from warpdata.primitives.live_objects import LiveObjects
from warpdata.primitives.parallel import request_slots, usable_cores
from warpdata.storage.local import OPEN_FILES, OpenFile, retry_without_descriptors
from warpdata.storage.types import ByteRange, Reader

__all__ = [
    "ConcurrentSource",
    "DirectSource",
    "FileRangeSource",
    "InvalidatableSource",
    "MappableSource",
    "ObjectRangeSource",
    "RangeSource",
    "explain_os_error",
]

_MAX_VECTORS = 512  # systems allow at least 1024 buffers in one call
_MAPPED_SHARE = 1 / 4
"""The share of the process's limit of open files that mapped sources may hold."""
_MAX_MAPPED = 1 << 14  # systems allow about four times as many mappings
_numbers = count()
_mappings: LiveObjects[Any] = LiveObjects()
_REQUEST_BYTES = 8 * 1024**2


@runtime_checkable
class RangeSource(Protocol):
    """A sequence of bytes that does not change. Reads come from one thread at a time, unless `ConcurrentSource`."""

    @property
    def size_bytes(self) -> int: ...

    def read_range(self, start: int, end: int) -> memoryview:
        """Return exactly the bytes from `start` up to, not including, `end`; both are inside of the source."""
        ...


@runtime_checkable
class DirectSource(Protocol):
    """A source that reads into memory of the caller, without a copy in between."""

    def read_into(self, start: int, targets: Sequence[memoryview]) -> None:
        """Fill the targets, one after the other, with the bytes from `start` on."""
        ...


@runtime_checkable
class MappableSource(Protocol):
    """A local file that can be mapped, so that a range is a view and costs no copy."""

    def map(self) -> memoryview:
        """Return the whole file, mapped into memory."""
        ...


@runtime_checkable
class ConcurrentSource(Protocol):
    """A source that any number of threads may read."""

    @property
    def concurrency(self) -> int:
        """The number of threads beyond which reads gain nothing."""
        ...


@runtime_checkable
class InvalidatableSource(Protocol):
    """A source that may answer from a cached copy, and can drop the copy."""

    def invalidate(self, start: int, end: int) -> bool:
        """Drop cached bytes that failed verification. True: a second read may return other bytes."""
        ...


class FileRangeSource:
    """A local file, readable until `close()` or until it is garbage-collected. Safe to share between threads.

    Reads copy. `map` does not, but a file that shrinks while it is mapped kills the process. The process keeps only the
    most recently used files open. A file that was closed for others is opened again, if it is still the same.
    """

    __slots__ = ("__weakref__", "_close", "_identity", "_key", "path")

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self._key = f"source {next(_numbers)}"
        self._close = weakref.finalize(self, OPEN_FILES.forget, self._key)
        self._identity = _identity(self._open())

    @property
    def size_bytes(self) -> int:
        return os.fstat(self._file().fd).st_size

    @property
    def may_map(self) -> bool:
        """Whether the process may map another file. A mapping holds a descriptor, also after `close`."""
        return len(_mappings) < descriptor_share(_MAPPED_SHARE, _MAX_MAPPED)

    @property
    def concurrency(self) -> int:
        """The number of cores, because copies from the page cache are bound by the CPU."""
        return usable_cores()

    def read_range(self, start: int, end: int) -> memoryview:
        out = memoryview(bytearray(end - start))
        self.read_into(start, [out])
        return out

    def read_into(self, start: int, targets: Sequence[memoryview]) -> None:
        waiting = [target for target in targets if len(target)]
        file = self._file()
        while waiting:
            try:
                count = os.preadv(file.fd, waiting[:_MAX_VECTORS], start)
            except OSError as error:
                raise StorageError(f"{self.path} cannot be read at byte {start}: {error.strerror}") from error
            if count == 0:
                raise StorageError(f"{self.path} ends at byte {start}; {len(waiting[0])} more bytes were expected")
            start += count
            while waiting and count >= len(waiting[0]):
                count -= len(waiting.pop(0))
            if count:
                waiting[0] = waiting[0][count:]

    def map(self) -> memoryview:
        """Return the whole file, mapped. The memory stays valid after `close`, while a caller holds it."""
        file = self._file()
        if not os.fstat(file.fd).st_size:
            return memoryview(b"")
        try:
            mapping = retry_without_descriptors(file.map)
        except OSError as error:
            raise explain_os_error(error, self.path) from error
        file.kept_mapping = mapping  # later reads of the open file share it
        _mappings.add(mapping.obj)
        return mapping

    def close(self) -> None:
        """Close the file. Safe to call twice."""
        self._close()

    def _file(self) -> OpenFile:
        file = OPEN_FILES.get(self._key)
        if file is not None:
            return file
        file = self._open()
        if _identity(file) != self._identity:
            OPEN_FILES.forget(self._key)
            raise StorageError(f"{self.path} changed since it was opened", hint="Open it again.")
        return file

    def _open(self) -> OpenFile:
        if not self._close.alive:
            raise StorageError(f"{self.path} is closed")
        try:
            return OPEN_FILES.open(self.path, key=self._key)
        except OSError as error:
            raise explain_os_error(error, self.path) from error


@dataclass(frozen=True, slots=True)
class ObjectRangeSource:
    """An object of a store. Every range is one request."""

    reader: Reader
    key: str
    size_bytes: int

    @property
    def concurrency(self) -> int:
        """The number of requests that a network may need, and that the memory for reads allows."""
        return request_slots(_REQUEST_BYTES)

    def read_range(self, start: int, end: int) -> memoryview:
        return self.reader.read_range(self.key, ByteRange(start, end))

    def invalidate(self, start: int, end: int) -> bool:
        return self.reader.invalidate(self.key)


def explain_os_error(error: OSError, path: Path) -> StorageError | ObjectNotFoundError | AccessDeniedError:
    """Return the typed error for a system error on a local file."""
    if isinstance(error, FileNotFoundError | NotADirectoryError):
        return ObjectNotFoundError(f"{path} does not exist")
    if isinstance(error, PermissionError):
        return AccessDeniedError(f"permission denied for {path}")
    return StorageError(f"{path}: {error.strerror or error}")


def _identity(file: OpenFile) -> tuple[int, ...]:
    status = os.fstat(file.fd)
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns
