"""Fetched byte ranges of a remote shard as a file that Arrow can read.

A range that was not fetched is read on demand. A wrong guess about the ranges costs a request, never a wrong result.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from warpdata.primitives.hashing import blob_key
from warpdata.repository.manifest import Shard
from warpdata.storage import ByteRange, Reader

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["FetchedRanges", "RangeFile"]

FetchedRanges: TypeAlias = dict[str, list[tuple[ByteRange, memoryview]]]
"""Byte ranges with their bytes, by the hash of the file."""


class RangeFile:
    """A read-only, file-like object over fetched ranges."""

    closed = False

    def __init__(self, reader: Reader, shard: Shard, fetched: FetchedRanges) -> None:
        self._reader = reader
        self._shard = shard
        self._fetched = fetched.get(shard.hash, ())
        self._position = 0

    def read_buffer(self, size: int = -1) -> pa.Buffer:
        import pyarrow as pa

        start = self._position
        end = self._shard.byte_size if size < 0 else min(start + size, self._shard.byte_size)
        self._position = end
        for span, data in self._fetched:
            if span.start <= start and end <= span.end:
                return pa.py_buffer(data[start - span.start : end - span.start])
        return pa.py_buffer(self._reader.read_range(blob_key(self._shard.hash), ByteRange(start, end)))

    def read(self, size: int = -1) -> bytes:
        return bytes(self.read_buffer(size))

    def seek(self, offset: int, whence: int = 0) -> int:
        base = {0: 0, 1: self._position, 2: self._shard.byte_size}[whence]
        self._position = base + offset
        return self._position

    def tell(self) -> int:
        return self._position

    def size(self) -> int:
        return self._shard.byte_size

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def writable(self) -> bool:
        return False

    def flush(self) -> None: ...

    def close(self) -> None: ...
