"""Blobs at other keys than their own: content that was collected once and is needed again, and external files.

Code above asks for `blob_key(hash)`. For the few blobs that a version names in `generations`, this reader asks the
store for the key with the generation. Caches stay above it, so they are keyed by content alone. Implements "Blobs" of
docs/specs/store.md. A file outside of the store is read in the same way, under the key that its blob would have.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from warpdata.limits import COALESCE_GAP_BYTES
from warpdata.primitives.hashing import blob_key
from warpdata.storage.types import ByteRange, GetResult, ObjectInfo, Reader
from warpdata.storage.wrapper import ReaderWrapper

__all__ = ["GenerationReader", "RenamedReader"]


class RenamedReader(ReaderWrapper):
    """Implements `Reader`. The given keys are translated; listings show keys as they are."""

    def __init__(self, reader: Reader, keys: Mapping[str, str]) -> None:
        super().__init__(reader)
        self._keys = keys

    def read(self, key: str) -> GetResult:
        return self._reader.read(self._at(key))

    def read_if_changed(self, key: str, etag: str) -> GetResult | None:
        return self._reader.read_if_changed(self._at(key), etag)

    def read_range(self, key: str, span: ByteRange) -> memoryview:
        return self._reader.read_range(self._at(key), span)

    def read_ranges(
        self, key: str, spans: Sequence[ByteRange], *, gap_bytes: int = COALESCE_GAP_BYTES
    ) -> list[memoryview]:
        return self._reader.read_ranges(self._at(key), spans, gap_bytes=gap_bytes)

    def stream(self, key: str) -> Iterator[memoryview]:
        return self._reader.stream(self._at(key))

    def stat(self, key: str) -> ObjectInfo:
        return replace(self._reader.stat(self._at(key)), key=key)

    def local_path(self, key: str) -> Path | None:
        return self._reader.local_path(self._at(key))

    def is_local(self, key: str) -> bool:
        return self._reader.is_local(self._at(key))

    def expect_size(self, key: str, size_bytes: int) -> None:
        self._reader.expect_size(self._at(key), size_bytes)

    def invalidate(self, key: str) -> bool:
        return self._reader.invalidate(self._at(key))

    def signed_url(self, key: str, expires_s: int) -> str:
        return self._reader.signed_url(self._at(key), expires_s)

    def _at(self, key: str) -> str:
        return self._keys.get(key, key)


class GenerationReader(RenamedReader):
    """Reads the blobs in `generations` at the keys of their generations."""

    def __init__(self, reader: Reader, generations: Mapping[str, str]) -> None:
        super().__init__(reader, {blob_key(digest): blob_key(digest, name) for digest, name in generations.items()})
