"""A `Reader` around another one, for readers that change only some of its operations."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from warpdata.limits import COALESCE_GAP_BYTES
from warpdata.storage.types import ByteRange, GetResult, ObjectInfo, Reader

__all__ = ["ReaderWrapper"]


class ReaderWrapper:
    """Implements `Reader` by delegating every member to `self._reader`. Subclasses override what differs.

    Members do not call each other: `read_range` goes to the wrapped reader even if `read_ranges` is overridden.
    """

    def __init__(self, reader: Reader) -> None:
        self._reader = reader

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.url!r})"

    @property
    def url(self) -> str:
        return self._reader.url

    def read(self, key: str) -> GetResult:
        return self._reader.read(key)

    def read_if_changed(self, key: str, etag: str) -> GetResult | None:
        return self._reader.read_if_changed(key, etag)

    def read_range(self, key: str, span: ByteRange) -> memoryview:
        return self._reader.read_range(key, span)

    def read_ranges(
        self, key: str, spans: Sequence[ByteRange], *, gap_bytes: int = COALESCE_GAP_BYTES
    ) -> list[memoryview]:
        return self._reader.read_ranges(key, spans, gap_bytes=gap_bytes)

    def stream(self, key: str) -> Iterator[memoryview]:
        return self._reader.stream(key)

    def stat(self, key: str) -> ObjectInfo:
        return self._reader.stat(key)

    def list_objects(self, prefix: str, *, max_count: int | None = None) -> Iterator[ObjectInfo]:
        return self._reader.list_objects(prefix, max_count=max_count)

    def list_folders(self, prefix: str) -> list[str]:
        return self._reader.list_folders(prefix)

    def local_path(self, key: str) -> Path | None:
        return self._reader.local_path(key)

    def is_local(self, key: str) -> bool:
        return self._reader.is_local(key)

    def expect_size(self, key: str, size_bytes: int) -> None:
        self._reader.expect_size(key, size_bytes)

    def invalidate(self, key: str) -> bool:
        return self._reader.invalidate(key)

    def signed_url(self, key: str, expires_s: int) -> str:
        return self._reader.signed_url(key, expires_s)
