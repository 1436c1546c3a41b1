"""The bytes of an episode file: a path, or any `RangeSource` such as a remote object.

A local file is mapped, so that a range is a view and only touched pages are read. A process that has mapped many files
reads further ones by range. Of those and of any other source, the first bytes are read once, because they usually hold
the header, the index and the metadata.
"""

from __future__ import annotations

import os
from typing import Protocol, TypeAlias, runtime_checkable

from warpdata.errors import BadInputError, CorruptError
from warpdata.limits import KIB
from warpdata.primitives.paths import check_path
from warpdata.storage import FileRangeSource, RangeSource

__all__ = ["BufferedSource", "HeadedSource", "PathLike", "open_source"]

PathLike: TypeAlias = "str | os.PathLike[str]"

_HEAD_BYTES = 64 * KIB


@runtime_checkable
class HeadedSource(RangeSource, Protocol):
    """A source whose first bytes are already in memory, so that the header and the index need no read."""

    @property
    def head(self) -> bytes: ...


class BufferedSource:
    """A source with its first bytes in memory, or a mapped file."""

    def __init__(self, source: RangeSource) -> None:
        self._source = source
        self.size_bytes = source.size_bytes
        self.is_mapped = isinstance(source, FileRangeSource) and source.may_map
        self._head = self._read_head(source)

    def read_range(self, start: int, end: int) -> memoryview:
        if end <= len(self._head):
            return memoryview(self._head)[start:end]
        return self._fetch(start, end)

    def _read_head(self, source: RangeSource) -> memoryview | bytes:
        if self.is_mapped and isinstance(source, FileRangeSource):
            # A mapping outlives its file, so arrays stay valid. Files of this library never shrink.
            mapping = source.map()
            source.close()
            return mapping
        if isinstance(source, HeadedSource):
            return source.head
        return self._fetch(0, min(self.size_bytes, _HEAD_BYTES))

    def _fetch(self, start: int, end: int) -> memoryview:
        data = memoryview(self._source.read_range(start, end))
        if data.nbytes != end - start:
            raise CorruptError(f"the source gave {data.nbytes} bytes for {start}…{end}")
        return data


def open_source(where: PathLike | RangeSource) -> BufferedSource:
    """Open a path, or wrap a source."""
    if isinstance(where, str | os.PathLike):
        return BufferedSource(FileRangeSource(check_path(where)))
    if isinstance(where, RangeSource):
        return BufferedSource(where)
    raise BadInputError(f"{where!r} is neither a path nor an object with size_bytes and read_range")
