"""Who may stay: room for new blobs, made by evicting those that were used least recently.

Every method that is handed an `Account` is called with the ledger's lock held. Implements "Eviction"
of docs/specs/cache.md.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from dataclasses import dataclass

from warpdata.limits import CACHE_BUSY_REST_S, CACHE_IDLE_S, CACHE_REST_S, CACHE_ROOM_FRACTION
from warpdata.storage.cache.dir_scan import Survey, survey
from warpdata.storage.cache.entries import OpenEntries
from warpdata.storage.cache.layout import Places
from warpdata.storage.cache.locks import Handle
from warpdata.storage.cache.metrics import IOMetrics
from warpdata.storage.cache.quota import Account

__all__ = ["Collected", "Room"]


@dataclass(frozen=True, slots=True)
class Collected:
    """What was evicted; `kept_pinned` entries would have gone, too, but are in use."""

    entries: int
    bytes: int
    kept_pinned: int


class Room:
    """The room of one cache folder, as this process may use it."""

    def __init__(self, opened: OpenEntries, limit_bytes: int, clock: Callable[[], float], counters: IOMetrics) -> None:
        self._places: Places = opened.places
        self._opened = opened
        self._limit_bytes = limit_bytes
        self._clock = clock
        self._counters = counters
        self._full_until = {False: 0.0, True: 0.0}

    def is_full(self, *, eager: bool) -> bool:
        """Whether a survey has just shown that nothing can be evicted. It is not repeated for a while."""
        return self._clock() < self._full_until[eager]

    def reserve(self, account: Account, need: int, *, eager: bool) -> bool:
        """Whether `need` bytes fit below the limit, now or after evicting. The caller adds them to the account."""
        if self._fits(account, need):
            return True
        if account.total_bytes is not None and self.is_full(eager=eager):
            return False
        now = self._clock()
        found = survey(self._places, tidy=True)
        account.total_bytes = found.total_bytes
        if self._fits(account, need):
            return True
        goal = max(0, int(CACHE_ROOM_FRACTION * self._limit_bytes) - need)
        self.evict(account, found, goal, idle_s=None if eager else CACHE_IDLE_S)
        if self._fits(account, need):
            return True
        self._full_until[eager] = now + (CACHE_BUSY_REST_S if eager else CACHE_REST_S)
        return False

    def evict(self, account: Account, found: Survey, goal_bytes: int, *, idle_s: float | None) -> Collected:
        """Remove entries, the least recently used first, until the total is no more than the goal.

        With `idle_s`, only those that nobody has used for so long.
        """
        self._opened.release(idle_s or 0.0)
        used_before = math.inf if idle_s is None else self._clock() - idle_s
        count = size = kept = 0
        for digest, used_at in found.least_recent_first():
            if used_at > used_before or (account.total_bytes or 0) <= goal_bytes:
                break
            freed = self._evict_one(digest, account)
            if freed is None:
                kept += 1
            else:
                count, size = count + 1, size + freed
        self._counters.add("evictions", count)
        self._counters.add("evicted_bytes", size)
        return Collected(count, size, kept)

    def remove(self, account: Account, digest: str) -> bool:
        """The record goes first: what has no record is no entry, whatever happens next."""
        self._places.record(digest).unlink(missing_ok=True)
        data = self._places.data(digest)
        try:
            size = data.stat().st_size
            data.unlink()
        except FileNotFoundError:
            return False
        account.add(-size)
        return True

    def _fits(self, account: Account, need: int) -> bool:
        return account.total_bytes is not None and account.total_bytes + need <= self._limit_bytes

    def _evict_one(self, digest: str, account: Account) -> int | None:
        """The bytes that became free, or None if the entry is in use."""
        try:
            handle = Handle.open(self._places.data(digest), os.O_RDWR)
        except FileNotFoundError:
            return 0
        except PermissionError:
            return None
        if not handle.try_lock(exclusive=True):
            return None
        size = handle.size_bytes()
        try:
            self.remove(account, digest)
        except PermissionError:
            return None
        finally:
            handle.unlock()
        return size
