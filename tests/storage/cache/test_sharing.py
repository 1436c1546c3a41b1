"""If these fail, two jobs on one machine fetch the same bytes twice, or one of them hangs with the other."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext, suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.storage.cache.scenes import Scene, eventually, members, noise, read_members, start_python
from warpdata.errors import StoreUnavailableError
from warpdata.limits import CACHE_UNIT_BYTES, KIB, MIB
from warpdata.primitives.hashing import Blob, blob_key
from warpdata.storage import ByteRange
from warpdata.storage.cache import FILL_EAGERLY, FILL_FOR_EPOCHS, FILL_FOR_MEDIA, BlobCache, Filled
from warpdata.storage.cache.blob_state import Phase
from warpdata.storage.cache.partial import Claim, Part

READ = 256 * KIB

JOB = """
import json, os, sys, time
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext, suppress
from pathlib import Path
from random import Random
from tests.storage.cache.scenes import *
from warpdata.storage.cache import *
from warpdata.primitives.hashing import *
import warpdata.storage.cache.single_flight
folder, size, count, limit, seed, stall_s = Path(sys.argv[1]), *map(int, sys.argv[2:7])
import warpdata.storage.cache.miss
warpdata.storage.cache.miss.CACHE_STALL_S = 30.0  # a busy machine is not a store that hangs
from warpdata.storage.cache import single_flight
single_flight.CACHE_STALL_S = single_flight.CACHE_SHARE_PATIENCE_S = float(stall_s)
os.fsync = lambda fd: None
scene = Scene(folder, limit_bytes=limit, clock=time.time)
scene.store.before = lambda span: time.sleep(0.005 + span.size_bytes / 100e6)
reader = scene.reader(FILL_FOR_EPOCHS)
contents = [noise(number, size) for number in range(count)]
blobs = [Blob(sha256_hex(data), size) for data in contents]
reads = [(number, span) for number in range(count) for span in members(size, seed, 262_144)]
Random(seed).shuffle(reads)
def read(what):
    number, span = what
    assert reader.read_range(blob_key(blobs[number].hash), span) == contents[number][span.start : span.end]
print("ready", flush=True)
sys.stdin.readline()
with ThreadPoolExecutor(8) as pool:
    list(pool.map(read, reads))
