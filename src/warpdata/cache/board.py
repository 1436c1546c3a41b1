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

from warpdata.cache.modes import FillPolicy
from warpdata.cache.parts import Part
from warpdata.cache.watch import Outcome, Phase, Piece, Watched
from warpdata.digest import Blob
from warpdata.limits import (
    CACHE_COLLECTING_IDLE_S,
    CACHE_COLLECTING_PARTS,
    CACHE_FILLING_BLOBS,
    CACHE_FILLING_BYTES,
    CACHE_PENDING_BYTES,
    CACHE_PREFETCH_BLOBS,
    CACHE_WATCHED_BLOBS,
)
from warpdata.store import ByteRange

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


class Board:
    """The records of one reader."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.is_closed = False
        self._watched: OrderedDict[str, Watched] = OrderedDict()
        self._active: dict[str, Watched] = {}
        self._pending_bytes = 0

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
        awaited = [record for record in self._active.values() if record.waiters]
        for record in chain(awaited, self._active.values()):
            if self.is_closed and not record.is_complete:
                continue
            step = _step_of(record, has_slot=has_slot)
            if step is not None:
                return step
        return None

    def is_under_way(self, record: Watched) -> bool:
        """Whether all of the blob is being fetched, or will be as soon as a thread comes to it."""
        return record.is_busy or (record.phase is Phase.QUEUED and record.wants_all and self._has_slot())

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
        record.phase = Phase.FILLING if record.wants_all else Phase.COLLECTING
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
        return sum(not record.is_busy for record in self._active.values() if not record.is_prefetch)

    def _idle_collector(self, now: float) -> Watched | None:
        collecting = [r for r in self._active.values() if r.phase is Phase.COLLECTING and not r.wants_all]
        oldest = min(collecting, key=lambda record: record.active_at, default=None)
        return oldest if oldest is not None and now - oldest.active_at > CACHE_COLLECTING_IDLE_S else None

    def rest(self, record: Watched) -> Part | None:
        """Give up on a fill, for now; the part that is to be thrown away, if there is one."""
        part = record.part
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

    def close(self) -> list[Part]:
        """Begin and fetch nothing more; the parts that are to be thrown away. What is complete may still be kept."""
        self.is_closed = True
        return self.give_up(record for record in [*self._active.values()] if not record.is_complete)

    def give_up(self, records: Iterable[Watched]) -> list[Part]:
        """The parts of these fills, none of which goes on."""
        parts = [self.rest(record) for record in records]
        return [part for part in parts if part is not None]

    def __iter__(self) -> Iterator[Watched]:
        return iter([*self._active.values()])

    def _release_pending(self, record: Watched) -> list[Piece]:
        held, record.pending = record.pending, []
        self._pending_bytes -= sum(len(data) for _, data in held)
        return held


def _step_of(record: Watched, *, has_slot: bool) -> Step | None:
    if record.phase is Phase.QUEUED and (has_slot or not record.wants_all):
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
    gap = record.next_gap() if record.phase is Phase.FILLING else None
    if gap is None:
        return None
    record.spoken_for.add(gap)
    return Step(StepKind.FETCH, record, part, gap)
