"""Counts of store requests and cache activity.

Counting is cheap enough to be always on. The counts belong to this process; a forked child starts at zero.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields

from warpdata.limits import COALESCE_GAP_BYTES
from warpdata.primitives.fork import register_after_fork
from warpdata.primitives.ranges import ByteRange, coalesce
from warpdata.storage.types import GetResult, ObjectInfo, Reader
from warpdata.storage.wrapper import ReaderWrapper

__all__ = ["IOMetrics", "IOStats", "MeteredReader"]


@dataclass(frozen=True, slots=True)
class IOStats:
    """Counts of one moment. `requests` and `bytes_fetched` are about the store, the others about the cache.

    `hits` were served from this machine and `misses` by the store; `waits` waited for another reader's fetch.
    `healed` entries were corrupt and removed, `rejected` blobs did not match their name, `failed_fills` ended with
    an error. `stepped_aside` counts how often the cache was bypassed: no space, no permission, a failing disk.
    """

    requests: int = 0
    bytes_fetched: int = 0
    hits: int = 0
    hit_bytes: int = 0
    misses: int = 0
    waits: int = 0
    fills: int = 0
    fill_bytes: int = 0
    failed_fills: int = 0
    evictions: int = 0
    evicted_bytes: int = 0
    healed: int = 0
    rejected: int = 0
    stepped_aside: int = 0
    prefetched: int = 0

    def since(self, earlier: IOStats) -> IOStats:
        """Return the difference to `earlier`; all counts if they restarted at zero in between."""
        differences = {name: getattr(self, name) - getattr(earlier, name) for name in _NAMES}
        return self if min(differences.values()) < 0 else IOStats(**differences)


_NAMES = tuple(field.name for field in fields(IOStats))


class IOMetrics:
    """Counters that only grow. Safe to share between threads."""

    def __init__(self) -> None:
        self._reset_after_fork()
        register_after_fork(self._reset_after_fork)

    def _reset_after_fork(self) -> None:
        self._lock = threading.Lock()
        self._counts = dict.fromkeys(_NAMES, 0)

    def add(self, name: str, amount: int = 1) -> None:
        with self._lock:
            self._counts[name] += amount

    def hit(self, size_bytes: int) -> None:
        with self._lock:
            self._counts["hits"] += 1
            self._counts["hit_bytes"] += size_bytes

    def sent(self, requests: int, bytes_fetched: int) -> None:
        with self._lock:
            self._counts["requests"] += requests
            self._counts["bytes_fetched"] += bytes_fetched

    def snapshot(self) -> IOStats:
        """Return all counts of one moment."""
        with self._lock:
            return IOStats(**self._counts)


class MeteredReader(ReaderWrapper):
    """Counts the requests to the reader it wraps. Wrap the store itself, so that the counts are what is sent.

    Ranges that share a request count once, with the bytes between them. Retries inside a store are not counted.
    """

    def __init__(self, reader: Reader, counters: IOMetrics) -> None:
        super().__init__(reader)
        self._counters = counters

    def read(self, key: str) -> GetResult:
        self._counters.sent(1, 0)
        fetched = self._reader.read(key)
        self._counters.sent(0, len(fetched.data))
        return fetched

    def read_if_changed(self, key: str, etag: str) -> GetResult | None:
        self._counters.sent(1, 0)
        fetched = self._reader.read_if_changed(key, etag)
        self._counters.sent(0, len(fetched.data) if fetched is not None else 0)
        return fetched

    def read_range(self, key: str, span: ByteRange) -> memoryview:
        self._counters.sent(1, 0)
        reply = self._reader.read_range(key, span)
        self._counters.sent(0, len(reply))
        return reply

    def read_ranges(
        self, key: str, spans: Sequence[ByteRange], *, gap_bytes: int = COALESCE_GAP_BYTES
    ) -> list[memoryview]:
        requests = coalesce(spans, gap_bytes)
        self._counters.sent(len(requests), 0)
        replies = self._reader.read_ranges(key, spans, gap_bytes=gap_bytes)
        self._counters.sent(0, sum(request.span.size_bytes for request in requests))
        return replies

    def stream(self, key: str) -> Iterator[memoryview]:
        self._counters.sent(1, 0)
        for chunk in self._reader.stream(key):
            self._counters.sent(0, len(chunk))
            yield chunk

    def stat(self, key: str) -> ObjectInfo:
        self._counters.sent(1, 0)
        return self._reader.stat(key)

    def list_objects(self, prefix: str, *, max_count: int | None = None) -> Iterator[ObjectInfo]:
        self._counters.sent(1, 0)
        return self._reader.list_objects(prefix, max_count=max_count)

    def list_folders(self, prefix: str) -> list[str]:
        self._counters.sent(1, 0)
        return self._reader.list_folders(prefix)