reader.close()
print(json.dumps(scene.store.bytes_out))
"""


def start_jobs(scene: Scene, size: int, count: int, jobs: int, *, limit: int = 1000 * MIB, stall_s: int = 30) -> Jobs:
    """Processes that read all of so many blobs at the same time, each in an order of its own."""
    for number in range(count):
        scene.blob(size, number)
    folder = scene.shelves.parents[1]
    started = [start_python(JOB, folder, size, count, limit, seed, stall_s) for seed in range(jobs)]
    for job in started:
        assert job.stdout is not None
        assert job.stdout.readline() == "ready\n", job.communicate()[1]
    for job in started:
        assert job.stdin is not None
        job.stdin.write("go\n")
        job.stdin.flush()
    return started


Jobs = list[subprocess.Popen[str]]


def fetched_by(job: subprocess.Popen[str]) -> int:
    printed, complaints = job.communicate(timeout=60)
    assert (job.returncode, complaints) == (0, "")
    return int(json.loads(printed))


def assert_tidy(scene: Scene) -> None:
    left = [name for name in scene.files() if name.endswith((".part", ".map", ".new"))]
    assert left == []
    assert scene.cache.verify() == []


@pytest.mark.parametrize(("jobs", "count", "size"), [(2, 1, 16 * MIB), (2, 12, 3 * MIB), (4, 12, 3 * MIB)])
def test_jobs_at_once_fetch_each_byte_once(tmp_path: Path, jobs: int, count: int, size: int) -> None:
    scene = Scene(tmp_path, clock=time.time)
    fetched = [fetched_by(job) for job in start_jobs(scene, size, count, jobs)]
    assert count * size <= sum(fetched) <= 1.05 * count * size, fetched
    assert scene.cache.stats().entries == count
    assert_tidy(scene)


@pytest.mark.parametrize("after_s", [0.0, 0.05, 0.15, 0.3])
def test_a_job_goes_on_when_another_is_killed(tmp_path: Path, after_s: float) -> None:
    scene = Scene(tmp_path, clock=time.time)
    victim, survivor = start_jobs(scene, 2 * MIB, 12, 2)
    time.sleep(after_s)
    victim.kill()
    victim.communicate(timeout=10)
    begun = time.perf_counter()
    assert fetched_by(survivor) <= 12 * 2 * MIB * 1.05
    assert time.perf_counter() - begun < 20, "a lock that is gone is not waited for"
    scene.cache.collect(1000 * MIB)  # what the killed one left goes with the next survey
    assert_tidy(scene)


def test_a_job_goes_on_when_another_stands_still(tmp_path: Path) -> None:
    scene = Scene(tmp_path, clock=time.time)
    still, other = start_jobs(scene, 2 * MIB, 4, 2, stall_s=1)
    eventually(lambda: scene.cache.stats().parts > 0)
    still.send_signal(signal.SIGSTOP)
    try:
        fetched_by(other)
    finally:
        still.send_signal(signal.SIGCONT)
    fetched_by(still)
    assert_tidy(scene)


def test_jobs_share_a_cache_that_is_too_small(tmp_path: Path) -> None:
    limit = 8 * MIB
    scene = Scene(tmp_path, limit_bytes=limit, clock=time.time)
    jobs = start_jobs(scene, 2 * MIB, 8, 2, limit=limit)
    while any(job.poll() is None for job in jobs):
        with suppress(FileNotFoundError):  # it went while we looked
            assert sum(size for name, size in scene.files().items() if len(name) == 64 or ".part" in name) <= limit
        time.sleep(0.01)
    for job in jobs:
        fetched_by(job)
    assert_tidy(scene)


# One at a time


def begun(scene: Scene, blob: Blob) -> Part:
    """A part in other hands: another process would hold it in the same way."""
    part = BlobCache(scene.cache.folder, scene.cache.limit_bytes, time.time).begin(blob, eager=True)
    assert isinstance(part, Part)
    return part


def test_the_first_read_of_a_blob_that_is_due_waits_for_whoever_claimed_it(scene: Scene) -> None:
    blob, data = scene.blob(4 * MIB)
    other = BlobCache(scene.cache.folder, scene.cache.limit_bytes, time.time)
    claim = other.claim(blob.hash)
    assert isinstance(claim, Claim)
    reader = scene.reader(FILL_FOR_EPOCHS)
    with ThreadPoolExecutor(1) as pool:
        coming = pool.submit(reader.read_range, blob_key(blob.hash), ByteRange(MIB, 2 * MIB))
        time.sleep(0.1)
        part = other.begin(blob, eager=True, claim=claim)
        assert isinstance(part, Part)
        eventually(lambda: part.wishes() == [ByteRange(MIB, 2 * MIB)])
        assert not coming.done()
        part.write(MIB, memoryview(data)[MIB : 2 * MIB])
        assert coming.result(10) == data[MIB : 2 * MIB]
    assert part.wishes() == []
    assert scene.store.bytes_out == 0
    other.abandon(part)


def test_the_first_read_of_any_other_blob_does_not_wait(scene: Scene) -> None:
    blob, data = scene.blob(4 * MIB)
    part = begun(scene, blob)
    before = time.perf_counter()
    assert scene.reader(FILL_FOR_MEDIA).read_range(blob_key(blob.hash), ByteRange(0, MIB)) == data[:MIB]
    assert time.perf_counter() - before < 1
    scene.cache.abandon(part)


def test_what_others_wish_comes_before_what_nobody_waits_for(scene: Scene) -> None:
    blob, data = scene.blob(64 * MIB)
    gate = scene.store.hold(lambda span: span.size_bytes > 2 * MIB)
    owner, other = scene.reader(FILL_FOR_EPOCHS), scene.reader(FILL_FOR_EPOCHS)
    owner.read_range(blob_key(blob.hash), ByteRange(0, MIB))
    eventually(lambda: scene.files().get(f"{blob.hash}.map") is not None)
    wanted = ByteRange(60 * MIB, 61 * MIB)
    assert other.read_range(blob_key(blob.hash), wanted) == data[wanted.start : wanted.end]
    assert not gate.is_set(), "all that nobody waits for stands still"
    gate.set()
    eventually(lambda: scene.cache.is_entry(blob.hash))
    assert scene.store.bytes_out == 64 * MIB


def test_many_claimed_blobs_begin_although_few_are_filled_at_once(scene: Scene) -> None:
    gate = scene.store.hold(lambda span: span.size_bytes > MIB)
    reader = scene.reader(FILL_FOR_EPOCHS)
    blobs = [scene.blob(4 * MIB, number)[0] for number in range(20)]
    for blob in blobs:
        reader.read_range(blob_key(blob.hash), ByteRange(0, MIB))
    eventually(lambda: sum(name.endswith(".map") for name in scene.files()) == 20)
    phases = [record.phase for record in reader._filler.board]
    assert phases.count(Phase.FILLING) == 8
    gate.set()
    eventually(lambda: scene.cache.stats().entries == 20)
    assert scene.store.bytes_out == 20 * 4 * MIB, "also what was read before there was a part is kept"


def test_a_damaged_part_of_others_is_not_asked_again(scene: Scene) -> None:
    blob, data = scene.blob(4 * MIB)
    part = begun(scene, blob)
    part.write(0, memoryview(noise(9, MIB)))
    reader, key = scene.reader(FILL_FOR_EPOCHS), blob_key(blob.hash)
    assert reader.read_range(key, ByteRange(0, 1000)) == noise(9, MIB)[:1000]
    assert reader.invalidate(key) is True
    assert reader.read_range(key, ByteRange(0, 1000)) == data[:1000]
    scene.cache.abandon(part)


@pytest.mark.parametrize("step", ["stat", "read"])
def test_a_claim_does_not_outlive_a_store_that_fails(scene: Scene, monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    blob, data = scene.blob(4 * MIB)
    reader, key = scene.reader(FILL_FOR_EPOCHS), blob_key(blob.hash)

    def refuse(*arguments: object) -> object:
        raise StoreUnavailableError("not today")

    with monkeypatch.context() as patch:
        if step == "stat":
            patch.setattr(scene.store, "stat", refuse)
        else:
            patch.setattr(scene.store, "before", refuse)
        with pytest.raises(StoreUnavailableError) if step == "read" else nullcontext():
            reader.read_range(key, ByteRange(0, MIB))
        eventually(lambda: scene.counters.snapshot().failed_fills == 1)
        assert scene.files() == {}
    assert reader.read_range(key, ByteRange(0, MIB)) == data[:MIB]


def test_threads_that_meet_one_damaged_copy_all_read_again(scene: Scene) -> None:
    blob, _ = scene.blob(MIB)
    reader, key = scene.reader(FILL_FOR_MEDIA), blob_key(blob.hash)
    assert reader.fill(blob) is Filled.FETCHED
    everybody_has_read = threading.Barrier(4)

    def meet() -> bool:
        everybody_has_read.wait(10)
        return reader.invalidate(key)

    with ThreadPoolExecutor(4) as pool:
        said = [coming.result() for coming in [pool.submit(meet) for _ in range(4)]]
    assert said == [True] * 4
    assert [reader.invalidate(key) for _ in range(2)] == [True, False], (
        "once for each thread, then the store is to blame"
    )


def test_filling_on_purpose_takes_the_place_of_what_only_collects(scene: Scene) -> None:
    """Two connections of one program: one has begun to scan, and the other warms."""
    blob, data = scene.blob(4 * MIB)
    other = BlobCache(scene.cache.folder, scene.cache.limit_bytes, time.time)
    part = other.begin(blob, eager=False, filling=False)
    assert isinstance(part, Part)
    part.write(0, memoryview(data)[:MIB])
    assert scene.reader(FILL_EAGERLY).fill(blob) is Filled.FETCHED
    part.write(MIB, memoryview(data)[MIB:])
    assert part.read(ByteRange(0, 100)) == data[:100]
    assert other.commit(part, part.hashes()[1]) is False
    assert scene.cache.verify() == []
    assert scene.cache.is_entry(blob.hash)


SIZE = 10 * CACHE_UNIT_BYTES + 77
SPANS = st.tuples(st.integers(0, SIZE), st.integers(0, SIZE)).map(lambda ends: ByteRange(min(ends), max(ends)))


@given(st.lists(SPANS, max_size=8), SPANS)
@settings(max_examples=60, deadline=None)
def test_what_is_taken_from_others_is_what_they_wrote(
    tmp_path_factory: pytest.TempPathFactory, written: list[ByteRange], wanted: ByteRange
) -> None:
    data = noise(1, SIZE)
    cache = BlobCache(tmp_path_factory.mktemp("cache"), 100 * MIB, time.time)
    blob = Blob("ab" * 32, SIZE)
    part = cache.begin(blob, eager=True)
    assert isinstance(part, Part)
    there = bytearray(SIZE)
    for span in written:
        part.write(span.start, memoryview(data)[span.start : span.end])
        there[span.start : span.end] = b"\1" * span.size_bytes
    found = cache.elsewhere(blob.hash)
    assert found is not None
    taken = found.take([wanted])
    if taken is not None:
        assert taken[0] == data[wanted.start : wanted.end]
    units = range(wanted.start // CACHE_UNIT_BYTES, -(-wanted.end // CACHE_UNIT_BYTES)) if wanted.size_bytes else ()
    assert (taken is not None) == all(
        all(there[unit * CACHE_UNIT_BYTES : (unit + 1) * CACHE_UNIT_BYTES]) for unit in units
    ), "no less than whole units"
    assert found.wish([wanted], SIZE)
    for gap in part.wishes():
        assert not any(there[gap.start : gap.end])
    cache.abandon(part)
    assert found.look() is None
    assert found.take([ByteRange(0, 1)]) is None
    assert [name for _, _, names in os.walk(cache.folder) for name in names] == ["ledger"]


def test_a_part_that_was_emptied_under_a_reader_gives_nothing(scene: Scene) -> None:
    blob, data = scene.blob(4 * MIB)
    part = begun(scene, blob)
    part.write(0, memoryview(data))
    found = scene.cache.elsewhere(blob.hash)
    assert found is not None
    assert found.take([ByteRange(0, MIB)]) is not None
    part.handle.unlock()  # as if its process had been killed
    again = begun(scene, blob)
    assert found.take([ByteRange(0, MIB)]) is None
    scene.cache.abandon(again)


def test_members_read_in_any_order_share_what_a_stranger_fills(scene: Scene) -> None:
    """Readers that do not know one another, as in two libraries of one program."""
    blob, data = scene.blob(8 * MIB)
    scene.store.before = lambda span: time.sleep(span.size_bytes / 100e6)
    readers = [scene.reader(FILL_FOR_EPOCHS) for _ in range(3)]
    with ThreadPoolExecutor(3) as pool:
        list(pool.map(lambda at: read_members(readers[at], blob, data, members(8 * MIB, at, READ)), range(3)))
    assert scene.store.bytes_out == 8 * MIB
