"""If these fail, the store sends the same bytes again and again, or readers wait for nothing."""

from __future__ import annotations

import logging
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import cast

import pytest

from tests.storage.cache.scenes import (
    Clock,
    GatedStore,
    Scene,
    eventually,
    members,
    open_partial,
    read_members,
    source_of,
    write_range,
)
from warpdata.errors import (
    CorruptError,
    ObjectNotFoundError,
    StorageError,
    StoreTimeoutError,
    StoreUnavailableError,
)
from warpdata.limits import KIB, MAX_PAGE_BYTES, MIB
from warpdata.primitives.hashing import Blob, blob_key, sha256_hex
from warpdata.primitives.parallel import REQUEST_LIMIT
from warpdata.storage import ByteRange
from warpdata.storage.cache import BlobCache, CachedReader, FetchPolicy, Filled
from warpdata.storage.cache.blob_cache import BACKOFF_S
from warpdata.storage.cache.partial import PartialBlob, PartialState
from warpdata.testing import FailReads, FaultyStore

PIECE = 512 * KIB
FETCHER = "warpdata.storage.cache.fetcher"


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fetch pieces of one small size, so that small blobs behave as large ones do."""
    monkeypatch.setattr(f"{FETCHER}._MIN_PIECE_BYTES", PIECE // 4)
    monkeypatch.setattr(f"{FETCHER}._FIRST_PIECE_BYTES", PIECE)
    monkeypatch.setattr(f"{FETCHER}._MAX_PIECE_BYTES", PIECE)


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Do not take a busy machine for a stalled fetch."""
    monkeypatch.setattr(f"{FETCHER}._STALL_S", 30.0)


def settle(scene: Scene) -> None:
    """Wait until nothing is fetched in the background."""
    eventually(scene.is_idle)


def claimed_bytes(reader: CachedReader, blob: Blob) -> int:
    state = reader._fetcher._partials.states.get(blob.hash)
    return 0 if state is None or state.partial is None else state.partial._claimed.size_bytes


# When a blob is fetched whole


@pytest.mark.parametrize("reads", [7, 8])
def test_media_are_fetched_whole_after_eight_reads(scene: Scene, reads: int) -> None:
    blob, data = scene.blob(2 * MIB)
    read_members(scene.reader(FetchPolicy.MEDIA), blob, data, members(2 * MIB, 1)[:reads])
    settle(scene)
    assert scene.cache.contains(blob.hash) == (reads == 8)
    assert scene.store.counts()["stat"] == (reads == 8)


@pytest.mark.parametrize("fraction", [0.45, 0.55])
def test_tables_are_fetched_whole_when_reads_asked_for_half(scene: Scene, fraction: float) -> None:
    blob, data = scene.blob(4 * MIB)
    read_members(scene.reader(FetchPolicy.TABLES), blob, data, [ByteRange(0, int(fraction * 4 * MIB))])
    settle(scene)
    assert scene.cache.contains(blob.hash) == (fraction > 0.5)
    assert scene.has_partial(blob) == (fraction < 0.5)


@pytest.mark.parametrize("policy", [FetchPolicy.EAGER, FetchPolicy.EPOCHS])
def test_a_blob_is_fetched_whole_after_the_first_read(scene: Scene, policy: FetchPolicy) -> None:
    blob, data = scene.blob(2 * MIB)
    read_members(scene.reader(policy), blob, data, members(2 * MIB, 1)[:1])
    settle(scene)
    assert scene.cache.contains(blob.hash)
    counts = scene.counters.snapshot()
    assert (counts.fills, counts.fill_bytes, counts.misses) == (1, 2 * MIB, 1)
    assert scene.store.bytes_out == 2 * MIB


@pytest.mark.parametrize(
    ("policy", "reads", "asked_bytes", "size", "due"),
    [
        (FetchPolicy.MEDIA, 7, 10**9, 10**9, False),
        (FetchPolicy.MEDIA, 8, 1, None, True),
        (FetchPolicy.TABLES, 10**6, 499_999, 10**6, False),
        (FetchPolicy.TABLES, 1, 500_000, 10**6, True),
        (FetchPolicy.TABLES, 1, 1000, 1000, False),
        (FetchPolicy.TABLES, 10**6, 10**9, None, False),
        (FetchPolicy.EAGER, 1, 0, None, True),
        (FetchPolicy.EPOCHS, 1, 0, None, True),
    ],
)
def test_when_a_blob_is_due(policy: FetchPolicy, reads: int, asked_bytes: int, size: int | None, due: bool) -> None:
    assert policy.is_due(reads, asked_bytes, size) is due


