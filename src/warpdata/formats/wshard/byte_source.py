"""Where the bytes of a file come from: anything with a size that can read a range.

A path is mapped into memory, so that a range is a view and only touched pages are read. Anything else
with `size` and `read_range` serves as well: a remote object, or bytes in memory.
"""

from __future__ import annotations

import mmap
import os
from pathlib import Path
from typing import Protocol, TypeAlias, runtime_checkable

from warpdata.errors import (
    AccessDeniedError,
    BadInputError,
    EpisodeCorruptedError,
    ObjectNotFoundError,
    StorageError,
)
from warpdata.limits import WSHARD_HEAD_GUESS_BYTES

__all__ = ["ByteSource", "FileSource", "HeadSource", "HeadedSource", "PathLike", "open_source", "translate"]

PathLike: TypeAlias = "str | os.PathLike[str]"


@runtime_checkable
class ByteSource(Protocol):
    """Immutable bytes, readable by range. `end` is exclusive; ranges asked for always lie inside `size`."""

    @property
    def size(self) -> int: ...

    def read_range(self, start: int, end: int) -> bytes | bytearray | memoryview: ...


@runtime_checkable
class HeadedSource(ByteSource, Protocol):
    """A source whose first bytes are at hand, so that nothing is asked for to read the header and the index."""

    @property
    def head(self) -> bytes: ...


class FileSource:
    """A local file, mapped. A range stays valid after the file object is forgotten.

    The file must not shrink while it is mapped; everything this library writes appears by renaming.
    """

    def __init__(self, path: Path) -> None:
        try:
            with path.open("rb", buffering=0) as file:
                self._size = os.fstat(file.fileno()).st_size
                data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if self._size else b""
        except OSError as error:
            raise translate(error, path) from error
        self._view = memoryview(data)

    @property
    def size(self) -> int:
        return self._size

    def read_range(self, start: int, end: int) -> memoryview:
        return self._view[start:end]


class HeadSource:
    """A source whose beginning was fetched once: header, index and metadata of a usual file in one request."""

    def __init__(self, source: ByteSource) -> None:
        self._source = source
        self.size = source.size
        self.is_mapped = isinstance(source, FileSource)
        self._head = self._known_head(source)

    def read_range(self, start: int, end: int) -> memoryview:
        if end <= len(self._head):
            return memoryview(self._head)[start:end]
        return memoryview(self._fetch(start, end))

    def _known_head(self, source: ByteSource) -> memoryview | bytes:
        if self.is_mapped:
            return b""
        if isinstance(source, HeadedSource):
            return source.head
        return self._fetch(0, min(self.size, WSHARD_HEAD_GUESS_BYTES))

    def _fetch(self, start: int, end: int) -> memoryview | bytes:
        data = memoryview(self._source.read_range(start, end))
        if data.nbytes != end - start:
            raise EpisodeCorruptedError(f"the source gave {data.nbytes} bytes for {start}…{end}")
        return data


def open_source(where: PathLike | ByteSource) -> HeadSource:
    """A path, or an object that is a source already."""
    if isinstance(where, str | os.PathLike):
        return HeadSource(FileSource(Path(where)))
    if isinstance(where, ByteSource):
        return HeadSource(where)
    raise BadInputError(f"{where!r} is neither a path nor something with size and read_range")


def translate(error: OSError, path: Path) -> StorageError | ObjectNotFoundError | AccessDeniedError:
    """The system's error as one of ours."""
    if isinstance(error, FileNotFoundError | NotADirectoryError):
        return ObjectNotFoundError(f"{path} does not exist")
    if isinstance(error, PermissionError):
        return AccessDeniedError(f"permission denied for {path}")
    return StorageError(f"{path}: {error.strerror or error}")
