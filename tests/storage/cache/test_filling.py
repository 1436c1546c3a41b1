"""If these fail, the store is asked for the same bytes again and again, or consumers stand still for nothing."""

from __future__ import annotations

import logging
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.storage.cache.scenes import Clock, GatedStore, Scene, eventually, members, read_members
from warpdata.errors import (
    BlobCorruptedError,
    CorruptError,
    ObjectNotFoundError,
    StorageError,
    StoreFullError,
    StoreTimeoutError,
    StoreUnavailableError,
)
from warpdata.limits import CACHE_FILLING_BLOBS, CACHE_REST_S, KIB, MAX_PAGE_BYTES, MIB
from warpdata.primitives.hashing import Blob, blob_key, sha256_hex
from warpdata.storage import ByteRange
from warpdata.storage.cache import (
    FILL_EAGERLY,
    FILL_FOR_MEDIA,
    FILL_FOR_TABLES,
    BlobCache,
    CachedReader,
    Filled,
    FillPolicy,
)
from warpdata.storage.cache.blob_state import Phase
from warpdata.storage.cache.partial import Part
from warpdata.storage.cache.scheduler import Step
from warpdata.testing import FailReads, FaultyStore

PIECE = 512 * KIB
NEVER = FillPolicy(after_reads=None, after_fraction=None, eager=False)


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fetch less at once, so that small blobs show what large ones do."""
    monkeypatch.setattr("warpdata.storage.cache.blob_state.CACHE_PIECE_BYTES", PIECE)


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that is busy with other things is not a fill that does not get on."""
    monkeypatch.setattr("warpdata.storage.cache.miss.CACHE_STALL_S", 30.0)


def quiet(scene: Scene) -> None:
    """Wait until nothing is done in the background."""
    eventually(lambda: not any(list(reader._filler.board) for reader in scene.readers))


def reached(reader: CachedReader, blob: Blob, phase: Phase = Phase.FILLING) -> None:
    """Wait until the fill of the blob is so far."""

    def is_there() -> bool:
        record = reader._filler.board.find(blob.hash)
        return record is not None and record.phase is phase

    eventually(is_there)


# When a blob is worth fetching


@pytest.mark.parametrize("reads", [7, 8])
def test_media_are_filled_after_eight_reads(scene: Scene, reads: int) -> None:
    blob, data = scene.blob(2 * MIB)
    reader = scene.reader(FILL_FOR_MEDIA)
    read_members(reader, blob, data, members(2 * MIB, 1)[:reads])
    quiet(scene)
    assert scene.cache.is_entry(blob.hash) == (reads == 8)
    assert scene.store.counts()["stat"] == (reads == 8)


@pytest.mark.parametrize("fraction", [0.45, 0.55])
def test_tables_are_filled_when_half_of_the_bytes_were_asked_for(scene: Scene, fraction: float) -> None:
    blob, data = scene.blob(4 * MIB)
    reader = scene.reader(FILL_FOR_TABLES)
    read_members(reader, blob, data, [ByteRange(0, int(fraction * 4 * MIB))])
    eventually(lambda: any(name.startswith(blob.hash) for name in scene.files()))
    if fraction > 0.5:
        quiet(scene)
    assert scene.cache.is_entry(blob.hash) == (fraction > 0.5)


def test_an_eager_reader_fills_after_the_first_read(scene: Scene) -> None:
    blob, data = scene.blob(2 * MIB)
    read_members(scene.reader(FILL_EAGERLY), blob, data, members(2 * MIB, 1)[:1])
    quiet(scene)
    assert scene.cache.is_entry(blob.hash)
    counts = scene.counters.snapshot()
    assert (counts.fills, counts.fill_bytes, counts.misses) == (1, 2 * MIB, 1)


def test_who_never_fills_never_does(scene: Scene) -> None:
    blob, data = scene.blob(2 * MIB)
    read_members(scene.reader(NEVER), blob, data, members(2 * MIB, 1))
    quiet(scene)
    assert scene.files() == {}


