"""Which blobs are being watched and filled, and what is to be done next. No disk, no store, no thread.

What a consumer waits for comes first, then what was asked for first. Everything here is read and
changed with `lock` held. Implements "Order" of docs/specs/cache.md.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import chain, islice

from warpdata.limits import (
    CACHE_CLAIMED_BLOBS,
    CACHE_COLLECTING_IDLE_S,
    CACHE_COLLECTING_PARTS,
    CACHE_FILL_THREADS,
    CACHE_FILLING_BLOBS,
    CACHE_FILLING_BYTES,
    CACHE_PENDING_BYTES,
    CACHE_PREFETCH_BLOBS,
    CACHE_WATCHED_BLOBS,
)
from warpdata.primitives.hashing import Blob
from warpdata.storage import ByteRange
from warpdata.storage.cache.blob_state import Outcome, Phase, Piece, Watched
from warpdata.storage.cache.partial import Claim, Part
from warpdata.storage.cache.policy import FillPolicy

__all__ = ["Board", "Step", "StepKind"]


class StepKind(Enum):
    BEGIN = "begin"
    FETCH = "fetch"
    FINISH = "finish"


@dataclass(frozen=True, slots=True)
class Step:
    """Something to do for a blob, already noted as being done."""

    kind: StepKind
    record: Watched
    part: Part | None = None
    gap: ByteRange | None = None
    is_ahead: bool = False
    """Whether nobody waits for it."""


class Board:
    """The records of one reader."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.is_closed = False
        self._watched: OrderedDict[str, Watched] = OrderedDict()
        self._active: dict[str, Watched] = {}
        self._pending_bytes = 0
        self.steps_ahead = 0
        """How many steps are under way that nobody waits for."""

    def watch(self, digest: str, policy: FillPolicy) -> Watched:
        """The record of a blob, made if need be; the one that nobody asked about for longest makes way."""
        record = self._watched.get(digest)
        if record is None:
            record = self._watched[digest] = Watched(digest, self.lock, policy)
            if len(self._watched) > CACHE_WATCHED_BLOBS + len(self._active):
                stale = next(name for name, other in self._watched.items() if other.phase is Phase.WATCHED)
                del self._watched[stale]
        else:
            self._watched.move_to_end(digest)
        return record

    def find(self, digest: str) -> Watched | None:
        return self._watched.get(digest)

    def enqueue(self, record: Watched, policy: FillPolicy, *, wants_all: bool) -> None:
        """Ask for a part, or for more of one that was asked for already. Never twice for one blob."""
        record.wants_all = record.wants_all or wants_all
        if record.phase is Phase.WATCHED:
            record.outcome = None
            record.policy = policy
            if not self.is_closed:
                record.phase = Phase.QUEUED
                self._active[record.digest] = record
        elif policy.eager:
            record.policy = policy

    def line_up(self, blobs: Iterable[Blob], policy: FillPolicy) -> None:
        """Enqueue whole blobs in this order, instead of those of an earlier call that have not begun."""
        for record in [record for record in self._active.values() if record.is_prefetch]:
            if record.phase is Phase.QUEUED and not record.waiters:
                self.rest(record)
        room = CACHE_PREFETCH_BLOBS - sum(record.is_prefetch for record in self._active.values())
        for blob in islice(blobs, max(0, room)):
            record = self.watch(blob.hash, policy)
            record.size_bytes = record.size_bytes or blob.byte_size
            if record.phase is Phase.WATCHED:
                self.enqueue(record, policy, wants_all=True)
                record.is_prefetch = True
            else:
                record.wants_all = True

    def next_step(self) -> Step | None:
        """What to do now, as far as the bounds allow. After the end, only to keep what is complete."""
        has_slot = not self.is_closed and self._has_slot()
        active = [record for record in self._active.values() if record.is_complete or not self.is_closed]
        claimed = [record for record in active if record.claimed is not None]  # others can not wish before they begin
        awaited = [record for record in active if record.waiters or record.wished]
        is_busy = self.steps_ahead >= CACHE_FILL_THREADS
        is_full = sum(record.phase is Phase.BEGINNING for record in active) >= CACHE_FILL_THREADS
        for record, only_awaited in chain(((r, True) for r in chain(claimed, awaited)), ((r, is_busy) for r in active)):
            step = None if is_full and record.claimed else _step_of(record, has_slot, only_awaited=only_awaited)
            if step is not None:
                self.steps_ahead += step.is_ahead
                return step
        return None

    def is_under_way(self, record: Watched) -> bool:
        """Whether what is waited for comes: now, or as soon as a thread comes to it."""
        if not record.wants_all or record.is_held:
            return False
        return record.is_ours or (record.phase is Phase.QUEUED and self._has_slot())

    def may_claim(self, record: Watched) -> bool:
        """Whether the blob may be kept from others before there is a part. Then it begins without a slot."""
        is_new = record.phase in (Phase.WATCHED, Phase.QUEUED) and not record.is_ours
        return is_new and not self.is_closed and sum(other.is_ours for other in self) < CACHE_CLAIMED_BLOBS

    def _has_slot(self) -> bool:
        busy = [record for record in self._active.values() if record.is_busy]
        return len(busy) < CACHE_FILLING_BLOBS and sum(r.size_bytes or 0 for r in busy) < CACHE_FILLING_BYTES

    def hold(self, record: Watched, pieces: Sequence[Piece]) -> None:
        """Keep pieces in memory until the part has begun, as far as the bound allows; disclaim the others."""
        for start, data in pieces:
            if self._pending_bytes + len(data) <= CACHE_PENDING_BYTES:
                self._pending_bytes += len(data)
                record.pending.append((start, data))
            else:
                record.spoken_for.discard(ByteRange(start, start + len(data)))

    def begin(self, record: Watched, part: Part) -> list[Piece]:
        """The part is there; what was held for it and is to be put in. Nobody else fetches that any more."""
        record.part = part
        record.wants_all = record.wants_all or record.is_due
        record.phase = Phase.COLLECTING
        if record.wants_all and self._has_slot():
            record.phase = Phase.FILLING
        held = [piece for piece in self._release_pending(record) if len(piece[1]) >= record.tee_bytes]
        for start, data in held:
            record.spoken_for.add(ByteRange(start, start + len(data)))
        record.changed.notify_all()
        return held

    def may_collect(self, now: float) -> bool:
        """Whether one more part may begin that only takes what consumers read.

        There are few, and one gives way only when nothing has come for it in a while. Else reads that
        wander over many blobs would begin one part after the other, and complete none.
        """
        return self._collecting_count() < CACHE_COLLECTING_PARTS or self._idle_collector(now) is not None

    def surplus(self, now: float) -> Watched | None:
        """A part that is to give way, if there are too many."""
        return self._idle_collector(now) if self._collecting_count() > CACHE_COLLECTING_PARTS else None

    def _collecting_count(self) -> int:
        return sum(not record.wants_all for record in self._active.values())

    def _idle_collector(self, now: float) -> Watched | None:
        collecting = [r for r in self._active.values() if r.phase is Phase.COLLECTING and not r.wants_all]
        oldest = min(collecting, key=lambda record: record.active_at, default=None)
        return oldest if oldest is not None and now - oldest.active_at > CACHE_COLLECTING_IDLE_S else None

    def rest(self, record: Watched) -> Part | Claim | None:
        """Give up on a fill, for now; the part or claim that is to be thrown away, if there is one."""
        part = record.part or record.claimed
        self._active.pop(record.digest, None)
        self._release_pending(record)
        record.rest(record.policy)
        record.progress += 1
        record.changed.notify_all()
        return part

    def end(self, record: Watched, outcome: Outcome) -> None:
        """The blob is in the cache. A new record begins if it is asked for again after it was evicted."""
        self.rest(record)
        record.phase = Phase.OVER
        record.outcome = outcome
        if self._watched.get(record.digest) is record:
            del self._watched[record.digest]

    def close(self) -> list[Part | Claim]:
        """Begin and fetch nothing more; the parts that are to be thrown away. What is complete may still be kept."""
        self.is_closed = True
        return self.give_up(record for record in [*self._active.values()] if not record.is_complete)

    def give_up(self, records: Iterable[Watched]) -> list[Part | Claim]:
        """The parts of these fills, none of which goes on."""
        parts = [self.rest(record) for record in records]
        return [part for part in parts if part is not None]

    def __iter__(self) -> Iterator[Watched]:
        return iter([*self._active.values()])

    def _release_pending(self, record: Watched) -> list[Piece]:
        held, record.pending = record.pending, []
        self._pending_bytes -= sum(len(data) for _, data in held)
        return held


def _step_of(record: Watched, has_slot: bool, *, only_awaited: bool) -> Step | None:
    if record.is_held:
        return None
    if record.phase is Phase.QUEUED and (has_slot or not record.wants_all or record.claimed is not None):
        record.phase = Phase.BEGINNING
        return Step(StepKind.BEGIN, record)
    part = record.part
    if part is None or record.phase not in (Phase.COLLECTING, Phase.FILLING):
        return None
    if part.is_complete:
        record.phase = Phase.FINISHING
        return Step(StepKind.FINISH, record, part)
    if record.phase is Phase.COLLECTING and record.wants_all and has_slot:
        record.phase = Phase.FILLING
    awaited = record.awaited_gap() if record.wants_all else None
    gap = record.next_gap() if awaited is None and record.phase is Phase.FILLING and not only_awaited else awaited
    if gap is None:
        return None
    record.spoken_for.add(gap)
    return Step(StepKind.FETCH, record, part, gap, is_ahead=awaited is None)