# Each byte once


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize("policy", [FetchPolicy.MEDIA, FetchPolicy.EPOCHS])
def test_all_members_in_random_order_fetch_the_blob_about_once(scene: Scene, policy: FetchPolicy) -> None:
    blob, data = scene.blob(16 * MIB)
    scene.store.before = lambda span: time.sleep(0.002)
    read_members(scene.reader(policy), blob, data, members(16 * MIB, 1))
    settle(scene)
    assert scene.store.bytes_out <= 1.05 * 16 * MIB
    assert scene.cache.contains(blob.hash)
    assert scene.counters.snapshot().bytes_fetched == scene.store.bytes_out


@pytest.mark.parametrize("policy", FetchPolicy)
@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize("threads", [1, 4])
def test_a_scan_fetches_each_byte_once_and_leaves_an_entry(scene: Scene, policy: FetchPolicy, threads: int) -> None:
    blob, data = scene.blob(12 * MIB)
    key, reader = blob_key(blob.hash), scene.reader(policy)
    scene.store.before = lambda span: time.sleep(0.005)

    def read(start: int) -> bool:
        end = min(start + 768 * KIB, len(data))
        return reader.read_range(key, ByteRange(start, end)) == data[start:end]

    with ThreadPoolExecutor(threads) as pool:
        assert all(pool.map(read, range(0, len(data), 768 * KIB)))
    settle(scene)
    assert scene.cache.contains(blob.hash)
    assert scene.store.bytes_out == len(data)


def test_bytes_between_coalesced_ranges_are_kept(scene: Scene) -> None:
    blob, _ = scene.blob(4 * MIB)
    reader = scene.reader(FetchPolicy.TABLES)
    for start in range(0, 4 * MIB, MIB):
        reader.read_ranges(
            blob_key(blob.hash), [ByteRange(start, start + 1000), ByteRange(start + MIB - 9, start + MIB)]
        )
    settle(scene)
    assert scene.cache.contains(blob.hash)
    assert scene.store.bytes_out == 4 * MIB


@pytest.mark.parametrize("policy", FetchPolicy)
def test_a_stream_leaves_an_entry(scene: Scene, policy: FetchPolicy) -> None:
    blob, data = scene.blob(20 * MIB + 5)
    seen = 0
    for chunk in scene.reader(policy).stream(blob_key(blob.hash)):
        assert chunk == data[seen : seen + len(chunk)]
        seen += len(chunk)
    settle(scene)
    assert scene.cache.contains(blob.hash)
    assert scene.store.bytes_out == 0, "nothing but the stream"


