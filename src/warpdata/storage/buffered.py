"""A small blob in memory, in front of a store."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from warpdata.limits import COALESCE_GAP_BYTES
from warpdata.primitives.cached_property import cached_property
from warpdata.primitives.hashing import Blob, blob_key
from warpdata.storage.types import ByteRange, GetResult, ObjectInfo, Reader
from warpdata.storage.verified_read import read_blob
from warpdata.storage.wrapper import ReaderWrapper

__all__ = ["BufferedBlob"]


class BufferedBlob(ReaderWrapper):
    """Implements `Reader` for one blob. The first read fetches and verifies all of it; later reads send no request."""

    def __init__(self, reader: Reader, blob: Blob) -> None:
        super().__init__(reader)
        self._blob = blob

    @cached_property
    def _data(self) -> bytes:
        return read_blob(self._reader, self._blob)

    def read(self, key: str) -> GetResult:
        self._check_key(key)
        return GetResult(self._data, None)

    def read_if_changed(self, key: str, etag: str) -> GetResult | None:
        return self.read(key)

    def read_range(self, key: str, span: ByteRange) -> memoryview:
        self._check_key(key)
        return memoryview(self._data)[span.start : span.end]

    def read_ranges(
        self, key: str, spans: Sequence[ByteRange], *, gap_bytes: int = COALESCE_GAP_BYTES
    ) -> list[memoryview]:
        return [self.read_range(key, span) for span in spans]

    def stream(self, key: str) -> Iterator[memoryview]:
        yield memoryview(self.read(key).data)

    def stat(self, key: str) -> ObjectInfo:
        self._check_key(key)
        return ObjectInfo(key, self._blob.byte_size, None)

    def is_local(self, key: str) -> bool:
        return True

    def invalidate(self, key: str) -> bool:
        """Return False: the buffer is verified, so no cached copy is corrupt."""
        return False

    def _check_key(self, key: str) -> None:
        assert key == blob_key(self._blob.hash), "this reader serves one blob"
