"""The memory that all readers of the process share: bytes in flight, and bytes read ahead of their consumers.

Half of the budget is for requests. They wait for each other, because each of them ends. The other half is for bytes
that wait for a consumer, who may never come: readers get equal shares, and each may hold one item whatever its size.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Self

from warpdata.primitives.fork import register_after_fork

__all__ = ["ReadAhead", "ReadMemory"]


class ReadMemory:
    """A budget of bytes. Safe to share between threads; a forked child starts with an unused budget."""

    def __init__(self, default_bytes: Callable[[], int]) -> None:
        self._default_bytes = default_bytes
        self._fixed_bytes: int | None = None
        self._reset()
        register_after_fork(self._reset)

    def _reset(self) -> None:
        # Reentrant, because the garbage collector may close a reader while this thread holds the lock.
        self._lock = threading.RLock()
        self._ended = threading.Condition(self._lock)
        self._waiting: deque[object] = deque()
        self._in_flight_bytes = 0
        self._ahead_bytes = 0
        self._readers = 0

    @property
    def limit_bytes(self) -> int:
        """The budget: half of it for requests, half for bytes read ahead."""
        return self._default_bytes() if self._fixed_bytes is None else self._fixed_bytes

    @property
    def is_fixed(self) -> bool:
        return self._fixed_bytes is not None

    @property
    def ahead_bytes(self) -> int:
        """Bytes that a reader may hold ahead of its consumer while it is the only one."""
        return self.limit_bytes // 2

    @property
    def used_bytes(self) -> int:
        """Bytes in flight and read ahead now."""
        return self._in_flight_bytes + self._ahead_bytes

    def resize(self, limit_bytes: int | None) -> None:
        """Set the budget; None for the default."""
        with self._lock:
            self._fixed_bytes = limit_bytes
            self._ended.notify_all()

    def acquire(self, size_bytes: int) -> None:
        """Take the memory of one request. Waits for other requests to end; a request alone may be of any size."""
        with self._lock:
            if self._waiting or not self._has_room(size_bytes):
                self._wait_for_room(size_bytes)
            self._in_flight_bytes += size_bytes

    def release(self, size_bytes: int) -> None:
        """Give the memory of a request back."""
        with self._lock:
            self._in_flight_bytes = max(0, self._in_flight_bytes - size_bytes)  # a forked child begins with none
            if self._waiting:
                self._ended.notify_all()

    @contextmanager
    def request(self, size_bytes: int) -> Iterator[None]:
        """Hold the memory of one request while the block runs."""
        self.acquire(size_bytes)
        try:
            yield
        finally:
            self.release(size_bytes)

    def _has_room(self, size_bytes: int) -> bool:
        return not self._in_flight_bytes or self._in_flight_bytes + size_bytes <= self.limit_bytes // 2

    def _wait_for_room(self, size_bytes: int) -> None:
        """Wait in turn, so that small requests do not keep a large one waiting. Called with the lock held."""
        turn = object()
        self._waiting.append(turn)
        try:
            self._ended.wait_for(lambda: self._waiting[0] is turn and self._has_room(size_bytes))
        finally:
            self._waiting.remove(turn)
            self._ended.notify_all()

    def reader(self) -> ReadAhead:
        """Return a new share of the budget."""
        return ReadAhead(self)

    # Called by `ReadAhead`.

    def open_share(self) -> None:
        with self._lock:
            self._readers += 1

    def take(self, held_bytes: int, size_bytes: int) -> bool:
        """Return whether a reader that holds some bytes may hold more, and count them."""
        with self._lock:
            most = self.limit_bytes // 2
            is_within = (
                held_bytes + size_bytes <= most // max(1, self._readers) and self._ahead_bytes + size_bytes <= most
            )
            if held_bytes and not is_within:
                return False
            self._ahead_bytes += size_bytes
            return True

    def give_back(self, size_bytes: int) -> None:
        with self._lock:
            self._ahead_bytes = max(0, self._ahead_bytes - size_bytes)  # a forked child may close what it never took

    def close_share(self, held_bytes: int) -> None:
        with self._lock:
            self._ahead_bytes = max(0, self._ahead_bytes - held_bytes)
            self._readers = max(0, self._readers - 1)


class ReadAhead:
    """The bytes that one reader holds ahead of its consumer. Use it as a context manager, from one thread."""

    def __init__(self, memory: ReadMemory) -> None:
        self._memory = memory
        self._held_bytes = 0

    def __enter__(self) -> Self:
        self._memory.open_share()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._memory.close_share(self._held_bytes)
        self._held_bytes = 0

    def take(self, size_bytes: int) -> bool:
        """Hold more bytes. False: give some back first. A reader that holds none may always take one item."""
        if not self._memory.take(self._held_bytes, size_bytes):
            return False
        self._held_bytes += size_bytes
        return True

    def give_back(self, size_bytes: int) -> None:
        """Hold fewer bytes: the consumer has them."""
        self._memory.give_back(size_bytes)
        self._held_bytes -= size_bytes
