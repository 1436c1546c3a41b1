"""A store that is never asked: cached blobs, small objects that were read before, and errors for the rest.

Opens no socket and resolves no credentials. Implements "Offline" of docs/specs/cache.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path

from warpdata.errors import DeniedError, ErrorKind, LimitExceededError, NotCachedError, UnsupportedError
from warpdata.limits import COALESCE_GAP_BYTES, MAX_SMALL_OBJECT_BYTES, STREAM_CHUNK_BYTES
from warpdata.primitives.hashing import Fingerprint, OnBytes, ignore_bytes
from warpdata.primitives.ranges import ByteRange
from warpdata.storage import GetResult, MetadataCacheFiles, ObjectInfo, check_expiry
from warpdata.storage.cache.blob_cache import BlobCache
from warpdata.storage.cache.entries import CacheEntry
from warpdata.storage.cache.reader import digest_of

__all__ = ["OfflineReader", "OfflineStore"]


class OfflineReader:
    """Implements `Reader` for the store at `url`, from blobs in `cache` and small objects in `metadata`.

    Small objects have the content of their last read. `hint` is the next step for objects that are missing.
    """

    def __init__(self, url: str, cache: BlobCache, metadata: MetadataCacheFiles, hint: str) -> None:
        self._url = url
        self._cache = cache
        self._metadata = metadata
        self._hint = hint

    @property
    def url(self) -> str:
        return self._url

    def read(self, key: str) -> GetResult:
        entry = self._find(key, intact=True)
        if entry is not None:
            if entry.size_bytes > MAX_SMALL_OBJECT_BYTES:
                raise LimitExceededError(f"{key!r} has {entry.size_bytes} bytes, too many to read whole")
            return GetResult(bytes(entry.view), None)
        known = self._metadata.load(key)
        if known is None:
            raise self._missing(key)
        return known

    def read_if_changed(self, key: str, etag: str) -> GetResult | None:
        """Compare with the copy on this machine, which is all that is known offline."""
        known = self.read(key)
        return None if known.etag == etag else known

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
        entry = self._find(key, intact=True)
        view = memoryview(self.read(key).data) if entry is None else entry.view
        for start in range(0, len(view), STREAM_CHUNK_BYTES):
            yield view[start : start + STREAM_CHUNK_BYTES]

    def stat(self, key: str) -> ObjectInfo:
        entry = self._find(key)
        if entry is not None:
            return ObjectInfo(key, entry.size_bytes, None)
        known = self.read(key)
        return ObjectInfo(key, len(known.data), known.etag)

    def list_objects(self, prefix: str, *, max_count: int | None = None) -> Iterator[ObjectInfo]:
        raise self._unlisted(prefix)

    def list_folders(self, prefix: str) -> list[str]:
        raise self._unlisted(prefix)

    def local_path(self, key: str) -> Path | None:
        entry = self._find(key, intact=True)
        return None if entry is None else entry.path

    def is_local(self, key: str) -> bool:
        return True

    def expect_size(self, key: str, size_bytes: int) -> None:
        """Ignore the size: nothing here is cached by size."""

    def invalidate(self, key: str) -> bool:
        """Drop the corrupt copy. The next read raises `NotCachedError`, because there is no other copy."""
        digest = digest_of(key)
        dropped = digest is not None and self._cache.evict_corrupt(digest)
        return self._metadata.forget(key) or dropped

    def signed_url(self, key: str, expires_s: int) -> str:
        check_expiry(expires_s)
        raise UnsupportedError(f"{self._url} cannot sign a URL for {key!r} while offline")

    def _find(self, key: str, *, intact: bool = False) -> CacheEntry | None:
        digest = digest_of(key)
        if digest is None:
            return None
        return self._cache.find_intact(digest) if intact else self._cache.find(digest)

    def _missing(self, key: str) -> NotCachedError:
        digest = digest_of(key)
        name = repr(key) if digest is None else f"blob {digest}"
        self._cache.counters.add("misses")
        self._cache.check_directory()  # a directory that is not trusted has no entries
        return NotCachedError(f"{name} of {self._url} is not on this machine", hint=self._hint)

    def _unlisted(self, prefix: str) -> NotCachedError:
        return NotCachedError(f"{self._url} cannot be listed offline, so {prefix!r} is unknown", hint=self._hint)


class OfflineStore(OfflineReader):
    """Implements `Writer`: reads like `OfflineReader`, and refuses every write with `DeniedError`."""

    def create(self, key: str, data: bytes) -> bool:
        raise self._denied(key)

    def create_file(self, key: str, path: Path, fingerprint: Fingerprint, on_bytes: OnBytes = ignore_bytes) -> bool:
        raise self._denied(key)

    def replace(self, key: str, data: bytes) -> None:
        raise self._denied(key)

    def replace_file(self, key: str, path: Path, fingerprint: Fingerprint, on_bytes: OnBytes = ignore_bytes) -> None:
        raise self._denied(key)

    def delete(self, key: str) -> None:
        raise self._denied(key)

    def delete_many(self, keys: Sequence[str]) -> None:
        raise self._denied(keys[0] if keys else "")

    def remove_abandoned(self, before: datetime, *, dry_run: bool = False) -> tuple[int, int]:
        raise self._denied("unfinished writes")

    def refuse_change(self, name: str) -> None:
        """Raise `DeniedError` for a change of `name`, before any work for it is done."""
        raise self._denied(name)

    def _denied(self, key: str) -> DeniedError:
        return DeniedError(
            f"mode 'local' uses no network, so {key!r} was not written to {self._url}",
            hint="Open the store in another mode, such as 'auto'.",
            kind=ErrorKind.READ_ONLY_STORE,
        )