# No byte twice


@pytest.mark.usefixtures("patient")
def test_reading_all_members_in_random_order_fetches_the_blob_about_once(scene: Scene) -> None:
    blob, data = scene.blob(16 * MIB)
    scene.store.before = lambda span: time.sleep(0.002)
    read_members(scene.reader(FILL_FOR_MEDIA), blob, data, members(16 * MIB, 1))
    assert scene.store.bytes_out <= 1.1 * 16 * MIB
    assert scene.cache.is_entry(blob.hash)
    assert scene.counters.snapshot().bytes_fetched == scene.store.bytes_out


@pytest.mark.parametrize("policy", [FILL_FOR_TABLES, FILL_EAGERLY, FILL_FOR_MEDIA])
@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize("threads", [1, 4])
def test_a_scan_by_large_ranges_fetches_each_byte_once_and_leaves_an_entry(
    scene: Scene, policy: FillPolicy, threads: int
) -> None:
    blob, data = scene.blob(12 * MIB)
    key, reader = blob_key(blob.hash), scene.reader(policy)
    scene.store.before = lambda span: time.sleep(0.005)

    def read(start: int) -> bool:
        end = min(start + 768 * KIB, len(data))
        return reader.read_range(key, ByteRange(start, end)) == data[start:end]

    with ThreadPoolExecutor(threads) as pool:
        assert all(pool.map(read, range(0, len(data), 768 * KIB)))
    quiet(scene)
    assert scene.cache.is_entry(blob.hash)
    assert scene.store.bytes_out == len(data)


def test_bytes_between_neighbours_are_kept_as_well(scene: Scene) -> None:
    """They were fetched with them, so they need not be fetched again."""
    blob, _ = scene.blob(4 * MIB)
    reader = scene.reader(FILL_FOR_TABLES)
    for start in range(0, 4 * MIB, MIB):
        reader.read_ranges(
            blob_key(blob.hash), [ByteRange(start, start + 1000), ByteRange(start + MIB - 9, start + MIB)]
        )
    quiet(scene)
    assert scene.cache.is_entry(blob.hash)
    assert scene.store.bytes_out == 4 * MIB


def test_a_stream_leaves_an_entry(scene: Scene) -> None:
    blob, data = scene.blob(20 * MIB)
    reader = scene.reader(FILL_EAGERLY)
    seen = 0
    for chunk in reader.stream(blob_key(blob.hash)):
        assert chunk == data[seen : seen + len(chunk)]
        seen += len(chunk)
        time.sleep(0.03)
    quiet(scene)
    assert scene.cache.is_entry(blob.hash)
    assert scene.store.bytes_out == 0, "nothing but the stream"


@pytest.mark.parametrize("size", [MAX_PAGE_BYTES, MAX_PAGE_BYTES + 1])
def test_a_blob_read_whole_is_kept_as_it_came_unless_it_is_small(scene: Scene, size: int) -> None:
    blob, _ = scene.blob(size)
    scene.reader(FILL_EAGERLY).read(blob_key(blob.hash))
    quiet(scene)
    assert scene.cache.is_entry(blob.hash) == (size > MAX_PAGE_BYTES)
    assert scene.store.counts() == {"create": 1, "read": 1}


def test_wandering_over_many_blobs_begins_few_parts(scene: Scene) -> None:
    """Else each large read of a new blob would cost a look at its size and a write that comes to nothing."""
    reader = scene.reader(FILL_FOR_MEDIA)
    for seed in range(40):
        blob, data = scene.blob(2 * MIB, seed)
        read_members(reader, blob, data, [ByteRange(0, MIB)])
    eventually(lambda: scene.cache.stats().parts == 8)
    assert scene.store.counts()["stat"] == 8
    assert isinstance(scene.clock, Clock)
    scene.clock.now += 31
    blob, data = scene.blob(2 * MIB, 99)
    read_members(reader, blob, data, [ByteRange(0, MIB)])
    eventually(lambda: f"{blob.hash}.part" in scene.files())
    eventually(lambda: scene.cache.stats().parts == 8)
    blob, data = scene.blob(2 * MIB, 20)
    read_members(reader, blob, data, members(2 * MIB, 1)[:8])
    eventually(lambda: scene.cache.is_entry(blob.hash))


