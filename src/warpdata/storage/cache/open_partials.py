"""The blobs that one reader is fetching: counted reads, open partial blobs, the queue, and failures.

Opening asks the store for a size at most. Fetching is the task of `BlobFetcher`. Implements "Bounds" and "Failures"
of docs/specs/cache.md.
"""

from __future__ import annotations

import errno
import logging
import math
import threading
from collections import OrderedDict
from collections.abc import Sequence

from warpdata.errors import ErrorKind, StorageError, WarpError
from warpdata.primitives.byte_lru import ByteLRU
from warpdata.primitives.concurrency import descriptor_share
from warpdata.primitives.fork import register_after_fork
from warpdata.primitives.hashing import blob_key, sha256_hex
from warpdata.primitives.live_objects import LiveObjects
from warpdata.storage import Reader
from warpdata.storage.cache.blob_cache import BACKOFF_S, BlobCache, Refusal
from warpdata.storage.cache.partial import PartialBlob, count_open_partials
from warpdata.storage.cache.policy import FetchPolicy

__all__ = ["BlobState", "OpenPartials"]

_LOG = logging.getLogger("warpdata.storage.cache")
_MAX_STATES = 4096
_MAX_EXPECTED_SIZES = 65_536
_MAX_PARTIALS = 64
"""The most partial blobs of a reader, and of the process. A lower limit of the system allows fewer."""
_SHARE = 1 / 16
_MAX_RECORDING = 8
"""Partial blobs that are not due, and only keep what consumers read."""
_RECORDING_IDLE_S = 30.0
_RETRY_S = {Refusal.BUSY: 1.0, Refusal.TOO_LARGE: math.inf, Refusal.PRESENT: 0.0, Refusal.BACKOFF: 0.0}


class BlobState:
    """A blob that is not cached, with its partial blob if this reader has one open."""

    def __init__(self, digest: str) -> None:
        self.digest = digest
        self.key = blob_key(digest)
        self.size_bytes: int | None = None
        self.read_count = 0
        self.asked_bytes = 0
        self.partial: PartialBlob | None = None
        self.failed_partial: PartialBlob | None = None
        """The partial blob whose fill ended with an error. Several tasks may meet the same error."""
        self.is_eager = False
        self.is_prefetch = False
        self.is_opening = False
        self.is_committed = False
        """Set when this reader has made the blob an entry."""
        self.retry_at = -math.inf
        self.failure: BaseException | None = None
        """The error that ended the last fill, for the next reader that meets a problem with the blob."""
        self.open_lock = threading.Lock()

    def is_due(self, policy: FetchPolicy) -> bool:
        return policy.is_due(self.read_count, self.asked_bytes, self.size_bytes)


