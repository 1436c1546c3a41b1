"""Whether a consumer asks the store, takes bytes from a part, or waits for a fill.

Implements "While a fill runs" of docs/specs/cache.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from warpdata.limits import CACHE_LOOK_BYTES, CACHE_STALL_S
from warpdata.storage import ByteRange
from warpdata.storage.cache.blob_cache import BlobCache
from warpdata.storage.cache.blob_state import Phase, Piece, Watched, total_bytes
from warpdata.storage.cache.fetcher import Filler
from warpdata.storage.cache.partial import Part
from warpdata.storage.cache.policy import FillPolicy
from warpdata.storage.cache.single_flight import Ours, Sharing, Verdict

__all__ = ["Plan", "Reads"]


@dataclass(frozen=True, slots=True)
class Plan:
    """For each wanted range: its bytes, where they were at hand, or None where the store is to be asked.

    `claims` are ranges that nobody else fetches until they are brought by `Reads.arrived` or given up.
    """

    record: Watched
    at_hand: list[memoryview | None]
    claims: list[ByteRange]


class Reads:
    """The consumers' side of a `Filler`."""

    def __init__(self, filler: Filler, cache: BlobCache) -> None:
        self._filler = filler
        self._cache = cache
        self.sharing = Sharing(filler, cache)

    def note(self, digest: str, spans: Sequence[ByteRange], policy: FillPolicy) -> bool:
        """Count a read; whether it is the first of its blob, which waits for no fill of this process."""
        with self._filler.board.lock:
            record = self._filler.board.watch(digest, policy)
            is_first = record.read_count == 0
            record.read_count += len(spans)
            record.asked_bytes += total_bytes(spans)
            return is_first

    def plan(
        self, digest: str, spans: Sequence[ByteRange], policy: FillPolicy, *, may_wait: bool, may_share: bool
    ) -> Plan | None:
        """What to do about a read. None: a fill has ended, so look for the entry again.

        With `may_share`, what another process fills is taken from there. One that may not wait does so only for
        that, and only if the blob is due.
        """
        board = self._filler.board
        with board.lock:
            record = board.watch(digest, policy)
            if may_wait and record.read_count == 0:
                record.read_count = len(spans)  # the record that knew of this read is over
                return None
            may_share = may_share and not record.is_ours
        found = self.sharing.read(record, spans, policy, may_wait=may_wait) if may_share else Verdict.ASK
        if found is Verdict.LOOK_AGAIN:
            return None
        if isinstance(found, Ours):
            return Plan(record, [None] * len(spans), found.claims)
        if not isinstance(found, Verdict):
            return Plan(record, [*found], [])
        with board.lock:
            if may_wait and not self._let_pass(record, spans):
                return None
            part = record.part
            covered = [part is not None and part.covers(span) for span in spans]
            claims = record.claim([span for span, is_there in zip(spans, covered, strict=True) if not is_there])
        at_hand = [_take(part, span) if is_there else None for span, is_there in zip(spans, covered, strict=True)]
        return Plan(record, at_hand, claims)

    def arrived(self, plan: Plan, pieces: Sequence[Piece], policy: FillPolicy) -> None:
        """Bytes have come from the store. They go into the part, and may be reason to begin one."""
        record, board = plan.record, self._filler.board
        with board.lock:
            record.is_held = False
            worth = [piece for piece in pieces if len(piece[1]) >= record.tee_bytes]
            self._consider(record, policy, has_bulk=bool(worth))
            part = record.part
            if record.phase in (Phase.QUEUED, Phase.BEGINNING):
                board.hold(record, pieces)
            elif part is None:
                record.disclaim(plan.claims)
        if part is not None and worth:
            self._filler.put(record, part, worth)

    def brought(self, digest: str, piece: Piece, policy: FillPolicy, *, size_bytes: int | None = None) -> None:
        """Bytes have come from the store by another way than a plan."""
        start, data = piece
        span = ByteRange(start, start + len(data))
        self.note(digest, [span], policy)
        plan = self.plan(digest, [span], policy, may_wait=False, may_share=False)
        assert plan is not None, "a read that waits for nobody has a plan"
        plan.record.size_bytes = plan.record.size_bytes or size_bytes
        self.arrived(plan, [piece], policy)

    def missed(self, plan: Plan) -> None:
        """The store failed: what was claimed does not come."""
        with self._filler.board.lock:
            plan.record.is_held = False
            plan.record.disclaim(plan.claims)
            self._filler.crew.wake()

    def _consider(self, record: Watched, policy: FillPolicy, *, has_bulk: bool) -> None:
        is_due = policy.is_due(record.read_count, record.asked_bytes, record.size_bytes)
        record.active_at = now = self._cache.clock()
        is_curious = policy.after_fraction is not None and record.asked_bytes >= CACHE_LOOK_BYTES
        if record.phase is Phase.WATCHED:
            is_time = now >= record.not_before and self._cache.has_hope(eager=policy.eager)
            is_worth = (has_bulk or is_curious) and self._filler.board.may_collect(now)
            if not (is_time and (is_due or is_worth)):
                return
        if record.phase is not Phase.OVER:
            self._filler.board.enqueue(record, policy, wants_all=is_due)
            self._filler.crew.wake()

    def _let_pass(self, record: Watched, spans: Sequence[ByteRange]) -> bool:
        """Wait until the read may go on; False when the record is over. Called with the lock held."""
        has_waited = False
        while record.phase is not Phase.OVER and not self._filler.board.is_closed:
            part = record.part
            missing = [span for span in spans if part is None or not part.covers(span)]
            if not missing or not self._filler.board.is_under_way(record) or record.may_fetch(missing):
                return True
            if not has_waited:
                self._cache.counters.add("waits")
                has_waited = True
            if not self._wait(record, missing):
                record.stalled_at = record.progress
        return record.phase is not Phase.OVER

    def _wait(self, record: Watched, missing: Sequence[ByteRange]) -> bool:
        """Stand still until something has changed; False after too long without."""
        record.waiters += 1
        record.wanted.extend(missing)
        self._filler.crew.wake()
        try:
            return record.changed.wait(CACHE_STALL_S)
        finally:
            record.waiters -= 1
            for span in missing:
                record.wanted.remove(span)


def _take(part: Part | None, span: ByteRange) -> memoryview | None:
    """Bytes from a part, or None if the disk fails: the store has them, too."""
    assert part is not None, "only what is covered is taken"
    try:
        return part.read(span)
    except OSError:
        return None
