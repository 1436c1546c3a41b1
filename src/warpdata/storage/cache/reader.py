"""A reader with a disk cache: hits are views of mapped files, misses are fetched and may be kept.

Sessions compose it around a store, so that consumers see a plain `Reader`. Only blobs are cached; other keys go to
the store. Like a store, it does not verify ranges. Implements "Reading" of docs/specs/cache.md.
"""

from __future__ import annotations

import atexit
import logging
import threading
from collections.abc import Iterator, Sequence
from copy import copy
from pathlib import Path
from weakref import WeakSet, finalize

from warpdata.errors import LimitExceededError
from warpdata.limits import COALESCE_GAP_BYTES, MAX_PAGE_BYTES, MAX_SMALL_OBJECT_BYTES, STREAM_CHUNK_BYTES
from warpdata.primitives.fork import ForkSafeLock
from warpdata.primitives.hashing import Blob, OnBytes, blob_key, ignore_bytes, is_digest
from warpdata.primitives.ranges import ByteRange, coalesce, split_reply
from warpdata.storage import GetResult, Reader, ReaderWrapper
from warpdata.storage.cache.blob_cache import BlobCache
from warpdata.storage.cache.entries import CacheEntry
from warpdata.storage.cache.fetcher import BlobFetcher, Filled
from warpdata.storage.cache.partial import UNIT_BYTES
from warpdata.storage.cache.policy import FetchPolicy

__all__ = ["CachedReader", "digest_of"]

_LOG = logging.getLogger("warpdata.storage.cache")
_MAX_DROPPED = 4096


