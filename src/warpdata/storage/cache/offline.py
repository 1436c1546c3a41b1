"""Reading without a store: what is on this machine, and a clear word about what is not.

Opens no socket. Implements "Offline" of docs/specs/cache.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from warpdata.errors import LimitExceededError, NotCachedError, UnsupportedError
from warpdata.limits import COALESCE_GAP_BYTES, MAX_SMALL_OBJECT_BYTES, STREAM_CHUNK_BYTES
from warpdata.storage import ByteRange, GetResult, MetadataCacheFiles, ObjectInfo
from warpdata.storage.cache.blob_cache import BlobCache
from warpdata.storage.cache.entries import Entry
from warpdata.storage.cache.reader import digest_of

__all__ = ["OfflineReader"]


class OfflineReader:
    """Implements `Reader` for the store at `url`, from its blobs in `cache` and the small objects remembered.

    Small objects are as they were when they were last seen. `hint` is what to do about those missing.
    """

    def __init__(self, url: str, cache: BlobCache, remembered: MetadataCacheFiles, hint: str) -> None:
        self._url = url
        self._cache = cache
        self._remembered = remembered
        self._hint = hint

    @property
    def url(self) -> str:
        return self._url

    def read(self, key: str) -> GetResult:
        entry = self._find(key, whole=True)
        if entry is not None:
            if entry.size_bytes > MAX_SMALL_OBJECT_BYTES:
                raise LimitExceededError(f"{key!r} has {entry.size_bytes} bytes, too many to read whole")
            return GetResult(bytes(entry.view), None)
        remembered = self._remembered.load(key)
        if remembered is None:
            raise self._missing(key)
        return remembered

    def read_if_changed(self, key: str, etag: str) -> GetResult | None:
        """Nobody can say whether it changed; what is remembered is all there is."""
        fetched = self.read(key)
        return None if fetched.etag == etag else fetched

    def read_range(self, key: str, span: ByteRange) -> memoryview:
        return self.read_ranges(key, [span])[0]

    def read_ranges(
        self, key: str, spans: Sequence[ByteRange], *, gap_bytes: int = COALESCE_GAP_BYTES
    ) -> list[memoryview]:
        entry = self._find(key)
        if entry is None:
            raise self._missing(key)
        found = entry.slices(spans)
        self._cache.counters.hit(sum(map(len, found)))
        return found

    def stream(self, key: str) -> Iterator[memoryview]:
        entry = self._find(key, whole=True)
        view = memoryview(self.read(key).data) if entry is None else entry.view
        for start in range(0, len(view), STREAM_CHUNK_BYTES):
            yield view[start : start + STREAM_CHUNK_BYTES]

    def stat(self, key: str) -> ObjectInfo:
        entry = self._find(key)
        if entry is not None:
            return ObjectInfo(key, entry.size_bytes, None)
        remembered = self.read(key)
        return ObjectInfo(key, len(remembered.data), remembered.etag)

    def list_objects(self, prefix: str) -> Iterator[ObjectInfo]:
        raise self._unlisted(prefix)

    def list_folders(self, prefix: str) -> list[str]:
        raise self._unlisted(prefix)

    def local_path(self, key: str) -> Path | None:
        entry = self._find(key, whole=True)
        return None if entry is None else entry.path

    def is_local(self, key: str) -> bool:
        return True

    def invalidate(self, key: str) -> bool:
        """Drops what is damaged. Reading again then finds it missing, which is the truth."""
        digest = digest_of(key)
        dropped = digest is not None and self._cache.heal(digest)
        return self._remembered.forget(key) or dropped

    def signed_url(self, key: str, expires_s: int) -> str:
        raise UnsupportedError(f"{self._url} cannot sign a URL for {key!r} while offline")

    def _find(self, key: str, *, whole: bool = False) -> Entry | None:
        digest = digest_of(key)
        if digest is None:
            return None
        return self._cache.find_whole(digest) if whole else self._cache.find(digest)

    def _missing(self, key: str) -> NotCachedError:
        digest = digest_of(key)
        what = repr(key) if digest is None else f"blob {digest}"
        self._cache.counters.add("misses")
        return NotCachedError(f"{what} of {self._url} is not on this machine", hint=self._hint)

    def _unlisted(self, prefix: str) -> NotCachedError:
        return NotCachedError(f"what lies under {prefix!r} of {self._url} is not known offline", hint=self._hint)
