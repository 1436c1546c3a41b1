"""An in-memory LRU cache that is bounded by bytes."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from warpdata.primitives.fork import register_after_fork

__all__ = ["ByteLRU"]

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class ByteLRU(Generic[K, V]):
    """The most recently used values, at most `max_bytes` and `max_entries` of them. Safe to share between threads.

    The cache never frees a value that a caller still holds. `on_evict(key, value)` runs without the lock for
    values that the cache drops: evicted, replaced or cleared, but not popped. With `clear_after_fork`,
    a forked child starts empty, without calls of `on_evict`.
    """

    def __init__(
        self,
        max_bytes: int | None = None,
        *,
        max_entries: int | None = None,
        on_evict: Callable[[K, V], None] | None = None,
        clear_after_fork: bool = False,
    ) -> None:
        self.max_bytes = max_bytes
        self.max_entries = max_entries
        self._on_evict = on_evict
        self._clear_after_fork = clear_after_fork
        self._entries: OrderedDict[K, tuple[V, int]] = OrderedDict()
        self._size_bytes = 0
        # Reentrant, because the garbage collector may run a finalizer that uses the cache while the lock is held.
        self._lock = threading.RLock()
        register_after_fork(self._reset_after_fork)

    @property
    def size_bytes(self) -> int:
        return self._size_bytes

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, key: K) -> bool:
        """Return whether the key is cached, without counting as a use."""
        return key in self._entries

    def get(self, key: K) -> V | None:
        found = self._entry(key)
        return None if found is None else found[0]

    def put(self, key: K, value: V, size_bytes: int = 0) -> bool:
        """Cache the value in place of an older one. False: the value alone exceeds the bound, and is not cached."""
        with self._lock:
            dropped = self._remove(key)
            is_kept = self._insert(key, value, size_bytes, dropped)
        self._report(dropped)
        return is_kept

    def get_or_create(self, key: K, create: Callable[[], V], size_of: Callable[[V], int] = lambda _: 0) -> V:
        """Return the cached value, or create and cache one.

        `create` runs without the lock. Threads that miss together may all create a value; all get the one cached first.
        """
        found = self._entry(key)
        if found is not None:
            return found[0]
        value = create()
        size_bytes = size_of(value)
        dropped: list[tuple[K, V]] = []
        with self._lock:
            found = self._entry(key)
            if found is None:
                self._insert(key, value, size_bytes, dropped)
        self._report(dropped)
        return value if found is None else found[0]

    def pop(self, key: K) -> V | None:
        """Remove a value and return it; None if the key is not cached."""
        with self._lock:
            removed = self._remove(key)
        return removed[0][1] if removed else None

    def clear(self) -> None:
        with self._lock:
            dropped = [(key, value) for key, (value, _) in self._entries.items()]
            self._entries.clear()
            self._size_bytes = 0
        self._report(dropped)

    def _entry(self, key: K) -> tuple[V, int] | None:
        with self._lock:
            found = self._entries.get(key)
            if found is not None:
                self._entries.move_to_end(key)
            return found

    def _remove(self, key: K) -> list[tuple[K, V]]:
        found = self._entries.pop(key, None)
        if found is None:
            return []
        self._size_bytes -= found[1]
        return [(key, found[0])]

    def _insert(self, key: K, value: V, size_bytes: int, dropped: list[tuple[K, V]]) -> bool:
        """Add the entry and move evicted ones to `dropped`, so that their finalizers run without the lock."""
        most = self.max_bytes
        if (most is not None and size_bytes > most) or self.max_entries == 0:
            return False
        self._entries[key] = (value, size_bytes)
        self._size_bytes += size_bytes
        while (most is not None and self._size_bytes > most) or (
            self.max_entries is not None and len(self._entries) > self.max_entries
        ):
            dropped += self._remove(next(iter(self._entries)))
        return True

    def _report(self, dropped: list[tuple[K, V]]) -> None:
        if self._on_evict is not None:
            for key, value in dropped:
                self._on_evict(key, value)

    def _reset_after_fork(self) -> None:
        """Replace the lock. Another thread of the parent may have held it in the middle of an update."""
        self._lock = threading.RLock()
        if self._clear_after_fork:
            self._entries = OrderedDict()
        self._size_bytes = sum(size for _, size in self._entries.values())
