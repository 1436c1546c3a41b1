"""One small blob kept in memory, in front of a store. What is read of it was verified whole."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from warpdata.limits import COALESCE_GAP_BYTES
from warpdata.primitives.cached_property import cached_property
from warpdata.primitives.hashing import Blob, blob_key
from warpdata.storage import ByteRange, GetResult, ObjectInfo, Reader, read_blob

__all__ = ["HeldBlob"]


class HeldBlob:
    """Implements `Reader` for this blob alone: one request fetches all of it, later ranges ask nobody."""

    def __init__(self, reader: Reader, blob: Blob) -> None:
        self._reader = reader
        self._blob = blob

    @cached_property
    def _data(self) -> bytes:
        return read_blob(self._reader, self._blob)

    @property
    def url(self) -> str:
        return self._reader.url

    def read(self, key: str) -> GetResult:
        self._check(key)
        return GetResult(self._data, None)

    def read_if_changed(self, key: str, etag: str) -> GetResult | None:
        return self.read(key)

    def read_range(self, key: str, span: ByteRange) -> memoryview:
        self._check(key)
        return memoryview(self._data)[span.start : span.end]

    def read_ranges(
        self, key: str, spans: Sequence[ByteRange], *, gap_bytes: int = COALESCE_GAP_BYTES
    ) -> list[memoryview]:
        return [self.read_range(key, span) for span in spans]

    def stream(self, key: str) -> Iterator[memoryview]:
        yield memoryview(self.read(key).data)

    def stat(self, key: str) -> ObjectInfo:
        self._check(key)
        return ObjectInfo(key, self._blob.byte_size, None)

    def list_objects(self, prefix: str) -> Iterator[ObjectInfo]:
        return self._reader.list_objects(prefix)

    def list_folders(self, prefix: str) -> list[str]:
        return self._reader.list_folders(prefix)

    def local_path(self, key: str) -> Path | None:
        return self._reader.local_path(key)

    def is_local(self, key: str) -> bool:
        return True

    def invalidate(self, key: str) -> bool:
        """What is held was verified, so a nearer copy can not be to blame."""
        return False

    def signed_url(self, key: str, expires_s: int) -> str:
        return self._reader.signed_url(key, expires_s)

    def _check(self, key: str) -> None:
        assert key == blob_key(self._blob.hash), "only the blob that is held is read through here"
