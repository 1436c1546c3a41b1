"""What was asked of the store and what the cache spared it, in numbers.

Cheap enough to be always on. Numbers are those of this process; a forked child begins at zero.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from pathlib import Path

from warpdata.limits import COALESCE_GAP_BYTES
from warpdata.storage import ByteRange, GetResult, ObjectInfo, Reader, coalesce
from warpdata.storage.cache.locks import register_after_fork

__all__ = ["IOMetrics", "IOStats", "MeteredReader"]


@dataclass(frozen=True, slots=True)
class IOStats:
    """`requests` and `bytes_fetched` are what the store was asked; the others are what the cache did.

    `hits` were served from this machine and `misses` by the store; `waits` stood still for a fill. `healed`
    entries were found damaged and dropped, `rejected` fills did not have the bytes their name promises,
    `failed_fills` ended with an error. `stepped_aside` is how often the cache could or would not help: no room,
    no permission, a disk that fails.
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
        """What was counted after `earlier`; of counters that began anew, everything."""
        differences = {name: getattr(self, name) - getattr(earlier, name) for name in _NAMES}
        return self if min(differences.values()) < 0 else IOStats(**differences)


_NAMES = tuple(field.name for field in fields(IOStats))


class IOMetrics:
    """Counts that grow. Safe to share between threads."""

    def __init__(self) -> None:
        self.after_fork()
        register_after_fork(self)

    def after_fork(self) -> None:
        self._lock = threading.Lock()
        self._amounts = dict.fromkeys(_NAMES, 0)

    def add(self, name: str, amount: int = 1) -> None:
        with self._lock:
            self._amounts[name] += amount

    def hit(self, size_bytes: int) -> None:
        with self._lock:
            self._amounts["hits"] += 1
            self._amounts["hit_bytes"] += size_bytes

    def sent(self, requests: int, bytes_fetched: int) -> None:
        with self._lock:
            self._amounts["requests"] += requests
            self._amounts["bytes_fetched"] += bytes_fetched

    def snapshot(self) -> IOStats:
        """All counts as of one moment."""
        with self._lock:
            return IOStats(**self._amounts)


class MeteredReader:
    """Implements `Reader` by passing everything on. Put it directly around a store, so that what it counts is
    what is sent: ranges that share a request count once, with the bytes between them.

    Streams count by chunk for bytes and once for requests; retries inside a store are not seen.
    """

    def __init__(self, reader: Reader, counters: IOMetrics) -> None:
        self._reader = reader
        self._counters = counters

    @property
    def url(self) -> str:
        return self._reader.url

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

    def list_objects(self, prefix: str) -> Iterator[ObjectInfo]:
        self._counters.sent(1, 0)
        return self._reader.list_objects(prefix)

    def list_folders(self, prefix: str) -> list[str]:
        self._counters.sent(1, 0)
        return self._reader.list_folders(prefix)

    def local_path(self, key: str) -> Path | None:
        return self._reader.local_path(key)

    def is_local(self, key: str) -> bool:
        return self._reader.is_local(key)

    def invalidate(self, key: str) -> bool:
        return self._reader.invalidate(key)

    def signed_url(self, key: str, expires_s: int) -> str:
        return self._reader.signed_url(key, expires_s)
