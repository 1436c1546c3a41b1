"""Single-flight downloads into the cache: one reader fetches each unit of a blob, and all readers use it.

A reader that needs bytes claims the units that no reader has claimed, and fetches them. It waits for units that
another reader has claimed, but not for long: the store has them too. Tasks of the I/O pool fetch whole blobs: few at
first, to leave the network to the readers that wait for their first bytes, then as many as the pool allows. A disk
that fails is never reported to a reader. Implements "Fetching" of docs/specs/cache.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from enum import Enum
from functools import partial as partial_call
from itertools import islice

from warpdata.errors import CorruptError, StorageError, StoreTimeoutError, WarpError
from warpdata.limits import KIB, MIB
from warpdata.primitives.adaptive_limit import AdaptiveSize
from warpdata.primitives.fork import register_after_fork
from warpdata.primitives.hashing import Blob, OnBytes, blob_key
from warpdata.primitives.parallel import IO_POOL, REQUEST_LIMIT
from warpdata.primitives.ranges import ByteRange
from warpdata.storage import REPAIR_HINT, Reader
from warpdata.storage.cache.blob_cache import BlobCache, Refusal
from warpdata.storage.cache.open_partials import BlobState, OpenPartials
from warpdata.storage.cache.partial import UNIT_BYTES, PartialBlob, PartialState
from warpdata.storage.cache.policy import FetchPolicy

__all__ = ["BlobFetcher", "Filled"]

_MAX_PREFETCH = 1024
_FIRST_TASKS = 4
_MIN_PIECE_BYTES, _FIRST_PIECE_BYTES, _MAX_PIECE_BYTES = 256 * KIB, 1 * MIB, 8 * MIB
_POLL_S = 0.02
_STALL_S = 5.0
"""A read waits for claimed units until nothing has arrived for this long."""
_FILL_STALL_S = 30.0
_CLOSE_S = 3.0

_Step = Callable[[], None]


class Filled(Enum):
    """The outcome of `fill`: the blob was cached before, was fetched, or did not fit."""

    PRESENT = "present"
    FETCHED = "fetched"
    NO_ROOM = "no room"


class BlobFetcher:
    """The downloads of one reader. Safe to share between threads; a forked child starts with none."""

    def __init__(self, reader: Reader, cache: BlobCache) -> None:
        self._reader = reader
        self._cache = cache
        self._partials = OpenPartials(reader, cache)
        self._piece_size = AdaptiveSize(_FIRST_PIECE_BYTES, _MIN_PIECE_BYTES, _MAX_PIECE_BYTES, clock=cache.clock)
        self._reset_after_fork()
        register_after_fork(self._reset_after_fork)

    def _reset_after_fork(self) -> None:
        self._task_count = self._reading = 0
        self._max_tasks = _FIRST_TASKS
        self._executor = IO_POOL.executor()

    @property
    def is_idle(self) -> bool:
        """Return whether nothing is fetched in the background."""
        with self._partials.lock:
            return not self._partials.queue and not self._task_count

    # Reads

    def read(self, digest: str, wanted: Sequence[ByteRange], policy: FetchPolicy) -> list[memoryview] | None:
        """Return the bytes of these ranges. None: look for the entry again, else ask the store.

        Counts the reads, which may make the blob due.
        """
        state, partial = self._partials.for_read(digest, [span.size_bytes for span in wanted], policy)
        if partial is None or max(span.end for span in wanted) > partial.blob.byte_size:
            return None
        try:
            found = self._read_through(partial, wanted)
            self._after_write(state, partial, policy)
        except WarpError:
            with suppress(OSError):
                if not partial.present_bytes() and state.digest not in self._partials.queue:
                    self._partials.detach(state, partial)  # the first read failed
            raise
        except OSError as error:
            self._partials.fail(state, partial, self._partials.disk_error(error))
            return None
        return found

    def expect_size(self, digest: str, size_bytes: int) -> None:
        """Use this size for the blob instead of asking the store."""
        self._partials.expected_sizes.put(digest, size_bytes)

    def failure_of(self, digest: str) -> BaseException | None:
        """Return the error that ended the last fill of this blob."""
        with self._partials.lock:
            state = self._partials.states.get(digest)
            return None if state is None else state.failure

    def record(
        self, digest: str, start: int, data: memoryview, policy: FetchPolicy, size_bytes: int | None = None
    ) -> int:
        """Keep bytes that a caller has read from the store, if the policy asks for it. Never raises.

        `start` must be the start of a unit. Return the number of bytes kept: whole units, or up to the blob's end.
        """
        state, partial = self._partials.for_read(digest, [len(data)], policy, size_bytes)
        if partial is None:
            return 0
        is_end = start + len(data) == partial.blob.byte_size
        used = len(data) if is_end else len(data) // UNIT_BYTES * UNIT_BYTES
        try:
            claimed = partial.claim([ByteRange(start, start + used)])
            try:
                for span in claimed:
                    partial.write(span, data[span.start - start : span.end - start])
            finally:
                partial.release(claimed)
            self._after_write(state, partial, None)
        except OSError as error:
            self._partials.fail(state, partial, self._partials.disk_error(error))
        return used

    def _read_through(self, partial: PartialBlob, wanted: Sequence[ByteRange]) -> list[memoryview] | None:
        """Fetch the units that no reader has claimed, and wait for the others."""
        fetched: list[tuple[ByteRange, memoryview]] = []
        silence: _Silence | None = None
        while True:
            claimed = partial.claim(wanted)
            if claimed:
                with self._counted_reads():
                    fetched += self._fetch(partial, claimed)
                continue
            if not partial.missing(wanted):
                break
            if silence is None:
                silence = _Silence(partial)
                if silence.present_bytes == partial.stalled_at_bytes or partial.state is not PartialState.LIVE:
                    return None
                self._cache.counters.add("waits")
            if not silence.wait(_STALL_S):
                partial.stalled_at_bytes = silence.present_bytes
                return None
        found = [_slice(fetched, span) or partial.read(span) for span in wanted]
        if fetched:
            self._cache.counters.add("misses")
        else:
            self._cache.counters.hit(sum(map(len, found)))
        return found

    @contextmanager
    def _counted_reads(self) -> Iterator[None]:
        """Count a fetch that a reader waits for. Background tasks do not become more meanwhile."""
        with self._partials.lock:
            self._reading += 1
        try:
            yield
        finally:
            with self._partials.lock:
                self._reading -= 1

    def _fetch(self, partial: PartialBlob, claimed: Sequence[ByteRange]) -> list[tuple[ByteRange, memoryview]]:
        """Fetch claimed ranges into the partial blob, and end the claims."""
        key = blob_key(partial.blob.hash)
        try:
            replies = self._reader.read_ranges(key, claimed, gap_bytes=0)
            for span, reply in zip(claimed, replies, strict=True):
                if len(reply) != span.size_bytes:
                    raise CorruptError(
                        f"{self._reader.url} returned {len(reply)} bytes for a range of {span.size_bytes} of {key!r}"
                    )
                partial.write(span, reply)
        finally:
            partial.release(claimed)
        return list(zip(claimed, replies, strict=True))

    def _after_write(self, state: BlobState, partial: PartialBlob, policy: FetchPolicy | None) -> None:
        """Commit the blob if it is complete, or fetch the rest if it is due."""
        if partial.state is not PartialState.LIVE:
            if not partial.is_closed:  # else another thread is ending it, and records why
                self._partials.detach(state, partial)
            return
        is_complete = partial.is_complete
        with self._partials.lock:
            is_due = policy is not None and state.is_due(policy)
            if (is_due or is_complete) and state.partial is partial:
                self._enqueue(state, eager=policy is not None and policy.is_eager)

    # Whole blobs

    def prefetch(self, blobs: Sequence[Blob], policy: FetchPolicy) -> None:
        """Fetch whole blobs in this order. Replaces what an earlier call asked for and has not begun."""
        if not self._cache.can_fill(eager=policy.is_eager):
            return
        partials = self._partials
        with partials.lock:
            for state in list(partials.queue.values()):
                if state.is_prefetch and state.partial is None and not state.is_opening:
                    del partials.queue[state.digest]
            free = _MAX_PREFETCH - sum(state.is_prefetch for state in partials.queue.values())
            for blob in islice(blobs, max(0, free)):
                state = partials.state(blob.hash, blob.byte_size)
                state.is_prefetch = state.is_prefetch or blob.hash not in partials.queue
                self._enqueue(state, eager=policy.is_eager)

    def fill(self, blob: Blob, on_bytes: OnBytes) -> Filled:
        """Cache the blob and wait for it. The calling thread fetches too, beside the background tasks.

        Raises the error that prevented it. `StoreTimeoutError` if other readers fetch the last units, and nothing
        has arrived for a while.
        """
        if self._cache.contains(blob.hash):
            return Filled.PRESENT
        self._cache.reset_backoff()
        with self._partials.lock:
            state = self._partials.state(blob.hash, blob.byte_size)
        progress = _Progress(on_bytes)
        while not self._partials.is_closed:
            if self._cache.contains(blob.hash):
                is_fetched = state.is_committed or progress.reported_bytes > 0
                progress.report(blob.byte_size if is_fetched else 0)
                return Filled.FETCHED if is_fetched else Filled.PRESENT
            state.failure = None
            partial = self._partials.open(state, eager=True)
            if isinstance(partial, PartialBlob):
                self._work_on(state, partial, progress)
            elif partial is Refusal.BACKOFF:
                raise StorageError(f"the cache in {self._cache.directory} could not be written a moment ago")
            elif partial is Refusal.BUSY:
                raise StoreTimeoutError(f"another process is filling blob {blob.hash}", hint="Try again later.")
            elif partial is not Refusal.PRESENT:
                return Filled.NO_ROOM
        raise StorageError(f"the reader was closed before blob {blob.hash} was cached")

    def _work_on(self, state: BlobState, partial: PartialBlob, progress: _Progress) -> None:
        """Fetch and commit one partial blob until it ends; raise the error that ended it."""
        partials = self._partials
        with partials.lock:
            if state.partial is partial:
                self._enqueue(state, eager=True)
                partials.queue.move_to_end(state.digest, last=False)
        silence = _Silence(partial)
        while state.partial is partial and not partials.is_closed:
            step = self._next_step(state, partial)
            if step is not None:
                step()
            elif not silence.wait(_FILL_STALL_S) and partial.state is PartialState.LIVE:
                raise StoreTimeoutError(
                    f"another process is fetching blob {state.digest}, but nothing arrived for {_FILL_STALL_S:g} s",
                    hint="Try again when it has ended.",
                )
            if not partial.is_closed:
                progress.report(partial.present_bytes())
        if state.failure is not None:
            raise state.failure

    def drop(self, digest: str) -> bool:
        """Discard what was fetched of a blob, for all processes. Return whether there was anything."""
        with self._partials.lock:
            state = self._partials.states.get(digest)
            partial = None if state is None else state.partial
        if state is None or partial is None:
            return False
        self._partials.detach(state, partial, for_all=True)
        return True

    def close(self) -> None:
        """Fetch nothing more. Commit what is complete, remove the rest, and wait briefly for running tasks."""
        partials = self._partials
        with partials.lock:
            partials.is_closed = True
            partials.changed.notify_all()
            partials.changed.wait_for(lambda: not self._task_count, _CLOSE_S)
            opened = [(state, state.partial) for state in partials.states.values() if state.partial is not None]
        for state, partial in opened:
            self._guard(state, partial, partial_call(self._close_partial, state, partial))
        with partials.lock:
            partials.queue.clear()
        self._cache.save_counts()

    def close_later(self) -> None:
        """Close in the background. Safe in a finalizer, which may interrupt a thread that holds any lock."""
        self._partials.is_closed = True
        with suppress(RuntimeError):  # the interpreter exits; the next scan removes what is left
            IO_POOL.executor(1).submit(self.close)

    def _close_partial(self, state: BlobState, partial: PartialBlob) -> None:
        if partial.state is PartialState.LIVE and partial.is_complete and partial.begin_commit():
            self._commit(state, partial)
        else:
            self._partials.detach(state, partial)

    # Background tasks

    def _enqueue(self, state: BlobState, *, eager: bool) -> None:
        """Fetch the whole blob in the background. Called with the lock held."""
        state.is_eager = state.is_eager or eager
        if not self._partials.is_closed:
            self._partials.queue.setdefault(state.digest, state)
            self._start_task()
            self._partials.changed.notify()

    def _start_task(self) -> None:
        if self._task_count < self._max_tasks:
            self._task_count += 1
            self._executor.submit(self._run)

    def _run(self) -> None:
        """Work until there is nothing to do. One task stays to watch blobs that other processes are fetching."""
        partials = self._partials
        while True:
            with partials.lock:
                step = None if partials.is_closed else self._choose_step()
                if step is not None:
                    self._start_task()
                elif partials.is_closed or not partials.queue or self._task_count > 1:
                    self._task_count -= 1
                    partials.changed.notify_all()
                    return
                else:
                    partials.changed.wait(_POLL_S)
                    continue
            step()

    def _choose_step(self) -> _Step | None:
        """Return a step for the first blob of the queue that has one. Called with the lock held."""
        for state in list(self._partials.queue.values()):
            partial = state.partial
            if partial is None and not state.is_opening:
                state.is_opening = True
                return partial_call(self._open_queued, state)
            step = None if partial is None else self._next_step(state, partial)
            if step is not None:
                return step
        return None

    def _next_step(self, state: BlobState, partial: PartialBlob) -> _Step | None:
        """Return a step that advances this blob, or None if other readers are fetching all that is missing."""
        try:
            if partial.state is not PartialState.LIVE:
                # A closed one is not live either: another thread is ending it, and records why.
                return None if partial.is_closed else lambda: self._partials.detach(state, partial)
            claimed = partial.claim_next(self._piece_size.value)
            if claimed:
                return lambda: self._guard(state, partial, lambda: self._fetch_piece(partial, claimed))
            if partial.is_complete and partial.begin_commit():
                return lambda: self._guard(state, partial, lambda: self._commit(state, partial))
        except OSError as error:
            failure = self._partials.disk_error(error)
            return lambda: self._partials.fail(state, partial, failure)
        return None

    def _open_queued(self, state: BlobState) -> None:
        try:
            if self._cache.clock() >= state.retry_at:
                self._partials.try_open(state, eager=state.is_eager)
        finally:
            with self._partials.lock:
                state.is_opening = False
                if state.partial is None:
                    self._partials.queue.pop(state.digest, None)

    def _fetch_piece(self, partial: PartialBlob, claimed: Sequence[ByteRange]) -> None:
        """Fetch a piece. Pieces become large first, then more of them are fetched at a time."""
        before = self._piece_size.value
        with self._piece_size.measuring(sum(span.size_bytes for span in claimed)):
            self._fetch(partial, claimed)
        if self._piece_size.value <= before and not self._reading:
            self._max_tasks = max(_FIRST_TASKS, min(self._max_tasks + 1, REQUEST_LIMIT.value))

    def _commit(self, state: BlobState, partial: PartialBlob) -> None:
        """Verify a complete blob and make it an entry."""
        strong, quick = partial.hashes()
        counters = self._cache.counters
        if strong != state.digest:
            counters.add("rejected")
            error = CorruptError(
                f"blob {state.digest} in {self._reader.url} does not hold the {partial.blob.byte_size} bytes "
                "its name promises",
                hint=REPAIR_HINT,
            )
            # Recorded before the files go, because a caller of `fill` that finds none looks for the error.
            self._partials.fail(state, partial, error, for_all=True)
            return
        state.is_committed = True  # first, because other threads look for the entry
        if not self._cache.commit(partial, quick):
            state.is_committed = False
            self._partials.detach(state, partial)
            return
        counters.add("fills")
        counters.add("fill_bytes", partial.blob.byte_size)
        counters.add("prefetched", int(state.is_prefetch))
        self._cache.find(state.digest)
        self._partials.forget(state)

    def _guard(self, state: BlobState, partial: PartialBlob, step: _Step) -> None:
        """Run a step. An error ends the fill; nothing is raised."""
        try:
            step()
        except WarpError as error:
            self._partials.fail(state, partial, error)
        except OSError as error:
            self._partials.fail(state, partial, self._partials.disk_error(error))
        except BaseException as error:  # noqa: BLE001 - a task that dies would leave readers waiting
            self._partials.fail(state, partial, error)


class _Silence:
    """Measures for how long a partial blob has received nothing."""

    def __init__(self, partial: PartialBlob) -> None:
        self._partial = partial
        self.present_bytes = partial.present_bytes()
        self._silent_s = 0.0

    def wait(self, timeout_s: float) -> bool:
        """Wait a moment. False: nothing arrived for `timeout_s`, or the partial blob has ended."""
        self._partial.wait(_POLL_S)
        self._silent_s += _POLL_S
        present_bytes = self._partial.present_bytes()
        if present_bytes != self.present_bytes:
            self.present_bytes, self._silent_s = present_bytes, 0.0
        return self._silent_s < timeout_s and self._partial.state is PartialState.LIVE


class _Progress:
    """Reports the growth of a byte count."""

    def __init__(self, on_bytes: OnBytes) -> None:
        self._on_bytes = on_bytes
        self.reported_bytes = 0

    def report(self, present_bytes: int) -> None:
        if present_bytes > self.reported_bytes:
            self._on_bytes(present_bytes - self.reported_bytes)
            self.reported_bytes = present_bytes


def _slice(fetched: Sequence[tuple[ByteRange, memoryview]], span: ByteRange) -> memoryview | None:
    """Return the bytes of a range that one reply covers."""
    for whole, reply in fetched:
        if whole.start <= span.start and span.end <= whole.end:
            return reply[span.start - whole.start : span.end - whole.start]
    return None