# Waiting


def test_the_first_read_never_waits(scene: Scene) -> None:
    blob, data = scene.blob(8 * MIB)
    reader = scene.reader(FILL_FOR_MEDIA)
    gate = scene.store.hold(lambda span: span.size_bytes > 100 * KIB)
    reader.prefetch([blob])
    eventually(lambda: f"{blob.hash}.part" in scene.files())
    begun = time.perf_counter()
    read_members(reader, blob, data, [ByteRange(7 * MIB, 7 * MIB + 20 * KIB)])
    assert time.perf_counter() - begun < 1
    gate.set()


@pytest.mark.usefixtures("patient")
def test_reads_beside_a_fill_have_a_budget_and_then_wait(scene: Scene) -> None:
    size = 8 * MIB
    blob, data = scene.blob(size)
    reader, key = scene.reader(FILL_EAGERLY), blob_key(blob.hash)
    gate = scene.store.hold(lambda span: span.size_bytes > 100 * KIB)
    wanted = [span for span in members(size, 1) if span.start > 4 * PIECE]
    read_members(reader, blob, data, wanted[:1])
    reached(reader, blob)
    fits = size // 100 // (16 * KIB) - 1
    read_members(reader, blob, data, wanted[1 : 1 + fits])
    assert scene.counters.snapshot().waits == 0
    with ThreadPoolExecutor(1) as pool:
        late = pool.submit(reader.read_range, key, wanted[1 + fits])
        eventually(lambda: scene.counters.snapshot().waits == 1)
        assert not late.done()
        gate.set()
        span = wanted[1 + fits]
        assert late.result(10) == data[span.start : span.end]
    small = [span for span in scene.store.spans if span.size_bytes <= 100 * KIB]
    assert len(small) == 1 + fits, "and it did not ask the store itself"


@pytest.mark.usefixtures("patient")
def test_a_large_read_that_nobody_has_does_not_wait_and_brings_what_it_reads(scene: Scene) -> None:
    blob, data = scene.blob(8 * MIB)
    reader, key = scene.reader(FILL_EAGERLY), blob_key(blob.hash)
    gate = scene.store.hold(lambda span: span.size_bytes == PIECE)
    reader.read_range(key, ByteRange(0, 10))
    reached(reader, blob)
    free = ByteRange(6 * MIB, 6 * MIB + PIECE + 1)
    assert reader.read_range(key, free) == data[free.start : free.end]
    gate.set()
    quiet(scene)
    assert scene.counters.snapshot().waits == 0
    assert scene.store.bytes_out == 8 * MIB + 10


@pytest.mark.usefixtures("patient")
def test_what_a_failed_read_had_claimed_is_fetched_by_the_fill(scene: Scene) -> None:
    blob, _ = scene.blob(8 * MIB)
    reader, key = scene.reader(FILL_EAGERLY), blob_key(blob.hash)
    lost = ByteRange(6 * MIB, 6 * MIB + PIECE + 1)

    def is_held(span: ByteRange) -> bool:
        if span == lost:
            raise StoreUnavailableError("this one got lost")
        return span.size_bytes == PIECE

    gate = scene.store.hold(is_held)
    reader.read_range(key, ByteRange(0, 10))
    reached(reader, blob)
    with pytest.raises(StoreUnavailableError):
        reader.read_range(key, lost)
    gate.set()
    quiet(scene)
    assert scene.cache.is_entry(blob.hash)


