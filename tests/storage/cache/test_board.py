"""If these fail, the wrong blob is fetched next, the same one twice, or more at once than was allowed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.storage.cache.scenes import Clock
from warpdata.limits import (
    CACHE_COLLECTING_IDLE_S,
    CACHE_COLLECTING_PARTS,
    CACHE_FILLING_BLOBS,
    CACHE_FILLING_BYTES,
    CACHE_PENDING_BYTES,
    CACHE_PIECE_BYTES,
    CACHE_PREFETCH_BLOBS,
    CACHE_TEE_BYTES,
    CACHE_WATCHED_BLOBS,
    KIB,
    MIB,
)
from warpdata.primitives.hashing import Blob, sha256_hex
from warpdata.storage import ByteRange
from warpdata.storage.cache import FILL_EAGERLY, FILL_FOR_MEDIA, FILL_FOR_TABLES, BlobCache, Filled, FillPolicy
from warpdata.storage.cache.blob_state import Phase, Watched
from warpdata.storage.cache.partial import Part
from warpdata.storage.cache.scheduler import Board, StepKind


def blob(number: int, size_bytes: int = MIB) -> Blob:
    return Blob(sha256_hex(str(number).encode()), size_bytes)


@pytest.fixture
def board() -> Iterator[Board]:
    """Everything is done with its lock held, as it must be."""
    made = Board()
    with made.lock:
        yield made


def part_of(folder: Path, wanted: Blob) -> Part:
    made = BlobCache(folder, 2**50, Clock()).begin(wanted, eager=True)
    assert isinstance(made, Part)
    return made


def asked(board: Board, number: int, *, wants_all: bool = True, policy: FillPolicy = FILL_FOR_MEDIA) -> Watched:
    record = board.watch(blob(number).hash, policy)
    record.size_bytes = MIB
    board.enqueue(record, policy, wants_all=wants_all)
    return record


# Policies


@pytest.mark.parametrize(
    ("policy", "reads", "asked_bytes", "size", "due"),
    [
        (FILL_FOR_MEDIA, 7, 10**9, 10**9, False),
        (FILL_FOR_MEDIA, 8, 1, None, True),
        (FILL_FOR_TABLES, 10**6, 499, 1000, False),
        (FILL_FOR_TABLES, 1, 500, 1000, True),
        (FILL_FOR_TABLES, 10**6, 10**9, None, False),
        (FILL_EAGERLY, 1, 0, None, True),
        (FillPolicy(3, 0.1, eager=False), 1, 100, 1000, True),
        (FillPolicy(None, None, eager=True), 10**6, 10**9, 1, False),
    ],
)
def test_when_a_blob_is_due(policy: FillPolicy, reads: int, asked_bytes: int, size: int | None, due: bool) -> None:
    assert policy.is_due(reads, asked_bytes, size) is due


# Order


def test_first_asked_is_first_begun_unless_somebody_waits(board: Board) -> None:
    records = [asked(board, number) for number in range(4)]
    records[2].waiters = 1
    order = [step.record for step in (board.next_step() for _ in range(4)) if step is not None]
    assert order == [records[2], records[0], records[1], records[3]]
    assert board.next_step() is None


def test_a_blob_is_asked_for_once(board: Board) -> None:
    assert asked(board, 1) is asked(board, 1)
    assert board.next_step() is not None
    asked(board, 1)
    assert board.next_step() is None


def test_few_are_filled_at_once(board: Board) -> None:
    for number in range(CACHE_FILLING_BLOBS + 3):
        asked(board, number)
    assert sum(board.next_step() is not None for _ in range(100)) == CACHE_FILLING_BLOBS


def test_few_bytes_are_filled_at_once(board: Board) -> None:
    for number in range(5):
        asked(board, number).size_bytes = CACHE_FILLING_BYTES // 2
    assert sum(board.next_step() is not None for _ in range(100)) == 2


def test_a_blob_of_any_size_is_filled_alone(board: Board) -> None:
    asked(board, 1).size_bytes = 100 * CACHE_FILLING_BYTES
    assert board.next_step() is not None


def test_what_only_collects_needs_no_slot(board: Board) -> None:
    for number in range(CACHE_FILLING_BLOBS):
        asked(board, number)
    while board.next_step() is not None:
        pass
    assert not board.is_under_way(asked(board, 98)), "it waits for a slot, so nobody waits for it"
    only = asked(board, 99, wants_all=False)
    step = board.next_step()
    assert step is not None
    assert step.record is only


def test_the_steps_of_a_fill(tmp_path: Path, board: Board) -> None:
    size = 3 * CACHE_PIECE_BYTES + 5
    record = asked(board, 1)
    record.size_bytes = size
    record.pending = []
    step = board.next_step()
    assert step is not None
    assert step.kind is StepKind.BEGIN
    assert board.is_under_way(record)
    part = part_of(tmp_path, Blob(record.digest, size))
    assert board.begin(record, part) == []
    record.wanted = [ByteRange(2 * CACHE_PIECE_BYTES + 9, 2 * CACHE_PIECE_BYTES + 10)]
    gaps = []
    while (step := board.next_step()) is not None:
        assert step.kind is StepKind.FETCH
        assert step.gap is not None
        gaps.append(step.gap)
    grid = [ByteRange(n * CACHE_PIECE_BYTES, min((n + 1) * CACHE_PIECE_BYTES, size)) for n in range(4)]
    assert gaps == [grid[2], grid[0], grid[1], grid[3]]
    part.write(0, memoryview(bytes(size)))
    step = board.next_step()
    assert step is not None
    assert step.kind is StepKind.FINISH
    assert board.next_step() is None
    board.end(record, Filled.FETCHED)
    assert record.phase is Phase.OVER
    assert board.find(record.digest) is None
    assert list(board) == []


def test_only_gaps_are_fetched(tmp_path: Path, board: Board) -> None:
    size = 2 * CACHE_PIECE_BYTES
    record = asked(board, 1)
    record.size_bytes = size
    board.next_step()
    board.begin(record, part_of(tmp_path, Blob(record.digest, size)))
    assert record.claim([ByteRange(MIB, 2 * MIB), ByteRange(CACHE_PIECE_BYTES - MIB, CACHE_PIECE_BYTES + MIB)])
    gaps = []
    while (step := board.next_step()) is not None:
        gaps.append(step.gap)
    edges = [(0, 1), (2, 7), (9, 16)]
    assert gaps == [ByteRange(start * MIB, end * MIB) for start, end in edges]


def test_what_came_before_the_part_is_not_fetched_again(tmp_path: Path, board: Board) -> None:
    record = board.watch(blob(1).hash, FILL_EAGERLY)
    board.enqueue(record, FILL_EAGERLY, wants_all=True)
    board.next_step()
    pieces = [(0, memoryview(bytes(100 * KIB))), (200 * KIB, memoryview(bytes(KIB)))]
    board.hold(record, pieces)
    record.size_bytes = MIB
    held = board.begin(record, part_of(tmp_path, blob(1)))
    assert held == pieces[:1], "the other is not worth it"
    step = board.next_step()
    assert step is not None
    assert step.gap == ByteRange(100 * KIB, MIB)


# What may be read beside a fill


def busy(size_bytes: int) -> Watched:
    record = Watched(blob(1).hash, Board().lock, FILL_FOR_MEDIA)
    record.phase, record.wants_all, record.size_bytes = Phase.FILLING, True, size_bytes
    return record


def test_a_little_may_be_read_beside_a_fill() -> None:
    record = busy(100 * MIB)
    small = [ByteRange(0, 100 * KIB)]
    for _ in range(10):
        assert record.may_fetch(small)
        assert record.claim(small) == []
    assert not record.may_fetch(small)
    assert record.may_fetch([ByteRange(0, 24 * KIB)])


def test_what_nobody_has_may_be_read_and_is_then_spoken_for() -> None:
    record = busy(100 * MIB)
    large = [ByteRange(0, 5 * MIB), ByteRange(9 * MIB, 12 * MIB)]
    assert record.may_fetch(large)
    assert record.claim(large) == large
    assert record.spent_bytes == 0
    assert not record.may_fetch(large)
    assert not record.may_fetch([ByteRange(4 * MIB, 9 * MIB)])
    record.disclaim(large)
    assert record.may_fetch(large)
    assert record.spent_bytes == 8 * MIB, "it was fetched, and will be again"


def test_who_waited_in_vain_does_not_wait_again_until_something_comes() -> None:
    record = busy(MIB)
    small = [ByteRange(0, 12 * KIB)]
    assert not record.may_fetch(small)
    record.stalled_at = record.progress
    assert record.may_fetch(small)
    record.progress += 1
    assert not record.may_fetch(small)


def test_what_was_read_before_counts_against_the_budget() -> None:
    record = Watched(blob(1).hash, Board().lock, FILL_FOR_MEDIA)
    for start in range(0, 8 * 10_000, 10_000):
        record.claim([ByteRange(start, start + 10_000)])
    record.phase, record.wants_all, record.size_bytes = Phase.FILLING, True, 8_500_000
    assert record.may_fetch([ByteRange(0, 5000)])
    assert not record.may_fetch([ByteRange(0, 5001)])


@pytest.mark.parametrize(
    ("size", "least"), [(None, CACHE_TEE_BYTES), (10**9, CACHE_TEE_BYTES), (MIB, 16 * KIB), (9, 4096)]
)
def test_how_large_a_piece_must_be(size: int | None, least: int) -> None:
    record = Watched(blob(1).hash, Board().lock, FILL_FOR_MEDIA)
    record.size_bytes = size
    assert record.tee_bytes == least


# Bounds


def test_pieces_that_wait_for_a_part_are_bounded(board: Board) -> None:
    record = asked(board, 1)
    record.size_bytes = 2 * CACHE_PENDING_BYTES
    piece = memoryview(bytes(CACHE_PENDING_BYTES // 2))
    starts = [n * len(piece) for n in range(3)]
    claims = record.claim([ByteRange(start, start + len(piece)) for start in starts])
    assert len(claims) == 3
    board.hold(record, [(start, piece) for start in starts])
    assert [start for start, _ in record.pending] == starts[:2]
    assert record.spoken_for.missing(claims[2]) == [claims[2]], "the one that was let go can be fetched again"
    board.rest(record)
    other = asked(board, 2)
    board.hold(other, [(0, piece), (1, piece)])
    assert len(other.pending) == 2, "and room was given back"


def test_records_are_few(board: Board) -> None:
    active = asked(board, -1)
    for number in range(CACHE_WATCHED_BLOBS + 100):
        board.watch(blob(number).hash, FILL_FOR_MEDIA)
    assert board.find(blob(0).hash) is None
    assert board.find(blob(CACHE_WATCHED_BLOBS + 99).hash) is not None
    assert board.find(active.digest) is active
    assert len(board._watched) <= CACHE_WATCHED_BLOBS + 1


def test_what_is_asked_for_ahead_is_bounded_and_replaced(board: Board) -> None:
    board.line_up([blob(number) for number in range(2 * CACHE_PREFETCH_BLOBS)], FILL_FOR_MEDIA)
    assert len(list(board)) == CACHE_PREFETCH_BLOBS
    begun = board.next_step()
    assert begun is not None
    board.line_up([blob(7), blob(3), blob(0)], FILL_FOR_MEDIA)
    assert [record.digest for record in board] == [blob(0).hash, blob(7).hash, blob(3).hash]


def test_what_a_reader_is_due_is_not_replaced(board: Board) -> None:
    due = asked(board, 5)
    board.line_up([blob(1)], FILL_FOR_MEDIA)
    board.line_up([], FILL_FOR_MEDIA)
    assert list(board) == [due]


def test_few_collect_and_the_idle_give_way(tmp_path: Path, board: Board) -> None:
    for number in range(CACHE_COLLECTING_PARTS):
        assert board.may_collect(now=0)
        record = asked(board, number, wants_all=False)
        record.active_at = number
        assert board.next_step() is not None
        board.begin(record, part_of(tmp_path, Blob(record.digest, MIB)))
        assert record.phase is Phase.COLLECTING
    assert not board.may_collect(now=CACHE_COLLECTING_IDLE_S)
    assert board.surplus(now=10**6) is None
    assert board.may_collect(now=CACHE_COLLECTING_IDLE_S + 1)
    asked(board, 99, wants_all=False)
    idle = board.surplus(now=CACHE_COLLECTING_IDLE_S + 1)
    assert idle is not None
    assert idle.digest == blob(0).hash


def test_a_closed_board_has_nothing_to_do(tmp_path: Path, board: Board) -> None:
    record = asked(board, 1)
    board.next_step()
    part = part_of(tmp_path, Blob(record.digest, MIB))
    board.begin(record, part)
    asked(board, 2)
    complete = asked(board, 4)
    board.next_step()
    board.begin(complete, part_of(tmp_path, Blob(complete.digest, MIB)))
    assert complete.part is not None
    complete.part.write(0, memoryview(bytes(MIB)))
    assert board.close() == [part]
    step = board.next_step()
    assert step is not None
    assert (step.kind, step.record) == (StepKind.FINISH, complete), "but for what only has to be kept"
    assert board.next_step() is None
    assert board.give_up(list(board)) == [complete.part or step.part]
    asked(board, 3)
    assert list(board) == []
