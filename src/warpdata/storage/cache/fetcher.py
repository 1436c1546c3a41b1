"""Does the steps of a board: reserves room, fetches what is missing, checks and keeps.

A disk that fails makes the cache step aside; a store that fails ends the fill and is remembered for
whoever meets trouble with that blob. Nothing here is raised to a consumer. Implements "Filling" of
docs/specs/cache.md.
"""

from __future__ import annotations

import errno
import logging
import math
import threading
from collections.abc import Sequence
from contextlib import suppress

from warpdata.errors import BlobCorruptedError, CorruptError, StorageError, StoreFullError, WarpError
from warpdata.limits import CACHE_BUSY_REST_S, CACHE_CLOSE_PATIENCE_S, CACHE_REST_S, CACHE_THREADS
from warpdata.storage import ByteRange, Reader
from warpdata.storage.cache.blob_cache import BlobCache, Refusal
from warpdata.storage.cache.blob_state import Filled, Phase, Piece, Watched
from warpdata.storage.cache.locks import register_after_fork
from warpdata.storage.cache.partial import Claim, Part
from warpdata.storage.cache.scheduler import Board, Step, StepKind
from warpdata.storage.cache.worker_pool import Crew, Job

__all__ = ["Filler"]

_LOG = logging.getLogger("warpdata.storage.cache")
_RESTS_S = {Refusal.BUSY: CACHE_BUSY_REST_S, Refusal.TOO_LARGE: math.inf}
"""How long to leave a blob alone after a refusal, if not for a minute."""


