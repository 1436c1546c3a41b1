"""Processes that read the same blob fetch it once: one of them fills it, and the others use what it has.

A blob that is due is claimed before the first byte of it is fetched. Nobody waits for long: where whoever
fills a blob ends or does not get on, the store has it, too. Implements "Sharing" of docs/specs/cache.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from threading import Event

from warpdata.limits import CACHE_POLL_S, CACHE_SHARE_PATIENCE_S, CACHE_STALL_S
from warpdata.storage import ByteRange
from warpdata.storage.cache.blob_cache import BlobCache
from warpdata.storage.cache.blob_state import Watched
from warpdata.storage.cache.fetcher import Filler
from warpdata.storage.cache.partial import Progress
from warpdata.storage.cache.policy import FillPolicy
from warpdata.storage.cache.shared_partial import Elsewhere

__all__ = ["Ours", "Sharing", "Verdict"]

_FINISHING_STALLS = 5
"""How much longer to wait for a fill that has all its bytes: syncing them to disk shows no progress."""

_CLAIM_TRIES = 4
_CLAIM_PAUSE_S = 0.002


class Verdict(Enum):
    """What to do about a read whose bytes do not come from another process."""

    ASK = "nobody else has them, or soon enough"
    LOOK_AGAIN = "somebody else has filled the blob, or given up"


@dataclass(frozen=True, slots=True)
class Ours:
    """It is for this process to fill the blob from now on. `claims` are ranges that only the asking read fetches."""

    claims: list[ByteRange]


class Sharing:
    """What a reader does about the fills of other processes."""

    def __init__(self, filler: Filler, cache: BlobCache) -> None:
        self._filler = filler
        self._cache = cache

    def read(
        self, record: Watched, spans: Sequence[ByteRange], policy: FillPolicy, *, may_wait: bool
    ) -> list[memoryview] | Ours | Verdict:
        """The bytes out of somebody else's part, after waiting for them if need be.

        A blob that is due and that nobody fills is ours from now on.
        """
        is_due = policy.is_due(record.read_count, record.asked_bytes, record.size_bytes)
        if not may_wait and not is_due:
            return Verdict.ASK
        for _ in range(_CLAIM_TRIES):
            ours = self._claimed(record, spans, policy) if is_due else None
            if ours is not None:
                return ours
            try:
                found = self._cache.elsewhere(record.digest)
                seen = None if found is None else found.look()
                if found is not None and seen is not None:
                    return self._from_other(record, spans, found, seen)
            except OSError as error:
                self._cache.step_aside(error)
                return Verdict.ASK
            if not is_due or not self._may_claim(record, policy):
                return Verdict.ASK
            if self._cache.is_entry(record.digest):
                return Verdict.LOOK_AGAIN
            Event().wait(_CLAIM_PAUSE_S)  # somebody had it locked for a moment, to see whether it is taken
        return Verdict.ASK

    def doubt(self, digest: str) -> bool:
        """Take nothing more of this blob out of others' parts; whether anything came from there."""
        with self._filler.board.lock:
            record = self._filler.board.find(digest)
            if record is None or not record.has_shared:
                return False
            record.doubts_others = True
            return True

    def _may_claim(self, record: Watched, policy: FillPolicy) -> bool:
        is_time = self._cache.clock() >= record.not_before and self._cache.has_hope(eager=policy.eager)
        return is_time and self._filler.board.may_claim(record)

    def _claimed(self, record: Watched, spans: Sequence[ByteRange], policy: FillPolicy) -> Ours | Verdict | None:
        """Become the one who fills the blob, and say so before the first byte is fetched; None if that can not be."""
        board = self._filler.board
        with board.lock:
            if record.is_ours:
                return Verdict.ASK
            if not self._may_claim(record, policy):
                return None
            record.claimed = self._cache.claim(record.digest)
            if record.claimed is None:
                return None
            board.enqueue(record, policy, wants_all=True)
            record.is_held = True
            return Ours(record.claim(spans))

    def _from_other(
        self, record: Watched, spans: Sequence[ByteRange], found: Elsewhere, seen: Progress
    ) -> list[memoryview] | Verdict:
        if record.doubts_others:
            return Verdict.ASK
        data: list[memoryview] | Verdict | None = found.take(spans)
        if data is None:
            with self._filler.board.lock:
                if record.stalled_elsewhere == seen.covered_bytes or record.can_afford(spans, seen.size_bytes):
                    return Verdict.ASK
            self._cache.counters.add("waits")
            data = self._outwait(record, spans, found, seen)
        record.has_shared = record.has_shared or not isinstance(data, Verdict)
        return data

    def _outwait(
        self, record: Watched, spans: Sequence[ByteRange], found: Elsewhere, seen: Progress
    ) -> list[memoryview] | Verdict:
        stall_s = still_s = 0.0
        is_told, beat = False, b""
        while not self._filler.board.is_closed:
            is_told = is_told or found.wish(spans, seen.size_bytes)
            Event().wait(CACHE_POLL_S)
            now = found.look()
            if now is None or record.is_ours:  # it is over, or it was our own that had just begun
                return Verdict.LOOK_AGAIN
            data = found.take(spans)
            if data is not None:
                return data
            last_beat, beat = beat, found.beat(now.size_bytes)
            still_s = still_s + CACHE_POLL_S if now == seen else 0.0
            stall_s = stall_s + CACHE_POLL_S if now == seen and beat == last_beat else 0.0
            seen = now
            is_complete = seen.covered_bytes == seen.size_bytes > 0
            patience_s = CACHE_STALL_S * (_FINISHING_STALLS if is_complete else 1)
            if stall_s >= patience_s or still_s >= CACHE_SHARE_PATIENCE_S:
                record.stalled_elsewhere = seen.covered_bytes
                return Verdict.ASK
        return Verdict.ASK
