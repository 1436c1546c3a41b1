"""What a reader knows about one blob that is not in the cache: who asked for what, how far its fill is.

Decisions only: every method is called with the lock of the `Board` that holds the record, and none of
them touches a disk or a store. Implements "While a fill runs" of docs/specs/cache.md.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Sequence
from enum import Enum

from warpdata.limits import CACHE_BUDGET_FRACTION, CACHE_PIECE_BYTES, CACHE_TEE_BYTES, KIB
from warpdata.primitives.hashing import Blob, blob_key
from warpdata.storage import ByteRange
from warpdata.storage.cache.blob_cache import Refusal
from warpdata.storage.cache.partial import Claim, Part
from warpdata.storage.cache.policy import FillPolicy
from warpdata.storage.cache.spans import Spans

__all__ = ["Filled", "Outcome", "Phase", "Piece", "Watched", "total_bytes"]

Piece = tuple[int, memoryview]
"""Bytes, and where in the blob they begin."""


class Filled(Enum):
    """How a fill ended that somebody asked for: the blob was there before, was fetched, or did not fit."""

    PRESENT = "present"
    FETCHED = "fetched"
    NO_ROOM = "no room"


Outcome = Filled | Refusal | BaseException | None


def total_bytes(spans: Sequence[ByteRange]) -> int:
    return sum(span.size_bytes for span in spans)


class Phase(Enum):
    """Where a blob stands on its way into the cache."""

    WATCHED = "reads are counted, nothing more"
    QUEUED = "a part is to begin"
    BEGINNING = "a thread is reserving room"
    COLLECTING = "there is a part, which takes what consumers read"
    FILLING = "threads fetch what the part lacks"
    FINISHING = "all is there, and is being hashed and kept"
    OVER = "this record is of no use any more"


class Watched:
    """One blob. `waiters` is how many stand still for it, `wanted` the bytes they need."""

    def __init__(self, digest: str, lock: threading.Lock, policy: FillPolicy) -> None:
        self.digest = digest
        self.key = blob_key(digest)
        self.changed = threading.Condition(lock)
        self.size_bytes: int | None = None
        self.read_count = 0
        self.asked_bytes = 0
        self.spent_bytes = 0
        self.waiters = 0
        self.wanted: list[ByteRange] = []
        self.not_before = self.active_at = -math.inf
        self.failure: BaseException | None = None
        """What ended the last fill in the background, for whoever meets trouble with the blob next."""
        self.outcome: Outcome = None
        """How the last fill ended; None while one is under way or none was tried."""
        self.stalled_elsewhere = -1
        self.has_shared = False
        """Whether bytes came out of a part that another process fills."""
        self.doubts_others = False
        self.progress = 0
        self.stalled_at = -1
        self.rest(policy)

    def rest(self, policy: FillPolicy) -> None:
        """Back to counting, as if no fill had been thought of."""
        self.phase = Phase.WATCHED
        self.policy = policy
        self.wants_all = False
        self.is_prefetch = False
        self.claimed: Claim | None = None
        """What keeps others from filling the blob until there is a part."""
        self.is_held = False
        """Whether a part may begin only when the first bytes have come, so that nothing comes before them."""
        self.part: Part | None = None
        self.wished: list[ByteRange] = []
        """What other processes wait for."""
        self.spoken_for = Spans()
        self.pending: list[Piece] = []

    @property
    def blob(self) -> Blob:
        assert self.size_bytes is not None, "the size is learned before a part begins"
        return Blob(self.digest, self.size_bytes)

    @property
    def is_busy(self) -> bool:
        """Whether all of it is being fetched, so that it counts against what may be fetched at once."""
        return self.wants_all and self.phase in (Phase.BEGINNING, Phase.FILLING, Phase.FINISHING)

    @property
    def is_ours(self) -> bool:
        """Whether it is this process that fills the blob, or is about to."""
        return self.part is not None or self.claimed is not None or self.is_busy

    @property
    def is_complete(self) -> bool:
        """Whether all bytes are there."""
        return self.part is not None and self.part.is_complete

    @property
    def tee_bytes(self) -> int:
        """How large a piece must be to be worth a place in the part; less for a small blob."""
        if self.size_bytes is None:
            return CACHE_TEE_BYTES
        return min(CACHE_TEE_BYTES, max(4 * KIB, self.size_bytes // 64))

    @property
    def is_due(self) -> bool:
        return self.policy.is_due(self.read_count, self.asked_bytes, self.size_bytes)

    def may_fetch(self, spans: Sequence[ByteRange]) -> bool:
        """Whether a consumer may ask the store for these bytes beside a fill, or must wait for it.

        It may if nothing is fetched twice by that, if it is very little, or if the fill does not get on.
        """
        if self.stalled_at == self.progress:
            return True
        is_open = self.phase in (Phase.COLLECTING, Phase.FILLING)
        if is_open and len(self.claimable(spans)) == len(spans):
            return True
        return self.can_afford(spans, self.size_bytes)

    def can_afford(self, spans: Sequence[ByteRange], size_bytes: int | None) -> bool:
        """Whether this process, with all that it fetched and did not keep, stays within a small part of the blob."""
        if size_bytes is None:
            return False
        return self.spent_bytes + total_bytes(spans) <= CACHE_BUDGET_FRACTION * size_bytes

    def claimable(self, spans: Sequence[ByteRange]) -> list[ByteRange]:
        """Those of the spans that are worth a place in the part, and that nobody has or fetches."""
        return [span for span in spans if span.size_bytes >= self.tee_bytes and not self.spoken_for.touches(span)]

    def claim(self, spans: Sequence[ByteRange]) -> list[ByteRange]:
        """Say that these are being fetched. Which of them are claimed: no fill fetches those until they come.

        What is not worth a claim will be fetched again by a fill, so it counts as spent.
        """
        claimed = self.claimable(spans)
        for span in claimed:
            self.spoken_for.add(span)
        self.spent_bytes += total_bytes(spans) - total_bytes(claimed)
        return claimed

    def disclaim(self, spans: Sequence[ByteRange]) -> None:
        """What was claimed does not come, or there is no part to take it."""
        for span in spans:
            self.spoken_for.discard(span)
        self.spent_bytes += total_bytes(spans)

    def next_gap(self) -> ByteRange | None:
        """The first that nobody has or fetches."""
        gaps = self.spoken_for.missing(ByteRange(0, self.blob.byte_size))
        return self._piece_at(gaps[0].start) if gaps else None

    def awaited_gap(self) -> ByteRange | None:
        """The first that somebody waits for, and nobody has or fetches."""
        size = self.blob.byte_size
        for span in self.wanted:
            gaps = self.spoken_for.missing(ByteRange(min(span.start, size), min(span.end, size)))
            if gaps:
                return self._piece_at(gaps[0].start)
        for span in self.wished:
            gaps = self.spoken_for.missing(span)
            if gaps:  # no more than is wished: others wait for other parts of other blobs
                return ByteRange(gaps[0].start, min(gaps[0].end, gaps[0].start + CACHE_PIECE_BYTES))
        return None

    def _piece_at(self, position: int) -> ByteRange:
        """The gap around the position, within one piece of the grid."""
        start = position // CACHE_PIECE_BYTES * CACHE_PIECE_BYTES
        piece = ByteRange(start, min(start + CACHE_PIECE_BYTES, self.blob.byte_size))
        return next(gap for gap in self.spoken_for.missing(piece) if gap.start <= position < gap.end)