class Filler:
    """The threads behind one reader. `board` is where the work comes from."""

    def __init__(self, reader: Reader, cache: BlobCache) -> None:
        self._reader = reader
        self._cache = cache
        self.after_fork()
        register_after_fork(self)

    def after_fork(self) -> None:
        """A child begins with an empty board. The parts are the parent's, who goes on filling them."""
        self.doubt_lock = threading.Lock()
        """One thread at a time drops what it doubts, so that the others know of it."""
        self.board = Board()
        self.crew = Crew(self.board.lock, self._next_job, CACHE_THREADS)

    def put(self, record: Watched, part: Part, pieces: Sequence[Piece]) -> None:
        """Write pieces into the part, and let those know who wait for them."""
        try:
            for start, data in pieces:
                part.write(start, data)
        except OSError as error:
            self._give_up(record, part, self._disk_failed(error))
            return
        with self.board.lock:
            if record.part is part:
                for start, data in pieces:
                    record.spoken_for.add(ByteRange(start, start + len(data)))
                record.progress += 1
                record.changed.notify_all()
                self.crew.wake()

    def forget(self, digest: str) -> bool:
        """Throw away what was fetched of a blob so far; whether there was something."""
        with self.board.lock:
            record = self.board.find(digest)
            part = None if record is None else self.board.rest(record)
        if part is not None:
            self._cache.abandon(part)
        return isinstance(part, Part)

    def close(self) -> None:
        """Begin nothing more, throw away what is not complete, and wait a little for the threads."""
        with self.board.lock:
            parts = self.board.close()
            self.crew.dismiss()
        self._abandon(parts)
        self.crew.join(CACHE_CLOSE_PATIENCE_S)
        with self.board.lock:
            parts = self.board.give_up(list(self.board))
        self._abandon(parts)
        self._cache.save_counts()

    def close_unasked(self) -> None:
        """As `close`, from the garbage collector, which may have stopped a thread that holds some lock.

        So nothing is waited for. Is it the board's, that thread finds the board closed, and cleans up.
        """
        self.board.is_closed = True
        if self.board.lock.acquire(blocking=False):
            try:
                parts = self.board.close()
                self.crew.dismiss()
            finally:
                self.board.lock.release()
            if parts:
                with suppress(RuntimeError):  # the interpreter ends; the next survey finds what is left
                    threading.Thread(target=self._abandon, args=(parts,), name="warpdata-cache", daemon=True).start()

    def _next_job(self) -> Job | None:
        self._hear_wishes()
        step = self.board.next_step()
        if step is not None:
            return lambda: self._do(step)
        parts = self.board.close() if self.board.is_closed else []
        return (lambda: self._abandon(parts)) if parts else None

    def _hear_wishes(self) -> None:
        for record in self.board:
            if record.wants_all and record.part is not None:
                try:
                    record.wished = record.part.wishes()
                except OSError:  # then others wait until it comes in its turn
                    record.wished = []

    def _abandon(self, parts: Sequence[Part | Claim]) -> None:
        for part in parts:
            self._cache.abandon(part)

    def _do(self, step: Step) -> None:
        record, part = step.record, step.part
        try:
            if step.kind is StepKind.BEGIN:
                self._begin(record)
            elif part is not None and step.gap is not None:
                self._fetch(record, part, step.gap)
            elif part is not None:
                self._finish(record, part)
        except WarpError as error:
            self._give_up(record, part, error)
        except OSError as error:
            self._give_up(record, part, self._disk_failed(error))
        except BaseException as error:  # noqa: BLE001 - a thread that dies would leave others waiting
            self._give_up(record, part, error)
        finally:
            if step.is_ahead:
                with self.board.lock:
                    self.board.steps_ahead -= 1

    def _begin(self, record: Watched) -> None:
        if record.size_bytes is None:
            try:
                size = self._reader.stat(record.key).size_bytes
            except BaseException:
                claim = self._take_claim(record)
                self._abandon([] if claim is None else [claim])
                raise
            with self.board.lock:
                record.size_bytes = size
                record.changed.notify_all()
        claim = self._take_claim(record)
        got = self._cache.begin(record.blob, eager=record.policy.eager, filling=record.wants_all, claim=claim)
        if isinstance(got, Refusal):
            self._refused(record, got)
            return
        with self.board.lock:
            is_wanted = record.phase is Phase.BEGINNING
            held = self.board.begin(record, got) if is_wanted else []
            idle = self.board.surplus(self._cache.clock())
            surplus: list[Part | Claim] = [] if is_wanted else [got]
            if idle is not None and (part := self.board.rest(idle)) is not None:
                surplus.append(part)
        self._abandon(surplus)
        self.put(record, got, held)

    def _take_claim(self, record: Watched) -> Claim | None:
        with self.board.lock:
            claim, record.claimed = record.claimed, None
            return claim

    def _refused(self, record: Watched, refusal: Refusal) -> None:
        now = self._cache.clock()
        with self.board.lock:
            if record.phase is not Phase.BEGINNING:
                return
            if refusal is Refusal.PRESENT:
                self.board.end(record, refusal)
                return
            self.board.rest(record)
            record.outcome = refusal
            record.not_before = now + _RESTS_S.get(refusal, CACHE_REST_S)
        if refusal is not Refusal.BUSY:
            self._cache.counters.add("stepped_aside")
            _LOG.debug("blob %s is not kept: %s", record.digest, refusal.value)

    def _fetch(self, record: Watched, part: Part, gap: ByteRange) -> None:
        part.tell(filling=True)
        data = self._reader.read_range(record.key, gap)
        if len(data) != gap.size_bytes:
            raise CorruptError(f"{self._reader.url} answered {len(data)} bytes for {gap.size_bytes} of {record.key!r}")
        self.put(record, part, [(gap.start, data)])
        part.hash_ahead()

    def _finish(self, record: Watched, part: Part) -> None:
        strong, quick = part.hashes()
        if strong != record.digest:
            self._cache.counters.add("rejected")
            raise BlobCorruptedError(
                f"blob {record.digest} in {self._reader.url} does not hold the {part.blob.byte_size} bytes "
                "its name promises",
                hint="Publish it again, or restore the store.",
            )
        if not self._cache.commit(part, quick):
            with self.board.lock:
                if record.part is part:
                    self.board.rest(record)
            return
        counters = self._cache.counters
        counters.add("fills")
        counters.add("fill_bytes", part.blob.byte_size)
        counters.add("prefetched", int(record.is_prefetch))
        self._cache.find(record.digest)
        with self.board.lock:
            if record.part is part:
                self.board.end(record, Filled.FETCHED)

    def _give_up(self, record: Watched, part: Part | None, failure: BaseException) -> None:
        """The part goes first, so that whoever hears of the failure finds nothing left of it."""
        if part is not None:
            self._cache.abandon(part)
        with self.board.lock:
            is_current = record.part is part and record.phase not in (Phase.WATCHED, Phase.QUEUED, Phase.OVER)
            if is_current:
                self.board.rest(record)
                record.failure = record.outcome = failure
                record.not_before = self._cache.clock() + CACHE_REST_S
        if is_current:
            self._cache.counters.add("failed_fills")
            _LOG.warning("blob %s could not be kept: %s", record.digest, getattr(failure, "message", failure))

    def _disk_failed(self, error: OSError) -> StorageError:
        """Make the cache step aside, and say in typed words why, for those who asked for a fill."""
        self._cache.step_aside(error)
        fact = f"the cache in {self._cache.folder} can not be written: {error.strerror or error}"
        is_full = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
        failure = (StoreFullError if is_full else StorageError)(fact, hint="Free space, or set WARP_CACHE_DIR.")
        failure.__cause__ = error
        return failure
