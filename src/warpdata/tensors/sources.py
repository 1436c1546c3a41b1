"""Where bytes come from: the narrow contract that reading needs, and local files.

A source hands out ranges and knows nothing of tensors. Files read straight into the target.
Implements "Sources" of docs/specs/tensors.md.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol, runtime_checkable

from warpdata.errors import AccessDeniedError, ObjectNotFoundError, StorageError

__all__ = ["ByteSource", "DirectSource", "FileSource"]

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


class FileSource:
    """A local file, open for reading until `close()`, or until nobody holds it."""

    __slots__ = ("__weakref__", "_close", "_descriptor", "path")

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
        self._close = weakref.finalize(self, os.close, self._descriptor)

    @property
    def size_bytes(self) -> int:
        return os.fstat(self._descriptor).st_size

    def close(self) -> None:
        """Safe to call twice."""
        self._close()

    def read_range(self, start: int, end: int) -> bytearray:
        out = bytearray(end - start)
        self.read_into(start, [memoryview(out)])
        return out

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