@pytest.mark.usefixtures("patient")
def test_a_gap_that_is_waited_for_comes_before_others(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    size = 16 * PIECE
    blob, data = scene.blob(size)
    reader, key = scene.reader(FILL_EAGERLY), blob_key(blob.hash)
    board, order = reader._filler.board, list[int]()
    next_step = board.next_step

    def noted() -> Step | None:
        step = next_step()
        if step is not None and step.gap is not None:
            order.append(step.gap.start // PIECE)
        return step

    monkeypatch.setattr(board, "next_step", noted)
    gate = scene.store.hold(lambda span: span.size_bytes > 100 * KIB)
    read_members(reader, blob, data, members(size, 1)[:1])
    reached(reader, blob)
    board.find(blob.hash).spent_bytes = size  # type: ignore[union-attr]
    with ThreadPoolExecutor(1) as pool:
        late = pool.submit(reader.read_range, key, ByteRange(13 * PIECE + 5, 13 * PIECE + 100))
        eventually(lambda: scene.counters.snapshot().waits == 1)
        gate.set()
        assert late.result(10) == data[13 * PIECE + 5 : 13 * PIECE + 100]
    quiet(scene)
    assert order.index(13) <= 4, "four were under way, then came the one that was waited for"
    assert sorted(order) == list(range(16))


def test_a_fill_that_does_not_get_on_is_not_waited_for(scene: Scene) -> None:
    blob, data = scene.blob(8 * MIB)
    reader = scene.reader(FILL_EAGERLY)
    gate = scene.store.hold(lambda span: span.size_bytes > 100 * KIB)
    wanted = [span for span in members(8 * MIB, 1) if span.start > 4 * PIECE][:40]
    begun = time.perf_counter()
    read_members(reader, blob, data, wanted)
    assert time.perf_counter() - begun < 8, "it waits once, not for each read"
    assert 1 <= scene.counters.snapshot().waits <= 2, "one may be for the look at the size"
    gate.set()
    quiet(scene)
    assert scene.cache.is_entry(blob.hash)


@pytest.mark.usefixtures("patient")
def test_a_fill_by_somebody_else_is_waited_for_until_it_has_what_is_needed(scene: Scene) -> None:
    blob, data = scene.blob(8 * MIB)
    part = scene.cache.begin(blob, eager=True)
    assert isinstance(part, Part)
    reader, key = scene.reader(FILL_FOR_MEDIA), blob_key(blob.hash)
    wanted = members(8 * MIB, 1)
    read_members(reader, blob, data, wanted[:1])
    budget = 8 * MIB // 100 // (16 * KIB) - 1
    read_members(reader, blob, data, wanted[1 : 1 + budget])
    with ThreadPoolExecutor(1) as pool:
        late = pool.submit(reader.read_range, key, wanted[20])
        needed = wanted[20].start // MIB * MIB
        for start in (start for start in range(0, 8 * MIB, MIB) if start != needed):
            part.write(start, memoryview(data)[start : start + MIB])
            time.sleep(0.02)
        assert not late.done()
        part.write(needed, memoryview(data)[needed : needed + MIB])
        assert late.result(10) == data[wanted[20].start : wanted[20].end]
        scene.cache.commit(part, part.hashes()[1])
    assert scene.store.bytes_out == (1 + budget) * 16 * KIB
    assert scene.counters.snapshot().waits == 1


def test_somebody_else_who_does_not_get_on_is_not_waited_for(scene: Scene) -> None:
    blob, data = scene.blob(8 * MIB)
    part = scene.cache.begin(blob, eager=True)
    assert isinstance(part, Part)
    begun = time.perf_counter()
    read_members(scene.reader(FILL_FOR_MEDIA), blob, data, members(8 * MIB, 1)[:40])
    assert time.perf_counter() - begun < 8
    assert 1 <= scene.counters.snapshot().waits <= 2, "one may be for the look at the size"
    scene.cache.abandon(part)


def test_somebody_else_who_only_collects_is_not_waited_for(scene: Scene) -> None:
    blob, data = scene.blob(8 * MIB)
    part = scene.cache.begin(blob, eager=True, filling=False)
    assert isinstance(part, Part)
    begun = time.perf_counter()
    read_members(scene.reader(FILL_FOR_MEDIA), blob, data, members(8 * MIB, 1)[:40])
    assert time.perf_counter() - begun < 1
    scene.cache.abandon(part)


# Asked for


def test_fill_says_what_happened_and_how_far_it_is(scene: Scene) -> None:
    blob, _ = scene.blob(5 * MIB)
    told: list[int] = []
    reader = scene.reader(FILL_FOR_MEDIA)
    assert reader.fill(blob, told.append) is Filled.FETCHED
    assert sum(told) == 5 * MIB
    assert reader.fill(blob, told.append) is Filled.PRESENT
    assert sum(told) == 5 * MIB
    assert scene.store.counts()["stat"] == 0, "the size was given"


def test_fill_says_that_it_does_not_fit(tmp_path: Path) -> None:
    scene = Scene(tmp_path, limit_bytes=MIB)
    blob, _ = scene.blob(2 * MIB)
    assert scene.reader(FILL_EAGERLY).fill(blob) is Filled.NO_ROOM
    assert scene.files() == {}
    assert scene.counters.snapshot().stepped_aside == 1
    scene.close()


def test_fill_evicts_what_this_process_only_remembers(tmp_path: Path) -> None:
    scene = Scene(tmp_path, limit_bytes=5 * MIB)
    reader = scene.reader(FILL_EAGERLY)
    for seed in range(8):
        blob, data = scene.blob(2 * MIB, seed)
        assert reader.fill(blob) is Filled.FETCHED
        read_members(reader, blob, data, members(2 * MIB, 1)[:3])
        assert isinstance(scene.clock, Clock)
        scene.clock.now += 1
    assert scene.cache.stats().bytes <= 5 * MIB
    assert scene.counters.snapshot().evictions >= 6
    scene.close()


def test_fill_reports_a_store_that_lies(scene: Scene) -> None:
    blob, data = scene.blob(2 * MIB)
    scene.store.distort = lambda span, found: memoryview(bytes(len(found)))
    reader = scene.reader(FILL_EAGERLY)
    with pytest.raises(BlobCorruptedError) as caught:
        reader.fill(blob)
    assert blob.hash in caught.value.message
    assert scene.files() == {}
    assert scene.counters.snapshot().rejected == 1
    scene.store.distort = lambda span, found: found
    assert reader.fill(blob) is Filled.FETCHED
    read_members(reader, blob, data, members(2 * MIB, 1))


def test_a_store_that_lies_is_read_on_without_cache(scene: Scene) -> None:
    blob, data = scene.blob(2 * MIB)
    scene.store.distort = lambda span, found: memoryview(bytes(len(found))) if span.size_bytes > 100 * KIB else found
    reader = scene.reader(FILL_EAGERLY)
    for _ in range(2):
        reader.read_range(blob_key(blob.hash), ByteRange(0, 100))
        quiet(scene)
        reader.invalidate(blob_key(blob.hash))
    read_members(reader, blob, data, members(2 * MIB, 1)[:20])
    counts = scene.counters.snapshot()
    assert (counts.rejected, counts.failed_fills) == (1, 1), "it is not tried again at once"
    assert scene.files() == {}


@pytest.mark.parametrize("size", [MIB, 3 * MIB])
def test_fill_reports_another_size_than_promised(scene: Scene, size: int) -> None:
    blob, _ = scene.blob(2 * MIB)
    with pytest.raises((BlobCorruptedError, StorageError, ValueError)):
        scene.reader(FILL_EAGERLY).fill(Blob(blob.hash, size))
    assert scene.files() == {}


def test_fill_reports_a_store_that_answers_too_little(scene: Scene) -> None:
    blob, _ = scene.blob(2 * MIB)
    scene.store.distort = lambda span, found: found[:-1]
    with pytest.raises(CorruptError):
        scene.reader(FILL_EAGERLY).fill(blob)
    assert scene.files() == {}


def test_fill_reports_what_is_not_there(scene: Scene) -> None:
    with pytest.raises(ObjectNotFoundError):
        scene.reader(FILL_EAGERLY).fill(Blob(sha256_hex(b"absent"), 6))
    assert scene.files() == {}


@pytest.mark.parametrize("at", [0, 1, 5, 9])
def test_fill_survives_any_read_that_fails(scene: Scene, at: int) -> None:
    blob, data = scene.blob(5 * MIB)
    scene.store.clear()
    failing = FaultyStore(scene.store, FailReads(at))
    reader = scene.reader(FILL_EAGERLY, failing)
    with pytest.raises(StoreUnavailableError):
        reader.fill(blob)
    assert scene.files() == {}
    assert scene.counters.snapshot().failed_fills == 1
    assert reader.fill(blob) is Filled.FETCHED
    read_members(reader, blob, data, members(5 * MIB, 1)[:50])


def test_fill_gives_up_on_somebody_who_does_not_get_on(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("warpdata.storage.cache.prefetch.CACHE_WARM_PATIENCE_S", 0.2)
    blob, _ = scene.blob(MIB)
    part = scene.cache.begin(blob, eager=True)
    assert isinstance(part, Part)
    with pytest.raises(StoreTimeoutError):
        scene.reader(FILL_EAGERLY).fill(blob)
    scene.cache.abandon(part)


def test_fill_is_patient_with_somebody_who_gets_on(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("warpdata.storage.cache.prefetch.CACHE_WARM_PATIENCE_S", 0.5)
    blob, data = scene.blob(MIB)
    part = scene.cache.begin(blob, eager=True)
    assert isinstance(part, Part)
    with ThreadPoolExecutor(1) as pool:
        late = pool.submit(scene.reader(FILL_EAGERLY).fill, blob)
        for start in range(0, MIB, MIB // 8):
            time.sleep(0.15)
            part.write(start, memoryview(data)[start : start + MIB // 8])
        scene.cache.commit(part, part.hashes()[1])
        assert late.result(10) is Filled.PRESENT


def test_fill_takes_what_somebody_else_has_just_filled(scene: Scene) -> None:
    blob, data = scene.blob(MIB)
    part = scene.cache.begin(blob, eager=True)
    assert isinstance(part, Part)
    with ThreadPoolExecutor(1) as pool:
        late = pool.submit(scene.reader(FILL_EAGERLY).fill, blob)
        time.sleep(0.1)
        part.write(0, memoryview(data))
        scene.cache.commit(part, part.hashes()[1])
        assert late.result(10) is Filled.PRESENT


def test_fill_begins_anew_when_what_came_is_distrusted(scene: Scene) -> None:
    blob, _ = scene.blob(MIB)
    reader = scene.reader(FILL_EAGERLY)
    gate = scene.store.hold(lambda span: span.size_bytes > 100 * KIB)
    with ThreadPoolExecutor(1) as pool:
        late = pool.submit(reader.fill, blob)
        reached(reader, blob)
        assert reader.invalidate(blob_key(blob.hash)) is True
        gate.set()
        assert late.result(10) is Filled.FETCHED


def test_fill_on_a_closed_reader_is_an_error(scene: Scene) -> None:
    blob, _ = scene.blob(MIB)
    reader = scene.reader(FILL_EAGERLY)
    reader.close()
    with pytest.raises(StorageError, match="closed"):
        reader.fill(blob)


def test_many_may_fill_the_same(scene: Scene) -> None:
    blob, _ = scene.blob(5 * MIB)
    reader = scene.reader(FILL_EAGERLY)
    with ThreadPoolExecutor(4) as pool:
        done = list(pool.map(lambda _: reader.fill(blob), range(4)))
    assert set(done) <= {Filled.FETCHED, Filled.PRESENT}
    assert scene.store.bytes_out == 5 * MIB


# Ahead


def order_of_fills(store: GatedStore) -> list[str]:
    seen: list[str] = []
    for operation in store.log:
        if operation.name == "read_ranges" and operation.key[-64:] not in seen:
            seen.append(operation.key[-64:])
    return seen


def test_prefetch_fills_in_the_order_given(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("warpdata.storage.cache.fetcher.CACHE_THREADS", 1)
    blobs = [scene.blob(50_000, seed)[0] for seed in range(12)]
    reader = scene.reader(FILL_FOR_MEDIA)
    reader.prefetch(blobs)
    reader.prefetch(blobs)
    eventually(lambda: scene.cache.stats().entries == 12)
    assert order_of_fills(scene.store) == [blob.hash for blob in blobs]
    assert scene.store.bytes_out == 12 * 50_000, "never twice"
    quiet(scene)
    assert scene.counters.snapshot().prefetched == 12
    scene.store.clear()
    reader.prefetch(blobs)
    quiet(scene)
    assert scene.store.counts() == {}


def test_a_later_order_replaces_what_has_not_begun(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("warpdata.storage.cache.fetcher.CACHE_THREADS", 1)
    blobs = [scene.blob(50_000, seed)[0] for seed in range(6)]
    reader = scene.reader(FILL_FOR_MEDIA)
    scene.store.open.clear()
    reader.prefetch(blobs)
    eventually(lambda: scene.cache.stats().parts > 0)
    time.sleep(0.05)
    begun = scene.cache.stats().parts
    reader.prefetch([blobs[5], blobs[4]])
    scene.store.open.set()
    quiet(scene)
    assert scene.cache.stats().entries == begun + 2
    assert order_of_fills(scene.store) == [blob.hash for blob in [*blobs[:begun], blobs[5], blobs[4]]]


def test_few_blobs_are_filled_at_once(scene: Scene) -> None:
    blobs = [scene.blob(50_000, seed)[0] for seed in range(20)]
    reader = scene.reader(FILL_FOR_MEDIA)
    scene.store.open.clear()
    reader.prefetch(blobs)
    time.sleep(0.2)
    assert 0 < scene.cache.stats().parts <= CACHE_FILLING_BLOBS
    scene.store.open.set()
    eventually(lambda: scene.cache.stats().entries == 20)
    quiet(scene)


def test_an_error_in_the_background_is_told_to_whoever_meets_it(scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
    blob, data = scene.blob(2 * MIB)
    key, reader = blob_key(blob.hash), scene.reader(FILL_FOR_MEDIA)

    def fail(span: ByteRange) -> None:
        raise StoreUnavailableError("the store is down for large reads")

    scene.store.before = lambda span: fail(span) if span.size_bytes > 100 * KIB else None
    with caplog.at_level(logging.WARNING, "warpdata.storage.cache"):
        reader.prefetch([blob])
        quiet(scene)
    assert "the store is down for large reads" in caplog.text
    assert scene.counters.snapshot().failed_fills == 1
    assert reader.read_range(key, ByteRange(0, 10)) == data[:10], "who can read is not bothered"
    scene.store.before = fail
    with pytest.raises(StoreUnavailableError) as caught:
        reader.read_range(key, ByteRange(0, 10))
    assert "had failed before" in "".join(caught.value.__notes__)
    scene.store.before = lambda span: None
    scene.clock.now += CACHE_REST_S  # type: ignore[attr-defined]
    read_members(reader, blob, data, members(2 * MIB, 1)[:8])
    quiet(scene)
    assert scene.cache.is_entry(blob.hash), "it is tried again later"


# Room


def test_a_working_set_larger_than_the_cache_does_not_thrash(tmp_path: Path) -> None:
    scene = Scene(tmp_path, limit_bytes=5 * MIB)
    reader = scene.reader(FILL_FOR_MEDIA)
    blobs = [scene.blob(2 * MIB, seed) for seed in range(6)]
    for turn in range(3):
        for blob, data in blobs:
            read_members(reader, blob, data, members(2 * MIB, turn)[:10])
            quiet(scene)
            scene.clock.now += 10  # type: ignore[attr-defined]
    counts = scene.counters.snapshot()
    assert (counts.fills, counts.evictions) == (2, 0)
    assert counts.stepped_aside > 0
    scene.close()


def test_a_blob_that_can_never_fit_is_looked_at_once(tmp_path: Path) -> None:
    scene = Scene(tmp_path, limit_bytes=MIB)
    blob, data = scene.blob(2 * MIB)
    reader = scene.reader(FILL_EAGERLY)
    for _ in range(3):
        read_members(reader, blob, data, members(2 * MIB, 1)[:20])
        quiet(scene)
        scene.clock.now += 10 * CACHE_REST_S  # type: ignore[attr-defined]
    assert scene.store.counts()["stat"] == 1
    scene.close()


def test_a_cache_of_no_size_costs_nothing(tmp_path: Path) -> None:
    scene = Scene(tmp_path, limit_bytes=0)
    blob, data = scene.blob(2 * MIB)
    reader = scene.reader(FILL_EAGERLY)
    read_members(reader, blob, data, members(2 * MIB, 1))
    reader.prefetch([blob])
    assert scene.store.counts() == {"create": 1, "read_ranges": 128}
    assert reader.fill(blob) is Filled.NO_ROOM
    assert not scene.cache.folder.exists()
    scene.close()


def test_a_store_that_hangs_does_not_hold_up_the_end(scene: Scene) -> None:
    blob, _ = scene.blob(2 * MIB)
    reader = scene.reader(FILL_FOR_MEDIA)
    scene.store.open.clear()
    reader.prefetch([blob])
    eventually(lambda: f"{blob.hash}.part" in scene.files())
    begun = time.perf_counter()
    reader.close()
    assert time.perf_counter() - begun < 5
    assert scene.files() == {}, "and what comes late goes nowhere"
    scene.store.open.set()
    time.sleep(0.1)
    assert scene.files() == {}


def test_what_is_complete_is_kept_even_if_the_reader_is_closed_at_once(scene: Scene) -> None:
    """A short program that reads everything once should leave it for the next."""
    for seed in range(5):
        blob, data = scene.blob(2 * MIB, seed)
        reader = scene.reader(FillPolicy(None, 0.9, eager=False))
        read_members(reader, blob, data, [ByteRange(0, MIB)])
        reached(reader, blob, Phase.COLLECTING)
        read_members(reader, blob, data, [ByteRange(MIB, 2 * MIB)])
        reader.close()
        assert scene.cache.is_entry(blob.hash)


def test_a_full_disk_is_told_to_those_who_asked(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    blob, _ = scene.blob(2 * MIB)

    def refuse(fd: int, data: object, offset: int) -> int:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("os.pwrite", refuse)
        with pytest.raises(StoreFullError) as caught:
            scene.reader(FILL_EAGERLY).fill(blob)
    assert str(scene.cache.folder) in caught.value.message
    assert scene.reader(FILL_EAGERLY).fill(blob) is Filled.FETCHED, "who asks again is heard again"


def test_two_readers_of_one_process_share_a_folder(scene: Scene) -> None:
    """They are to one another what processes are."""
    blob, data = scene.blob(5 * MIB)
    other = BlobCache(scene.cache.folder, scene.cache.limit_bytes, scene.clock)
    assert scene.reader(FILL_EAGERLY).fill(blob) is Filled.FETCHED
    entry = other.find(blob.hash)
    assert entry is not None
    assert entry.view == data