class OpenPartials:
    """The states of one reader. `queue` has the blobs to fetch whole, in order; `lock` guards both."""

    def __init__(self, reader: Reader, cache: BlobCache) -> None:
        self._reader = reader
        self._cache = cache
        self._source = sha256_hex(reader.url.encode())[:16]
        self.expected_sizes: ByteLRU[str, int] = ByteLRU(max_entries=_MAX_EXPECTED_SIZES)
        _all_partials.add(self)
        self._reset_after_fork()
        register_after_fork(self._reset_after_fork)

    def _reset_after_fork(self) -> None:
        """Start with nothing: the partial blobs belong to the parent, which goes on fetching them."""
        self.lock = threading.Lock()
        self.changed = threading.Condition(self.lock)
        self.states: OrderedDict[str, BlobState] = OrderedDict()
        self.queue: OrderedDict[str, BlobState] = OrderedDict()
        self.is_closed = False

    def state(self, digest: str, size_bytes: int | None = None) -> BlobState:
        """Return the state of a blob, new if necessary. Called with the lock held."""
        state = self.states.get(digest)
        if state is None:
            state = self.states[digest] = BlobState(digest)
            if len(self.states) > _MAX_STATES:
                unused = (old.digest for old in self.states.values() if old.partial is None and old is not state)
                oldest = next((name for name in unused if name not in self.queue), None)
                if oldest is not None:
                    del self.states[oldest]
        else:
            self.states.move_to_end(digest)
        state.size_bytes = state.size_bytes or size_bytes or self.expected_sizes.get(digest)
        return state

    def for_read(
        self, digest: str, sizes: Sequence[int], policy: FetchPolicy, size_bytes: int | None = None
    ) -> tuple[BlobState, PartialBlob | None]:
        """Count reads of these sizes, and open the partial blob if the policy asks for it. Never raises."""
        with self.lock:
            state = self.state(digest, size_bytes)
            state.read_count += len(sizes)
            state.asked_bytes += sum(sizes)
            if state.partial is not None:
                state.partial.used_at = self._cache.clock()
                return state, state.partial
            is_due = state.is_due(policy)
            if not is_due and state.asked_bytes < policy.record_after_bytes:
                return state, None
            may_open, idle = self._may_open(state, is_due=is_due, eager=policy.is_eager)
        if idle is not None:
            self._cache.abandon(idle)
        may_open = may_open and _has_descriptors()
        return state, self.try_open(state, eager=policy.is_eager) if may_open else None

    def try_open(self, state: BlobState, *, eager: bool) -> PartialBlob | None:
        """Open the partial blob, or record why that is not possible. Never raises."""
        try:
            opened = self.open(state, eager=eager)
        except WarpError as error:
            self.fail(state, None, error)
            return None
        return opened if isinstance(opened, PartialBlob) else None

    def open(self, state: BlobState, *, eager: bool) -> PartialBlob | Refusal:
        """Open the partial blob. Asks the store for the size if no other process has it open."""
        with state.open_lock:
            if state.partial is not None:
                return state.partial
            try:
                opened = self._cache.open_partial(state.digest, self._source, state.size_bytes, eager=eager)
                if opened is Refusal.UNKNOWN_SIZE:
                    state.size_bytes = self._reader.stat(state.key).size_bytes
                    opened = self._cache.open_partial(state.digest, self._source, state.size_bytes, eager=eager)
            except WarpError:
                raise
            except OSError as error:
                raise self.disk_error(error) from error
            if isinstance(opened, Refusal):
                self._note_refusal(state, opened)
                return opened
            with self.lock:
                if not self.is_closed:
                    state.partial = opened
                    state.size_bytes = opened.blob.byte_size
                    opened.used_at = self._cache.clock()
                    return opened
        self._cache.abandon(opened)
        return Refusal.BACKOFF

    def fail(
        self, state: BlobState, partial: PartialBlob | None, failure: BaseException, *, for_all: bool = False
    ) -> None:
        """End a fill with an error. The files go before the state, so that a caller of `fill` finds none.

        With `for_all`, the fill ends for other processes too.
        """
        with self.lock:
            is_first = state.partial is partial and (partial is None or state.failed_partial is not partial)
            if is_first:
                state.failed_partial = partial
                state.failure = failure
                state.retry_at = self._cache.clock() + BACKOFF_S
        if partial is not None:
            self._cache.abandon(partial, for_all=for_all)
        with self.lock:
            if state.partial is partial:
                self._forget_partial(state)
        if not is_first:
            return
        self._cache.counters.add("failed_fills")
        _LOG.warning("blob %s could not be cached: %s", state.digest, getattr(failure, "message", failure))

    def detach(self, state: BlobState, partial: PartialBlob, *, for_all: bool = False) -> None:
        """Stop using a partial blob. With `for_all`, remove it for other processes too."""
        with self.lock:
            if state.partial is partial:
                self._forget_partial(state)
        self._cache.abandon(partial, for_all=for_all)

    def forget(self, state: BlobState) -> None:
        """Forget a blob that is cached now. Its reads count again from zero after an eviction."""
        with self.lock:
            self._forget_partial(state)
            if self.states.get(state.digest) is state:
                del self.states[state.digest]

    def disk_error(self, error: OSError) -> StorageError:
        """Disable the cache for a while, and return a typed error for callers that asked for a fill."""
        self._cache.disable_temporarily(error)
        fact = f"the cache in {self._cache.directory} cannot be written: {error.strerror or error}"
        is_full = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
        kind = ErrorKind.STORE_FULL if is_full else ErrorKind.STORAGE
        failure = StorageError(fact, kind=kind, hint="Free space, or set WARP_CACHE_DIR.")
        failure.__cause__ = error
        return failure

    def _may_open(self, state: BlobState, *, is_due: bool, eager: bool) -> tuple[bool, PartialBlob | None]:
        """Return whether a partial blob may be opened, and an idle one to abandon for it. Called with the lock held."""
        now = self._cache.clock()
        if self.is_closed or now < state.retry_at or not self._cache.can_fill(eager=eager):
            return False, None
        opened = [(other, other.partial) for other in self.states.values() if other.partial is not None]
        if is_due:
            return len(opened) < _MAX_PARTIALS, None
        recording = [(partial.used_at, other, partial) for other, partial in opened if other.digest not in self.queue]
        if len(recording) < _MAX_RECORDING:
            return True, None
        used_at, oldest, idle = min(recording, key=lambda found: found[0])
        if now - used_at <= _RECORDING_IDLE_S:
            return False, None
        self._forget_partial(oldest)
        return True, idle

    def abandon_idle(self) -> None:
        """Abandon the partial blobs that are not due and were not read for a while."""
        before = self._cache.clock() - _RECORDING_IDLE_S
        with self.lock:
            found = [(state, state.partial) for state in self.states.values() if state.digest not in self.queue]
            idle = [(state, partial) for state, partial in found if partial is not None and partial.used_at < before]
            for state, _ in idle:
                self._forget_partial(state)
        for _, partial in idle:
            self._cache.abandon(partial)

    def _note_refusal(self, state: BlobState, refusal: Refusal) -> None:
        state.retry_at = self._cache.clock() + _RETRY_S.get(refusal, BACKOFF_S)
        if refusal not in (Refusal.PRESENT, Refusal.BUSY):
            self._cache.counters.add("stepped_aside")
            _LOG.debug("blob %s is not cached: %s", state.digest, refusal.value)

    def _forget_partial(self, state: BlobState) -> None:
        """Called with the lock held."""
        state.partial = None
        state.is_prefetch = False
        self.queue.pop(state.digest, None)
        self.changed.notify_all()


_all_partials: LiveObjects[OpenPartials] = LiveObjects()


def _has_descriptors() -> bool:
    """Return whether the process may open one more partial blob. Idle ones of all readers make way for it."""
    most = descriptor_share(_SHARE, _MAX_PARTIALS)
    if count_open_partials() < most:
        return True
    for partials in _all_partials:
        partials.abandon_idle()
    return count_open_partials() < most