class CachedReader(ReaderWrapper):
    """Implements `Reader`. Background tasks start with the first fill and end when there is nothing to fetch.

    `policy` says when reads cause a whole blob to be fetched. A reader made by `with_policy` shares everything
    else; closing one closes all.
    """

    def __init__(self, reader: Reader, cache: BlobCache, policy: FetchPolicy = FetchPolicy.MEDIA) -> None:
        super().__init__(reader)
        self._cache = cache
        self.policy = policy
        self._opened = cache.opened
        self._by_key = cache.opened.by_key
        self._counters = cache.counters
        self._invalidate_lock = ForkSafeLock()
        self._informed: dict[str, set[int]] = {}
        """For each blob of which a copy was dropped, the threads that know."""
        self._fetcher = BlobFetcher(reader, cache)
        self._lifetime = _Lifetime()
        finalize(self._lifetime, self._fetcher.close_later).atexit = False
        _fetchers.add(self._fetcher)

    def with_policy(self, policy: FetchPolicy) -> CachedReader:
        """Return the same reader with another policy."""
        other = copy(self)
        other.policy = policy
        return other

    # Reading blobs

    def read_range(self, key: str, span: ByteRange) -> memoryview:
        entry = self._by_key.get(key)
        if entry is None:
            return self.read_ranges(key, [span])[0]
        found = entry.slice(span)
        self._opened.use(entry)
        self._counters.hit(span.end - span.start)
        return found

    def read_ranges(
        self, key: str, spans: Sequence[ByteRange], *, gap_bytes: int = COALESCE_GAP_BYTES
    ) -> list[memoryview]:
        digest = digest_of(key)
        if digest is None:
            return self._reader.read_ranges(key, spans, gap_bytes=gap_bytes)
        entry = self._cache.find(digest)
        if entry is not None:
            return self._serve(entry, spans)
        requests = coalesce(spans, gap_bytes)
        wanted = [request.span for request in requests]
        if not wanted:
            return [memoryview(b"") for _ in spans]
        found = self._fetcher.read(digest, wanted, self.policy)
        if found is None:
            entry = self._cache.find(digest)  # another reader may have committed it meanwhile
            if entry is not None:
                return self._serve(entry, spans)
            found = self._read_store(key, digest, wanted, gap_bytes)
        return split_reply(spans, requests, found)

    def read(self, key: str) -> GetResult:
        digest = digest_of(key)
        entry = None if digest is None else self._cache.find_intact(digest)
        if entry is not None:
            if entry.size_bytes > MAX_SMALL_OBJECT_BYTES:
                raise LimitExceededError(f"{key!r} has {entry.size_bytes} bytes, too many to read whole")
            return GetResult(bytes(self._serve(entry, [ByteRange(0, entry.size_bytes)])[0]), None)
        fetched = self._reader.read(key)
        if digest is not None:
            self._counters.add("misses")
            size = len(fetched.data)
            if size > MAX_PAGE_BYTES:  # the metadata cache keeps smaller ones
                self._fetcher.record(digest, 0, memoryview(fetched.data), self.policy, size)
        return fetched

    def stream(self, key: str) -> Iterator[memoryview]:
        digest = digest_of(key)
        entry = None if digest is None else self._cache.find_intact(digest)
        if entry is not None:
            for start in range(0, entry.size_bytes, STREAM_CHUNK_BYTES):
                yield from self._serve(entry, [ByteRange(start, min(start + STREAM_CHUNK_BYTES, entry.size_bytes))])
            return
        start, tail, is_recorded = 0, b"", digest is not None
        for chunk in self._reader.stream(key):
            if digest is not None and is_recorded:
                data = memoryview(tail + bytes(chunk)) if tail else chunk
                used = self._fetcher.record(digest, start, data, self.policy)
                start, tail, is_recorded = start + used, bytes(data[used:]), used > 0 or len(data) < UNIT_BYTES
            yield chunk
        if digest is not None:
            self._counters.add("misses")

    def local_path(self, key: str) -> Path | None:
        digest = digest_of(key)
        entry = None if digest is None else self._cache.find_intact(digest)
        return self._reader.local_path(key) if entry is None else entry.path

    def is_local(self, key: str) -> bool:
        digest = digest_of(key)
        return (digest is not None and self._cache.find(digest) is not None) or self._reader.is_local(key)

    def expect_size(self, key: str, size_bytes: int) -> None:
        digest = digest_of(key)
        if digest is not None:
            self._fetcher.expect_size(digest, size_bytes)

    def invalidate(self, key: str) -> bool:
        digest = digest_of(key)
        dropped = False
        if digest is not None:
            with self._invalidate_lock:  # threads that read the same bytes drop them one after the other
                dropped = self._cache.evict_corrupt(digest)
                dropped = self._fetcher.drop(digest) or dropped
                dropped = self._inform(digest, dropped=dropped)
        return self._reader.invalidate(key) or dropped

    def _inform(self, digest: str, *, dropped: bool) -> bool:
        """Return whether a copy was dropped, now or since this thread last asked: both may have read the same bytes."""
        if dropped:
            if len(self._informed) >= _MAX_DROPPED:
                self._informed.clear()
            self._informed[digest] = set()
        informed, thread = self._informed.get(digest), threading.get_ident()
        if informed is None or thread in informed:
            return dropped
        informed.add(thread)
        return True

    def _serve(self, entry: CacheEntry, spans: Sequence[ByteRange]) -> list[memoryview]:
        found = entry.slices(spans)
        self._opened.use(entry)
        self._counters.hit(sum(map(len, found)))
        return found

    def _read_store(self, key: str, digest: str, wanted: Sequence[ByteRange], gap_bytes: int) -> list[memoryview]:
        self._counters.add("misses")
        try:
            return self._reader.read_ranges(key, wanted, gap_bytes=gap_bytes)
        except BaseException as error:
            failure = self._fetcher.failure_of(digest)
            if failure is not None:
                error.add_note(f"Fetching the whole blob had failed before: {failure}")
            raise

    # Filling

    def prefetch(self, blobs: Sequence[Blob]) -> None:
        """Fetch these blobs in this order, in the background. Replaces what an earlier call has not begun."""
        self._fetcher.prefetch(blobs, self.policy)

    def fill(self, blob: Blob, on_bytes: OnBytes = ignore_bytes) -> Filled:
        """Cache the blob, evicting any entry that is not in use, and wait for it.

        Raises the error that prevented it. `on_bytes` is called with the number of bytes as they arrive.
        """
        return self._fetcher.fill(blob, on_bytes)

    def close(self) -> None:
        """End background tasks, remove incomplete blobs and unpin entries. Reads still work, from the store."""
        self._fetcher.close()
        self._opened.release(0.0)
        _LOG.debug("%s: %s", self.url, self._counters.snapshot())


def digest_of(key: str) -> str | None:
    """Return the digest of the blob that a key names; None for any other object."""
    digest = key[-64:]
    return digest if is_digest(digest) and key == blob_key(digest) else None


class _Lifetime:
    """Shared by a reader and its copies, and collected with the last of them."""


_fetchers: WeakSet[BlobFetcher] = WeakSet()


@atexit.register
def _close_all() -> None:
    for fetcher in [*_fetchers]:
        fetcher.close()
