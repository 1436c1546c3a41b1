"""Where bytes come from: the narrow contracts that reading needs, local files, and objects of a store.

A source hands out ranges and knows nothing of tensors. Files read straight into the target, and pack blocks
that lie apart on the way. Implements "Sources" of docs/specs/tensors.md.
"""

from __future__ import annotations

import mmap
import os
import weakref
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from warpdata.errors import AccessDeniedError, ObjectNotFoundError, StorageError
from warpdata.formats.tensors.strided_copy import Patch, copy_patch
from warpdata.formats.tensors.workers import processors
from warpdata.limits import VIEW_THREADS

__all__ = [
    "ByteSource",
    "CutSource",
    "DirectSource",
    "DoubtedSource",
    "FileSource",
    "GatherSource",
    "ParallelSource",
    "RangeReader",
    "SizedSource",
    "Span",
    "StoreSource",
    "Stored",
]

_MAX_VECTORS = 512
"""Below what any system allows in one call."""


class ByteSource(Protocol):
    """Ranges of one sequence of bytes."""

    def read_range(self, start: int, end: int) -> bytes | bytearray | memoryview:
        """Exactly the bytes from `start` up to, not including, `end`."""
        ...


@runtime_checkable
class DirectSource(Protocol):
    """A source that can also fill memory it is given, without a copy in between."""

    def read_range(self, start: int, end: int) -> bytes | bytearray | memoryview: ...

    def read_into(self, start: int, targets: Sequence[memoryview]) -> None:
        """Fill the targets, one after the other, with the bytes from `start` on."""
        ...


@runtime_checkable
class GatherSource(Protocol):
    """A source that can read blocks which lie apart, without what lies between them."""

    def gather(self, patch: Patch, target: memoryview, target_at: int) -> None:
        """Put the blocks where the patch says; `target_at` is the position that `target` begins with."""
        ...


@runtime_checkable
class ParallelSource(Protocol):
    """A source that may be asked from several threads at once. Others are asked by one at a time."""

    @property
    def concurrency(self) -> int:
        """From how many it is worth it."""
        ...


@runtime_checkable
class CutSource(Protocol):
    """A source that lies in parts, each of which is asked by itself."""

    def cuts(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        """A range as the requests it takes."""
        ...


@runtime_checkable
class DoubtedSource(Protocol):
    """A source that may hold a copy, and can be told that it is not what it should be."""

    def read_range(self, start: int, end: int) -> bytes | bytearray | memoryview: ...

    def invalidate(self, start: int, end: int) -> bool:
        """Whether asking again may give other bytes."""
        ...


class SizedSource(ByteSource, Protocol):
    """A source whose end is known."""

    @property
    def name(self) -> str:
        """For messages."""
        ...

    @property
    def size_bytes(self) -> int: ...


class RangeReader(Protocol):
    """What is needed of a store: ranges of an object. A reader of `warpdata.storage` is one."""

    def read_ranges(self, key: str, spans: Sequence[Any]) -> Sequence[bytes | bytearray | memoryview]:
        """One result for each span, which has `start`, `end` and `size_bytes`."""
        ...


@dataclass(frozen=True, slots=True, order=True)
class Span:
    """Bytes from `start` up to, not including, `end`."""

    start: int
    end: int

    @property
    def size_bytes(self) -> int:
        return self.end - self.start


class Stored:
    """A source whose bytes were kept or sent by somebody else: they are checked, unless the caller says otherwise."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class StoreSource(Stored):
    """An object in a store. Every range is a request of its own; several run at once."""

    reader: RangeReader
    key: str
    size_bytes: int
    concurrency: int = VIEW_THREADS

    @property
    def name(self) -> str:
        return self.key

    def read_range(self, start: int, end: int) -> bytes | bytearray | memoryview:
        return self.reader.read_ranges(self.key, [Span(start, end)])[0]


class FileSource:
    """A local file, open for reading until `close()`, or until nobody holds it."""

    __slots__ = ("__weakref__", "_close", "_descriptor", "_mapping", "path")

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))
        except FileNotFoundError as error:
            raise ObjectNotFoundError(f"there is no file {path}") from error
        except PermissionError as error:
            raise AccessDeniedError(f"{path} can not be read: {error.strerror}") from error
        except OSError as error:
            raise StorageError(f"{path} can not be opened: {error.strerror}") from error
        self._mapping: list[memoryview] = []
        self._close = weakref.finalize(self, _release, self._descriptor, self._mapping)

    @property
    def name(self) -> str:
        return self.path.name

    @property
    def size_bytes(self) -> int:
        try:
            return os.fstat(self._descriptor).st_size
        except OSError as error:
            raise StorageError(f"{self.path} can not be read: {error.strerror}") from error

    @property
    def concurrency(self) -> int:
        """Copying out of the page cache is work for processors: one thread for each, up to a bound."""
        return processors()

    def close(self) -> None:
        """Safe to call twice."""
        self._close()
        self._descriptor = -1

    def read_range(self, start: int, end: int) -> bytearray:
        out = bytearray(end - start)
        self.read_into(start, [memoryview(out)])
        return out

    def gather(self, patch: Patch, target: memoryview, target_at: int) -> None:
        """By way of a mapping, so that only pages with blocks in them are touched.

        The file must not be cut short meanwhile: pages of a mapping that are gone end the process. Sizes are
        compared first, so a file that already is too short is an error like any other.
        """
        end = patch.source + patch.span
        size = self.size_bytes
        if size < end:
            raise StorageError(f"{self.path} ends at {size}, where bytes up to {end} were expected")
        if not self._mapping or len(self._mapping[0]) < end:
            self._mapping[:] = [memoryview(mmap.mmap(self._descriptor, size, prot=mmap.PROT_READ))]
        copy_patch(patch, self._mapping[0], 0, target, target_at)

    def read_into(self, start: int, targets: Sequence[memoryview]) -> None:
        waiting = [target for target in targets if len(target)]
        while waiting:
            try:
                count = os.preadv(self._descriptor, waiting[:_MAX_VECTORS], start)
            except OSError as error:
                raise StorageError(f"{self.path} can not be read at {start}: {error.strerror}") from error
            if count == 0:
                raise StorageError(f"{self.path} ends at {start}, where {len(waiting[0])} bytes more were expected")
            start += count
            while waiting and count >= len(waiting[0]):
                count -= len(waiting.pop(0))
            if count:
                waiting[0] = waiting[0][count:]


def _release(descriptor: int, mapping: list[memoryview]) -> None:
    mapping.clear()
    os.close(descriptor)
