"""Memory for media: a bound for the media of one batch, and one for all prefetched batches of the process.

A batch reserves memory before it reads or decodes. Above the bound of a batch, that is an error. Above the bound of
the process, a prefetched batch is deferred: it frees its memory, and is made when the consumer waits for it. Nothing
waits for memory, so streams cannot block each other.
"""

from __future__ import annotations

import threading

from warpdata.errors import LimitExceededError
from warpdata.limits import MEDIA_MEMORY_BYTES
from warpdata.primitives.fork import register_after_fork

__all__ = ["BatchDeferred", "BatchMemory", "prefetched_bytes"]

_STEPS = 64


class BatchDeferred(MemoryError):  # noqa: N818 - the batch is made later. Decoders let a MemoryError pass
    """The prefetched batches of the process leave too little memory for this one."""


class _Account:
    """Bytes that the prefetched batches of the process hold."""

    def __init__(self) -> None:
        self._reset()
        register_after_fork(self._reset)

    def _reset(self) -> None:
        self._lock = threading.Lock()
        self.used_bytes = 0

    def take(self, size_bytes: int, limit_bytes: int) -> bool:
        with self._lock:
            if self.used_bytes + size_bytes > limit_bytes:
                return False
            self.used_bytes += size_bytes
            return True

    def give(self, size_bytes: int) -> None:
        with self._lock:
            self.used_bytes = max(0, self.used_bytes - size_bytes)  # a forked child began at zero


_account = _Account()


def prefetched_bytes() -> int:
    """Return the bytes that prefetched batches of this process hold, or reserve for decoding."""
    return _account.used_bytes


class BatchMemory:
    """The media of one batch, as stored and decoded. `is_ahead`: no consumer waits for the batch yet."""

    def __init__(self, limit_bytes: int = MEDIA_MEMORY_BYTES, *, is_ahead: bool = False) -> None:
        self._limit_bytes = limit_bytes
        self._is_ahead = is_ahead
        self._held_bytes = 0
        self._member = ""
        self._member_start = 0
        self.used_bytes = 0
        self.is_exceeded = False

    def begin(self, member: str, size_bytes: int) -> None:
        """Reserve memory for the content of a member. The next reservations are for the same member."""
        self._member, self._member_start = member, self.used_bytes
        self.reserve(size_bytes)

    def reserve(self, size_bytes: int) -> None:
        """Reserve memory. `LimitExceededError` above the bound, `BatchDeferred` if other batches use it."""
        used = self.used_bytes + size_bytes
        if used > self._limit_bytes:
            self.is_exceeded = True
            raise LimitExceededError(
                f"{self._member!r} needs {used - self._member_start:,} bytes of memory, and other media of its batch "
                f"{self._member_start:,}; the limit of a batch is {self._limit_bytes:,} bytes",
                hint="Use a smaller batch_size, or raise WARP_MEDIA_MEMORY_GB (Settings.media_memory_bytes).",
            )
        if self._is_ahead and used > self._held_bytes:
            self._hold(used)
        self.used_bytes = used

    def end(self, size_bytes: int) -> None:
        """Keep only `size_bytes` of what was reserved for the member."""
        self.used_bytes = self._member_start + size_bytes

    def release(self) -> None:
        """Give back everything: the batch was dropped, or belongs to the consumer."""
        if self._held_bytes:
            _account.give(self._held_bytes)
        self._held_bytes = self.used_bytes = 0

    def for_consumer(self) -> BatchMemory:
        """Return the memory of a batch that the consumer waits for, with the same bound."""
        return BatchMemory(self._limit_bytes)

    def _hold(self, used_bytes: int) -> None:
        """Take memory of the process in large steps, because threads share the account."""
        step = max(1, self._limit_bytes // _STEPS)
        wanted = min(-(-used_bytes // step) * step, self._limit_bytes)
        if not _account.take(wanted - self._held_bytes, self._limit_bytes):
            raise BatchDeferred
        self._held_bytes = wanted