def test_a_stream_of_odd_chunks_leaves_an_entry(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    blob, data = scene.blob(5 * MIB + 5)
    sizes = [300_000, 1, 40_000, 16_384, 3_000_000, 77]

    def stream(key: str) -> object:
        start = 0
        while start < len(data):
            for size in sizes:
                yield memoryview(data)[start : start + size]
                start += size

    monkeypatch.setattr(scene.store, "stream", stream)
    assert b"".join(scene.reader(FetchPolicy.EAGER).stream(blob_key(blob.hash))) == data
    settle(scene)
    assert scene.cache.contains(blob.hash)


@pytest.mark.parametrize("size", [MAX_PAGE_BYTES, MAX_PAGE_BYTES + 1])
def test_a_whole_read_is_kept_unless_it_is_small(scene: Scene, size: int) -> None:
    blob, _ = scene.blob(size)
    scene.reader(FetchPolicy.EAGER).read(blob_key(blob.hash))
    settle(scene)
    assert scene.cache.contains(blob.hash) == (size > MAX_PAGE_BYTES)
    assert scene.store.counts() == {"create": 1, "read": 1}


def test_large_reads_of_many_blobs_open_few_partial_blobs(scene: Scene) -> None:
    """Otherwise each large read of a new blob would reserve space for a blob that never completes."""
    reader = scene.reader(FetchPolicy.MEDIA)
    for seed in range(40):
        blob, data = scene.blob(2 * MIB, seed)
        read_members(reader, blob, data, [ByteRange(0, MIB)])
    assert scene.cache.stats().parts == 8
    assert scene.store.counts()["stat"] == 8
    assert isinstance(scene.clock, Clock)
    scene.clock.now += 31
    blob, data = scene.blob(2 * MIB, 99)
    read_members(reader, blob, data, [ByteRange(0, MIB)])
    assert scene.has_partial(blob), "an idle partial blob makes way"
    assert scene.cache.stats().parts == 8
    blob, data = scene.blob(2 * MIB, 20)
    read_members(reader, blob, data, members(2 * MIB, 1)[:8])
    eventually(lambda: scene.cache.contains(blob.hash))


# Waiting


def test_a_small_read_does_not_wait_for_the_whole_blob(scene: Scene) -> None:
    blob, data = scene.blob(8 * MIB)
    reader = scene.reader(FetchPolicy.MEDIA)
    gate = scene.store.hold(lambda span: span.size_bytes > 100 * KIB)
    reader.prefetch([blob])
    eventually(lambda: claimed_bytes(reader, blob) > 0)
    begun = time.perf_counter()
    read_members(reader, blob, data, [ByteRange(7 * MIB, 7 * MIB + 20 * KIB)])
    assert time.perf_counter() - begun < 2
    gate.set()
    settle(scene)
    assert scene.store.bytes_out == 8 * MIB, "what the read fetched is part of the entry"


@pytest.mark.usefixtures("patient")
def test_a_read_waits_for_units_that_a_task_is_fetching(scene: Scene) -> None:
    blob, data = scene.blob(8 * MIB)
    reader, key = scene.reader(FetchPolicy.MEDIA), blob_key(blob.hash)
    gate = scene.store.hold(lambda span: span.size_bytes > 100 * KIB)
    reader.prefetch([blob])
    eventually(lambda: claimed_bytes(reader, blob) > 0)
    with ThreadPoolExecutor(1) as pool:
        late = pool.submit(reader.read_range, key, ByteRange(100, 200))
        eventually(lambda: scene.counters.snapshot().waits == 1)
        assert not late.done()
        gate.set()
        assert late.result(10) == data[100:200]
    settle(scene)
    assert scene.store.bytes_out == 8 * MIB


@pytest.mark.usefixtures("patient")
def test_units_of_a_failed_read_are_fetched_by_a_task(scene: Scene) -> None:
    blob, _ = scene.blob(8 * MIB)
    reader, key = scene.reader(FetchPolicy.EAGER), blob_key(blob.hash)
    lost = ByteRange(6 * MIB, 6 * MIB + 96 * KIB)

    def is_held(span: ByteRange) -> bool:
        if span == lost:
            raise StoreUnavailableError("this reply was lost")
        return span.size_bytes > 100 * KIB

    gate = scene.store.hold(is_held)
    reader.read_range(key, ByteRange(0, 10))
    with pytest.raises(StoreUnavailableError):
        reader.read_range(key, lost)
    gate.set()
    settle(scene)
    assert scene.cache.contains(blob.hash)


def test_a_stalled_fetch_is_waited_for_once(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"{FETCHER}._STALL_S", 0.5)
    blob, data = scene.blob(2 * MIB)
    reader = scene.reader(FetchPolicy.MEDIA)
    gate = scene.store.hold(lambda span: span.size_bytes > 100 * KIB)
    reader.prefetch([blob])
    eventually(lambda: claimed_bytes(reader, blob) == 2 * MIB)
    begun = time.perf_counter()
    read_members(reader, blob, data, members(2 * MIB, 1)[:40])
    assert time.perf_counter() - begun < 5, "one read waits, not each"
    assert scene.counters.snapshot().waits == 1
    gate.set()
    settle(scene)
    assert scene.cache.contains(blob.hash)


# Fill


def test_fill_reports_progress_and_outcome(scene: Scene) -> None:
    blob, _ = scene.blob(5 * MIB)
    reported: list[int] = []
    reader = scene.reader(FetchPolicy.MEDIA)
    assert reader.fill(blob, reported.append) is Filled.FETCHED
    assert sum(reported) == 5 * MIB
    assert reader.fill(blob, reported.append) is Filled.PRESENT
    assert sum(reported) == 5 * MIB
    assert scene.store.counts()["stat"] == 0, "the caller gave the size"


def test_fill_reports_that_a_blob_does_not_fit(tmp_path: Path) -> None:
    scene = Scene(tmp_path, limit_bytes=MIB)
    blob, _ = scene.blob(2 * MIB)
    assert scene.reader(FetchPolicy.EAGER).fill(blob) is Filled.NO_ROOM
    assert scene.files() == {}
    assert scene.counters.snapshot().stepped_aside == 1
    scene.close()


def test_fill_evicts_entries_that_this_process_has_open(tmp_path: Path) -> None:
    scene = Scene(tmp_path, limit_bytes=5 * MIB)
    reader = scene.reader(FetchPolicy.EAGER)
    for seed in range(8):
        blob, data = scene.blob(2 * MIB, seed)
        assert reader.fill(blob) is Filled.FETCHED
        read_members(reader, blob, data, members(2 * MIB, 1)[:3])
        assert isinstance(scene.clock, Clock)
        scene.clock.now += 1
    assert scene.cache.stats().bytes <= 5 * MIB
    assert scene.counters.snapshot().evictions >= 6
    scene.close()


def test_fill_raises_if_the_bytes_do_not_match_the_name(scene: Scene) -> None:
    blob, data = scene.blob(2 * MIB)
    scene.store.distort = lambda span, found: memoryview(bytes(len(found)))
    reader = scene.reader(FetchPolicy.EAGER)
    with pytest.raises(CorruptError) as caught:
        reader.fill(blob)
    assert blob.hash in caught.value.message
    assert scene.files() == {}
    assert scene.counters.snapshot().rejected == 1
    scene.store.distort = lambda span, found: found
    assert reader.fill(blob) is Filled.FETCHED
    read_members(reader, blob, data, members(2 * MIB, 1))


@pytest.mark.parametrize("act", ["fill", "read"])
def test_a_partial_blob_that_another_thread_ends_is_left_to_it(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, act: str
) -> None:
    """Otherwise the failure of that thread is lost, and a corrupt blob is fetched twice."""
    blob, _ = scene.blob(2 * MIB)
    fetcher = scene.reader(FetchPolicy.EAGER)._fetcher
    state = fetcher._partials.state(blob.hash, blob.byte_size)
    partial = fetcher._partials.open(state, eager=True)
    assert isinstance(partial, PartialBlob)
    found = PartialBlob.__dict__["state"].fget

    def close_first(self: PartialBlob) -> PartialState:
        self.close()
        return cast("PartialState", found(self))

    monkeypatch.setattr(PartialBlob, "state", property(close_first))
    if act == "fill":
        assert fetcher._next_step(state, partial) is None
    else:
        fetcher._after_write(state, partial, FetchPolicy.EAGER)
    assert state.partial is partial, "the other thread records its failure and detaches it"
    fetcher._partials.fail(state, partial, CorruptError("wrong bytes"))
    assert isinstance(fetcher.failure_of(blob.hash), CorruptError)


def test_reads_go_to_the_store_after_a_blob_was_rejected(scene: Scene) -> None:
    blob, data = scene.blob(2 * MIB)
    scene.store.distort = lambda span, found: memoryview(bytes(len(found))) if span.size_bytes > 100 * KIB else found
    reader = scene.reader(FetchPolicy.EAGER)
    for _ in range(2):
        reader.read_range(blob_key(blob.hash), ByteRange(0, 100))
        settle(scene)
        reader.invalidate(blob_key(blob.hash))
    read_members(reader, blob, data, members(2 * MIB, 1)[:20])
    counts = scene.counters.snapshot()
    assert (counts.rejected, counts.failed_fills) == (1, 1), "the fill is not tried again at once"
    assert scene.files() == {}


@pytest.mark.parametrize("size", [MIB, 3 * MIB])
def test_fill_raises_if_the_size_is_wrong(scene: Scene, size: int) -> None:
    blob, _ = scene.blob(2 * MIB)
    with pytest.raises((CorruptError, StorageError, ValueError)):
        scene.reader(FetchPolicy.EAGER).fill(Blob(blob.hash, size))
    assert scene.files() == {}


def test_fill_raises_if_the_store_returns_too_little(scene: Scene) -> None:
    blob, _ = scene.blob(2 * MIB)
    scene.store.distort = lambda span, found: found[:-1]
    with pytest.raises(CorruptError):
        scene.reader(FetchPolicy.EAGER).fill(blob)
    assert scene.files() == {}


def test_fill_raises_if_the_blob_is_absent(scene: Scene) -> None:
    with pytest.raises(ObjectNotFoundError):
        scene.reader(FetchPolicy.EAGER).fill(Blob(sha256_hex(b"absent"), 6))
    assert scene.files() == {}


@pytest.mark.parametrize("at", [0, 1, 5, 9])
def test_fill_works_after_any_read_that_failed(scene: Scene, at: int) -> None:
    blob, data = scene.blob(10 * MIB)
    scene.store.clear()
    reader = scene.reader(FetchPolicy.EAGER, FaultyStore(scene.store, FailReads(at)))
    with pytest.raises(StoreUnavailableError):
        reader.fill(blob)
    assert scene.files() == {}
    assert scene.counters.snapshot().failed_fills == 1
    assert reader.fill(blob) is Filled.FETCHED
    read_members(reader, blob, data, members(5 * MIB, 1)[:50])


def test_fill_times_out_after_silence(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"{FETCHER}._FILL_STALL_S", 0.2)
    blob, _ = scene.blob(MIB)
    partial = open_partial(scene.cache, blob, source_of(scene.store))
    claimed = partial.claim([ByteRange(0, MIB)])
    with pytest.raises(StoreTimeoutError):
        scene.reader(FetchPolicy.EAGER).fill(blob)
    partial.release(claimed)
    scene.cache.abandon(partial)


def test_fill_does_not_time_out_while_bytes_arrive(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"{FETCHER}._FILL_STALL_S", 0.8)
    blob, data = scene.blob(MIB)
    partial = open_partial(scene.cache, blob, source_of(scene.store))
    claims = [partial.claim([ByteRange(start, start + MIB // 8)]) for start in range(0, MIB, MIB // 8)]
    reported: list[int] = []
    with ThreadPoolExecutor(1) as pool:
        late = pool.submit(scene.reader(FetchPolicy.EAGER).fill, blob, reported.append)
        for claim in claims:
            time.sleep(0.2)
            for span in claim:
                partial.write(span, memoryview(data)[span.start : span.end])
            partial.release(claim)
        assert late.result(10) is Filled.FETCHED
    assert sum(reported) == MIB
    assert scene.store.bytes_out == 0
    scene.cache.abandon(partial)


def test_fill_finds_what_another_process_commits(scene: Scene) -> None:
    blob, data = scene.blob(MIB)
    partial = open_partial(scene.cache, blob, source_of(scene.store))
    claimed = partial.claim([ByteRange(0, MIB)])
    with ThreadPoolExecutor(1) as pool:
        late = pool.submit(scene.reader(FetchPolicy.EAGER).fill, blob)
        time.sleep(0.1)
        assert partial.begin_commit()
        partial.write(claimed[0], memoryview(data))
        partial.release(claimed)
        scene.cache.commit(partial, partial.hashes()[1])
        assert late.result(10) in (Filled.PRESENT, Filled.FETCHED)
    assert scene.store.bytes_out == 0


def test_fill_starts_again_when_its_bytes_are_invalidated(scene: Scene) -> None:
    blob, _ = scene.blob(MIB)
    reader = scene.reader(FetchPolicy.EAGER)
    gate = scene.store.hold(lambda span: span.size_bytes > 100 * KIB)
    with ThreadPoolExecutor(1) as pool:
        late = pool.submit(reader.fill, blob)
        eventually(lambda: claimed_bytes(reader, blob) > 0)
        assert reader.invalidate(blob_key(blob.hash)) is True
        gate.set()
        assert late.result(10) is Filled.FETCHED


def test_fill_on_a_closed_reader_is_an_error(scene: Scene) -> None:
    blob, _ = scene.blob(MIB)
    reader = scene.reader(FetchPolicy.EAGER)
    reader.close()
    with pytest.raises(StorageError, match="closed"):
        reader.fill(blob)


def test_threads_that_fill_the_same_blob_share_it(scene: Scene) -> None:
    blob, _ = scene.blob(5 * MIB)
    reader = scene.reader(FetchPolicy.EAGER)
    with ThreadPoolExecutor(4) as pool:
        done = list(pool.map(lambda _: reader.fill(blob), range(4)))
    assert set(done) <= {Filled.FETCHED, Filled.PRESENT}
    assert scene.store.bytes_out == 5 * MIB


# Prefetch


def order_of_fetches(store: GatedStore) -> list[str]:
    seen: list[str] = []
    for operation in store.log:
        if operation.name == "read_ranges" and operation.key[-64:] not in seen:
            seen.append(operation.key[-64:])
    return seen


def test_prefetch_fetches_in_order(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"{FETCHER}._FIRST_TASKS", 1)
    monkeypatch.setattr(REQUEST_LIMIT, "_fixed", 1)
    blobs = [scene.blob(50_000, seed)[0] for seed in range(12)]
    reader = scene.reader(FetchPolicy.MEDIA)
    reader.prefetch(blobs)
    reader.prefetch(blobs)
    eventually(lambda: scene.cache.stats().entries == 12)
    assert order_of_fetches(scene.store) == [blob.hash for blob in blobs]
    assert scene.store.bytes_out == 12 * 50_000, "never twice"
    settle(scene)
    assert scene.counters.snapshot().prefetched == 12
    scene.store.clear()
    reader.prefetch(blobs)
    settle(scene)
    assert scene.store.counts() == {}


def test_a_later_prefetch_replaces_what_has_not_begun(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"{FETCHER}._FIRST_TASKS", 1)
    monkeypatch.setattr(REQUEST_LIMIT, "_fixed", 1)
    blobs = [scene.blob(50_000, seed)[0] for seed in range(6)]
    reader = scene.reader(FetchPolicy.MEDIA)
    scene.store.open.clear()
    reader.prefetch(blobs)
    eventually(lambda: scene.cache.stats().parts > 0)
    time.sleep(0.05)
    begun = scene.cache.stats().parts
    reader.prefetch([blobs[5], blobs[4]])
    scene.store.open.set()
    settle(scene)
    assert scene.cache.stats().entries == begun + 2
    assert order_of_fetches(scene.store) == [blob.hash for blob in [*blobs[:begun], blobs[5], blobs[4]]]


def test_the_prefetch_queue_is_bounded(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"{FETCHER}._MAX_PREFETCH", 10)
    scene.store.open.clear()
    reader = scene.reader(FetchPolicy.MEDIA)
    reader.prefetch([scene.blob(50_000, seed)[0] for seed in range(20)])
    assert len(reader._fetcher._partials.queue) == 10


def test_few_blobs_are_fetched_at_once(scene: Scene) -> None:
    blobs = [scene.blob(50_000, seed)[0] for seed in range(20)]
    reader = scene.reader(FetchPolicy.MEDIA)
    scene.store.open.clear()
    reader.prefetch(blobs)
    time.sleep(0.2)
    assert 0 < scene.cache.stats().parts <= 4
    scene.store.open.set()
    eventually(lambda: scene.cache.stats().entries == 20)
    settle(scene)


def test_a_background_error_is_a_note_on_the_next_error(scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
    blob, data = scene.blob(2 * MIB)
    key, reader = blob_key(blob.hash), scene.reader(FetchPolicy.MEDIA)

    def fail(span: ByteRange) -> None:
        raise StoreUnavailableError("the store is down for large reads")

    scene.store.before = lambda span: fail(span) if span.size_bytes > 100 * KIB else None
    with caplog.at_level(logging.WARNING, "warpdata.storage.cache"):
        reader.prefetch([blob])
        settle(scene)
    assert "the store is down for large reads" in caplog.text
    assert scene.counters.snapshot().failed_fills == 1
    assert reader.read_range(key, ByteRange(0, 10)) == data[:10], "a read that succeeds raises nothing"
    scene.store.before = fail
    with pytest.raises(StoreUnavailableError) as caught:
        reader.read_range(key, ByteRange(0, 10))
    assert "had failed before" in "".join(caught.value.__notes__)
    scene.store.before = lambda span: None
    scene.clock.now += BACKOFF_S  # type: ignore[attr-defined]
    read_members(reader, blob, data, members(2 * MIB, 1)[:8])
    settle(scene)
    assert scene.cache.contains(blob.hash), "the fill is tried again later"


# Space


def test_a_working_set_larger_than_the_cache_does_not_thrash(tmp_path: Path) -> None:
    scene = Scene(tmp_path, limit_bytes=5 * MIB)
    reader = scene.reader(FetchPolicy.MEDIA)
    blobs = [scene.blob(2 * MIB, seed) for seed in range(6)]
    for turn in range(3):
        for blob, data in blobs:
            read_members(reader, blob, data, members(2 * MIB, turn)[:10])
            settle(scene)
            scene.clock.now += 10  # type: ignore[attr-defined]
    counts = scene.counters.snapshot()
    assert (counts.fills, counts.evictions) == (2, 0)
    assert counts.stepped_aside > 0
    scene.close()


def test_the_size_of_a_blob_that_cannot_fit_is_requested_once(tmp_path: Path) -> None:
    scene = Scene(tmp_path, limit_bytes=MIB)
    blob, data = scene.blob(2 * MIB)
    reader = scene.reader(FetchPolicy.EAGER)
    for _ in range(3):
        read_members(reader, blob, data, members(2 * MIB, 1)[:20])
        settle(scene)
        scene.clock.now += 10 * BACKOFF_S  # type: ignore[attr-defined]
    assert scene.store.counts()["stat"] == 1
    scene.close()


def test_a_cache_of_size_zero_costs_nothing(tmp_path: Path) -> None:
    scene = Scene(tmp_path, limit_bytes=0)
    blob, data = scene.blob(2 * MIB)
    reader = scene.reader(FetchPolicy.EAGER)
    read_members(reader, blob, data, members(2 * MIB, 1))
    reader.prefetch([blob])
    assert scene.store.counts() == {"create": 1, "read_ranges": 128}
    assert reader.fill(blob) is Filled.NO_ROOM
    assert not scene.cache.directory.exists()
    scene.close()


# The end


def test_a_hanging_store_does_not_delay_close(scene: Scene) -> None:
    blob, _ = scene.blob(2 * MIB)
    reader = scene.reader(FetchPolicy.MEDIA)
    scene.store.open.clear()
    reader.prefetch([blob])
    eventually(lambda: scene.has_partial(blob))
    begun = time.perf_counter()
    reader.close()
    assert time.perf_counter() - begun < 5
    assert scene.files() == {}, "a late reply is dropped"
    scene.store.open.set()
    settle(scene)
    assert scene.files() == {}


def test_close_commits_what_is_complete(scene: Scene) -> None:
    """A short program that reads everything once leaves the blobs for the next."""
    for seed in range(5):
        blob, data = scene.blob(2 * MIB, seed)
        reader = scene.reader(FetchPolicy.MEDIA)
        read_members(reader, blob, data, [ByteRange(0, MIB), ByteRange(MIB, 2 * MIB)])
        reader.close()
        assert scene.cache.contains(blob.hash)


def test_fill_raises_if_the_disk_is_full(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    blob, _ = scene.blob(2 * MIB)

    def refuse(fd: int, data: object, offset: int) -> int:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("os.pwrite", refuse)
        with pytest.raises(StorageError) as caught:
            scene.reader(FetchPolicy.EAGER).fill(blob)
    assert str(scene.cache.directory) in caught.value.message
    assert scene.reader(FetchPolicy.EAGER).fill(blob) is Filled.FETCHED, "an explicit fill ignores the back-off"


def test_two_readers_of_one_process_share_a_directory(scene: Scene) -> None:
    blob, data = scene.blob(5 * MIB)
    other = BlobCache(scene.cache.directory, scene.cache.limit_bytes, scene.clock)
    assert scene.reader(FetchPolicy.EAGER).fill(blob) is Filled.FETCHED
    entry = other.find(blob.hash)
    assert entry is not None
    assert entry.view == data


def test_warming_twice_over_a_slow_link_succeeds(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """A time-out is about silence: both calls last longer than the limit, but bytes arrive all the time."""
    monkeypatch.setattr(f"{FETCHER}._FILL_STALL_S", 1.0)
    blob, _ = scene.blob(4 * MIB)
    scene.store.before = lambda span: time.sleep(span.size_bytes / 600e3)
    readers: list[CachedReader] = [scene.reader(FetchPolicy.EAGER) for _ in range(2)]
    with ThreadPoolExecutor(2) as pool:
        done = list(pool.map(lambda reader: reader.fill(blob), readers))
    assert Filled.FETCHED in done
    assert scene.store.bytes_out == 4 * MIB


def test_writes_by_hand_make_an_entry(scene: Scene) -> None:
    """The steps that readers share are enough to fill a blob."""
    blob, data = scene.blob(MIB)
    partial = open_partial(scene.cache, blob)
    write_range(partial, data, 0, MIB)
    assert partial.is_complete
    assert partial.begin_commit()
    assert scene.cache.commit(partial, partial.hashes()[1])
    assert scene.cache.verify() == []
