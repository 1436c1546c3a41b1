"""A store with a cache in front: hits are views of mapped files, misses may become hits.

A wrapper around a `Reader`, composed at the root, so that no reader knows it is there. Only blobs are
cached; other keys are passed on. What it returns is as little verified as what a store returns.
Implements "Reading" of docs/specs/cache.md.
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
from warpdata.limits import (
    CACHE_WATCHED_BLOBS,
    COALESCE_GAP_BYTES,
    MAX_PAGE_BYTES,
    MAX_SMALL_OBJECT_BYTES,
    STREAM_CHUNK_BYTES,
)
from warpdata.primitives.hashing import Blob, OnBytes, blob_key, ignore_bytes, is_digest
from warpdata.storage import ByteRange, GetResult, ObjectInfo, Reader, coalesce, split_reply
from warpdata.storage.cache.blob_cache import BlobCache
from warpdata.storage.cache.blob_state import Filled, Piece, total_bytes
from warpdata.storage.cache.entries import Entry
from warpdata.storage.cache.fetcher import Filler
from warpdata.storage.cache.miss import Plan, Reads
from warpdata.storage.cache.policy import FILL_FOR_MEDIA, FillPolicy
from warpdata.storage.cache.prefetch import fill_now

__all__ = ["CachedReader", "digest_of"]

_LOG = logging.getLogger("warpdata.storage.cache")
_LOOKS = 8


class CachedReader:
    """Implements `Reader`. Threads are started by the first fill, and end when there is nothing to do.

    `policy` says when reads are reason to fetch a whole blob. A reader made by `under` shares everything
    else; closing one closes all.
    """

    def __init__(self, reader: Reader, cache: BlobCache, policy: FillPolicy = FILL_FOR_MEDIA) -> None:
        self._reader = reader
        self._cache = cache
        self.policy = policy
        self._opened = cache.opened
        self._by_key = cache.opened.by_key
        self._counters = cache.counters
        self._told: dict[str, set[int]] = {}
        """For each blob of which a copy was dropped, the threads that know."""
        self._filler = Filler(reader, cache)
        self._reads = Reads(self._filler, cache)
        self._lifeline = _Lifeline()
        finalize(self._lifeline, self._filler.close_unasked).atexit = False
        _fillers.add(self._filler)

    def under(self, policy: FillPolicy) -> CachedReader:
        """The same reader for consumers of another kind."""
        other = copy(self)
        other.policy = policy
        return other

    @property
    def url(self) -> str:
        return self._reader.url

    # Blobs

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
        plan = self._plan(digest, wanted)
        if isinstance(plan, Entry):
            return self._serve(plan, spans)
        return split_reply(spans, requests, self._carry_out(plan, wanted, gap_bytes))

    def read(self, key: str) -> GetResult:
        digest = digest_of(key)
        entry = None if digest is None else self._cache.find_whole(digest)
        if entry is not None:
            if entry.size_bytes > MAX_SMALL_OBJECT_BYTES:
                raise LimitExceededError(f"{key!r} has {entry.size_bytes} bytes, too many to read whole")
            return GetResult(bytes(self._serve(entry, [ByteRange(0, entry.size_bytes)])[0]), None)
        fetched = self._reader.read(key)
        if digest is not None:
            self._counters.add("misses")
            if len(fetched.data) > MAX_PAGE_BYTES:  # smaller ones are a matter of the metadata cache
                piece = (0, memoryview(fetched.data))
                self._reads.brought(digest, piece, self.policy, size_bytes=len(fetched.data))
        return fetched

    def stream(self, key: str) -> Iterator[memoryview]:
        digest = digest_of(key)
        entry = None if digest is None else self._cache.find_whole(digest)
        if entry is not None:
            for start in range(0, entry.size_bytes, STREAM_CHUNK_BYTES):
                yield from self._serve(entry, [ByteRange(start, min(start + STREAM_CHUNK_BYTES, entry.size_bytes))])
            return
        # A stream brings everything by itself, so it is no reason to fetch the rest on the side.
        policy, start = FillPolicy(None, None, self.policy.eager), 0
        for chunk in self._reader.stream(key):
            if digest is not None:
                self._reads.brought(digest, (start, chunk), policy)
                start += len(chunk)
            yield chunk
        if digest is not None:
            self._counters.add("misses")

    def local_path(self, key: str) -> Path | None:
        digest = digest_of(key)
        entry = None if digest is None else self._cache.find_whole(digest)
        return self._reader.local_path(key) if entry is None else entry.path

    def is_local(self, key: str) -> bool:
        digest = digest_of(key)
        return (digest is not None and self._cache.find(digest) is not None) or self._reader.is_local(key)

    def invalidate(self, key: str) -> bool:
        digest = digest_of(key)
        dropped = False
        if digest is not None:
            with self._filler.doubt_lock:
                dropped = self._cache.heal(digest)
                dropped = self._filler.forget(digest) or dropped
                dropped = self._reads.sharing.doubt(digest) or dropped
                dropped = self._has_news(digest, dropped=dropped)
        return self._reader.invalidate(key) or dropped

    def _has_news(self, digest: str, *, dropped: bool) -> bool:
        """Whether a copy was dropped, now or since this thread last asked: another one may have read the same bytes."""
        if dropped:
            if len(self._told) >= CACHE_WATCHED_BLOBS:
                self._told.clear()
            self._told[digest] = set()
        told, me = self._told.get(digest), threading.get_ident()
        if told is None or me in told:
            return dropped
        told.add(me)
        return True

    # Filling

    def prefetch(self, blobs: Sequence[Blob]) -> None:
        """Fetch these blobs in this order, in the background. A later call replaces what has not begun."""
        if self._cache.has_hope(eager=self.policy.eager):
            with self._filler.board.lock:
                self._filler.board.line_up(blobs, self.policy)
                self._filler.crew.wake()

    def fill(self, blob: Blob, on_bytes: OnBytes = ignore_bytes) -> Filled:
        """Have the blob in the cache, evicting whatever nobody uses, and wait for it.

        Raises what kept it from being fetched or written. `on_bytes` hears of bytes as they come.
        """
        return fill_now(self._filler, self._cache, blob, on_bytes)

    def close(self) -> None:
        """End the threads, remove what is not complete, and unpin. Reading goes on, from the store at least."""
        self._filler.close()
        self._opened.release(0.0)
        _LOG.debug("%s: %s", self.url, self._counters.snapshot())

    # Everything else is the store's

    def read_if_changed(self, key: str, etag: str) -> GetResult | None:
        return self._reader.read_if_changed(key, etag)

    def stat(self, key: str) -> ObjectInfo:
        return self._reader.stat(key)

    def list_objects(self, prefix: str) -> Iterator[ObjectInfo]:
        return self._reader.list_objects(prefix)

    def list_folders(self, prefix: str) -> list[str]:
        return self._reader.list_folders(prefix)

    def signed_url(self, key: str, expires_s: int) -> str:
        return self._reader.signed_url(key, expires_s)

    def _serve(self, entry: Entry, spans: Sequence[ByteRange]) -> list[memoryview]:
        found = entry.slices(spans)
        self._opened.use(entry)
        self._counters.hit(sum(map(len, found)))
        return found

    def _plan(self, digest: str, wanted: Sequence[ByteRange]) -> Plan | Entry:
        """What to do about a read of a blob that was not there; or the blob, which came in the meantime."""
        is_first = self._reads.note(digest, wanted, self.policy)
        if is_first and (entry := self._cache.find(digest)) is not None:
            return entry  # a fill ended just now, and took what was known about the blob with it
        for _ in range(_LOOKS):
            plan = self._reads.plan(digest, wanted, self.policy, may_wait=not is_first, may_share=True)
            found = plan or self._cache.find(digest)
            if found is not None:
                return found
        plan = self._reads.plan(digest, wanted, self.policy, may_wait=False, may_share=False)
        assert plan is not None, "a read that waits for nobody has a plan"
        return plan

    def _carry_out(self, plan: Plan, wanted: Sequence[ByteRange], gap_bytes: int) -> list[memoryview]:
        """The wanted bytes: those at hand, and the others from the store."""
        asked = [span for span, found in zip(wanted, plan.at_hand, strict=True) if found is None]
        if not asked:
            self._counters.hit(total_bytes(wanted))
            return [found for found in plan.at_hand if found is not None]
        self._counters.add("misses")
        try:
            replies = self._reader.read_ranges(plan.record.key, asked, gap_bytes=gap_bytes)
        except BaseException as error:
            self._reads.missed(plan)
            if plan.record.failure is not None:
                error.add_note(f"Fetching the whole blob had failed before: {plan.record.failure}")
            raise
        pieces: list[Piece] = [(span.start, reply) for span, reply in zip(asked, replies, strict=True)]
        self._reads.arrived(plan, pieces, self.policy)
        come = iter(replies)
        return [next(come) if found is None else found for found in plan.at_hand]


def digest_of(key: str) -> str | None:
    """The blob that a key names; None for any other object."""
    digest = key[-64:]
    return digest if is_digest(digest) and key == blob_key(digest) else None


class _Lifeline:
    """Goes when the last reader of a family goes."""


_fillers: WeakSet[Filler] = WeakSet()


@atexit.register
def _close_all() -> None:
    for filler in [*_fillers]:
        filler.close()
