"""Bytes that are read by range: the contract between file formats and storage.

A format reads one file or object through a `RangeSource`. It uses the other protocols where a source implements
them, and falls back to `read_range` where it does not. Nothing here imports a third-party module.
"""

from __future__ import annotations

import mmap
import os
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable

from warpdata.errors import AccessDeniedError, ObjectNotFoundError, StorageError
from warpdata.primitives.parallel import usable_cores
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
_OBJECT_CONCURRENCY = 16


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
    """A local file, open until `close()` or until it is garbage-collected. Safe to share between threads.

    Reads copy. `map` does not, but a file that shrinks while it is mapped kills the process.
    """

    __slots__ = ("__weakref__", "_close", "_descriptor", "_mapping", "path")

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        try:
            self._descriptor = os.open(self.path, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))
        except OSError as error:
            raise explain_os_error(error, self.path) from error
        self._mapping: list[memoryview] = []
        self._close = weakref.finalize(self, _close_file, self._descriptor, self._mapping)

    @property
    def size_bytes(self) -> int:
        try:
            return os.fstat(self._descriptor).st_size
        except OSError as error:
            raise explain_os_error(error, self.path) from error

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
        while waiting:
            try:
                count = os.preadv(self._descriptor, waiting[:_MAX_VECTORS], start)
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
        size = self.size_bytes
        if not size:
            return memoryview(b"")
        if not self._mapping or len(self._mapping[0]) < size:
            try:
                self._mapping[:] = [memoryview(mmap.mmap(self._descriptor, size, access=mmap.ACCESS_READ))]
            except OSError as error:
                raise explain_os_error(error, self.path) from error
        return self._mapping[0][:size]

    def close(self) -> None:
        """Close the file. Safe to call twice."""
        self._close()
        self._descriptor = -1


@dataclass(frozen=True, slots=True)
class ObjectRangeSource:
    """An object of a store. Every range is one request."""

    reader: Reader
    key: str
    size_bytes: int
    concurrency: int = _OBJECT_CONCURRENCY

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


def _close_file(descriptor: int, mapping: list[memoryview]) -> None:
    mapping.clear()
    os.close(descriptor)
