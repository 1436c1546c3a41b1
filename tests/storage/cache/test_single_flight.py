"""If these fail, two jobs on one machine fetch the same bytes twice, or one of them hangs with the other."""

from __future__ import annotations

import json
import signal
import subprocess
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path

import pytest

from tests.storage.cache.scenes import (
    Scene,
    eventually,
    members,
    noise,
    open_partial,
    read_members,
    source_of,
    start_python,
    write_range,
)
from warpdata.errors import StoreUnavailableError
from warpdata.limits import KIB, MIB
from warpdata.primitives.hashing import Blob, blob_key
from warpdata.storage import ByteRange
from warpdata.storage.cache import BlobCache, FetchPolicy, Filled
from warpdata.storage.cache.partial import PartialBlob

FETCHER = "warpdata.storage.cache.fetcher"
READ = 256 * KIB

JOB = """
import json, os, sys, time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random
from tests.storage.cache.scenes import *
from warpdata.storage.cache import *
from warpdata.storage.cache import fetcher
from warpdata.primitives.hashing import *
directory, size, count, limit, seed, stall_s = Path(sys.argv[1]), *map(int, sys.argv[2:7])
fetcher._STALL_S = float(stall_s)  # a busy machine is not a stalled fetch
os.fsync = lambda fd: None
scene = Scene(directory, limit_bytes=limit, clock=time.time)
scene.store.before = lambda span: time.sleep(0.005 + span.size_bytes / 100e6)
reader = scene.reader(FetchPolicy.EPOCHS)
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

Jobs = list[subprocess.Popen[str]]


def start_jobs(scene: Scene, size: int, count: int, jobs: int, *, limit: int = 1000 * MIB, stall_s: int = 60) -> Jobs:
    """Start processes that read all blobs at the same time, each in its own order."""
    for number in range(count):
        scene.blob(size, number)
    started = [start_python(JOB, scene.directory, size, count, limit, seed, stall_s) for seed in range(jobs)]
    for job in started:
        assert job.stdout is not None
        assert job.stdout.readline() == "ready\n", job.communicate()[1]
    for job in started:
        assert job.stdin is not None
        job.stdin.write("go\n")
        job.stdin.flush()
    return started


def fetched_by(job: subprocess.Popen[str]) -> int:
    out, err = job.communicate(timeout=120)
    assert (job.returncode, err) == (0, "")
    return int(json.loads(out))


def assert_clean(scene: Scene) -> None:
    assert [name for name in scene.files() if name.endswith((".part", ".map", ".new"))] == []
    assert scene.cache.verify() == []


@pytest.mark.parametrize(("jobs", "count", "size"), [(2, 1, 16 * MIB), (2, 12, 3 * MIB), (4, 12, 3 * MIB)])
def test_jobs_at_once_fetch_each_byte_once(tmp_path: Path, jobs: int, count: int, size: int) -> None:
    scene = Scene(tmp_path, clock=time.time)
    fetched = [fetched_by(job) for job in start_jobs(scene, size, count, jobs)]
    assert count * size <= sum(fetched) <= 1.05 * count * size, fetched
    assert scene.cache.stats().entries == count
    assert_clean(scene)


@pytest.mark.parametrize("after_s", [0.0, 0.05, 0.15, 0.3])
def test_a_job_goes_on_when_another_is_killed(tmp_path: Path, after_s: float) -> None:
    scene = Scene(tmp_path, clock=time.time)
    victim, survivor = start_jobs(scene, 2 * MIB, 12, 2)
    time.sleep(after_s)
    victim.kill()
    victim.communicate(timeout=10)
    begun = time.perf_counter()
    assert fetched_by(survivor) <= 12 * 2 * MIB * 1.05
    assert time.perf_counter() - begun < 30, "claims of a killed process end at once"
    scene.cache.collect(1000 * MIB)  # a scan removes what the killed process left
    assert_clean(scene)


def test_a_job_goes_on_when_another_is_stopped(tmp_path: Path) -> None:
    scene = Scene(tmp_path, clock=time.time)
    stopped, other = start_jobs(scene, 4 * MIB, 12, 2, stall_s=1)
    eventually(lambda: scene.cache.stats().parts > 0)
    time.sleep(0.1)
    stopped.send_signal(signal.SIGSTOP)
    try:
        _, errors = other.communicate(timeout=120)
        assert other.returncode == 0
        assert errors == "" or "is bypassed" in errors, "the job may have been stopped while it held the quota"
    finally:
        stopped.send_signal(signal.SIGCONT)
    fetched_by(stopped)
    assert_clean(scene)


def test_jobs_share_a_cache_that_is_too_small(tmp_path: Path) -> None:
    limit = 8 * MIB
    scene = Scene(tmp_path, limit_bytes=limit, clock=time.time)
    jobs = start_jobs(scene, 2 * MIB, 8, 2, limit=limit)
    while any(job.poll() is None for job in jobs):
        assert sum(size for name, size in scene.files().items() if len(name) == 64 or ".part" in name) <= limit
        time.sleep(0.01)
    for job in jobs:
        fetched_by(job)
    assert_clean(scene)


# Two readers of one process have separate views, as two processes have


def other_view(scene: Scene, blob: Blob) -> PartialBlob:
    other = BlobCache(scene.cache.directory, scene.cache.limit_bytes, time.time)
    return open_partial(other, blob, source_of(scene.store))


def test_a_read_waits_for_what_another_process_fetches(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"{FETCHER}._STALL_S", 30.0)
    blob, data = scene.blob(4 * MIB)
    other = other_view(scene, blob)
    claimed = other.claim([ByteRange(0, 4 * MIB)])
    reader = scene.reader(FetchPolicy.EPOCHS)
    with ThreadPoolExecutor(1) as pool:
        late = pool.submit(reader.read_range, blob_key(blob.hash), ByteRange(MIB, 2 * MIB))
        eventually(lambda: scene.counters.snapshot().waits == 1)
        assert not late.done()
        other.write(ByteRange(0, 2 * MIB), memoryview(data)[: 2 * MIB])
        assert late.result(10) == data[MIB : 2 * MIB]
    assert scene.store.bytes_out == 0
    assert scene.store.counts()["stat"] == 0, "the other process knows the size"
    other.release(claimed)
    scene.cache.abandon(other)


def test_a_read_fetches_what_another_process_has_not_claimed(scene: Scene) -> None:
    blob, data = scene.blob(4 * MIB)
    other = other_view(scene, blob)
    assert other.claim([ByteRange(0, MIB)])
    begun = time.perf_counter()
    reader = scene.reader(FetchPolicy.TABLES)
    assert reader.read_range(blob_key(blob.hash), ByteRange(MIB, 2 * MIB)) == data[MIB : 2 * MIB]
    assert time.perf_counter() - begun < 3
    assert other.missing([ByteRange(MIB, 2 * MIB)]) == [], "and the other process can use it"
    scene.cache.abandon(other)


def test_a_read_does_not_wait_long_for_a_stalled_process(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"{FETCHER}._STALL_S", 0.3)
    blob, data = scene.blob(4 * MIB)
    other = other_view(scene, blob)
    assert other.claim([ByteRange(0, 4 * MIB)])
    begun = time.perf_counter()
    read_members(scene.reader(FetchPolicy.EPOCHS), blob, data, members(4 * MIB, 1)[:40])
    assert time.perf_counter() - begun < 5
    assert scene.counters.snapshot().waits == 1
    scene.cache.abandon(other)


def test_a_blob_is_finished_when_another_process_is_killed(scene: Scene) -> None:
    blob, data = scene.blob(4 * MIB)
    other = other_view(scene, blob)
    assert other.claim([ByteRange(0, 2 * MIB)])
    reader = scene.reader(FetchPolicy.EPOCHS)
    assert reader.read_range(blob_key(blob.hash), ByteRange(3 * MIB, 4 * MIB)) == data[3 * MIB :]
    time.sleep(0.1)
    assert not scene.cache.contains(blob.hash)
    other.data.close()  # as by the end of its process
    other.map.close()
    eventually(lambda: scene.cache.contains(blob.hash))
    assert scene.store.bytes_out == 4 * MIB


def test_an_entry_of_another_process_is_found_while_waiting(scene: Scene) -> None:
    blob, data = scene.blob(4 * MIB)
    other = other_view(scene, blob)
    claimed = other.claim([ByteRange(0, 4 * MIB)])
    reader = scene.reader(FetchPolicy.EPOCHS)
    with ThreadPoolExecutor(1) as pool:
        late = pool.submit(reader.read_range, blob_key(blob.hash), ByteRange(MIB, 2 * MIB))
        eventually(lambda: scene.counters.snapshot().waits == 1)
        assert other.begin_commit()
        other.write(claimed[0], memoryview(data))
        other.release(claimed)
        assert scene.cache.commit(other, other.hashes()[1])
        assert late.result(10) == data[MIB : 2 * MIB]
    assert scene.store.bytes_out == 0


def test_many_blobs_are_open_although_few_are_fetched_at_once(scene: Scene) -> None:
    gate = scene.store.hold(lambda span: span.start > 0)
    reader = scene.reader(FetchPolicy.EPOCHS)
    blobs = [scene.blob(4 * MIB, number)[0] for number in range(20)]
    for blob in blobs:
        reader.read_range(blob_key(blob.hash), ByteRange(0, MIB))
    assert scene.cache.stats().parts == 20
    gate.set()
    eventually(lambda: scene.cache.stats().entries == 20, 60)
    assert scene.store.bytes_out == 20 * 4 * MIB


def test_corrupt_bytes_of_another_process_are_dropped(scene: Scene) -> None:
    blob, data = scene.blob(4 * MIB)
    other = other_view(scene, blob)
    write_range(other, noise(9, 4 * MIB), 0, MIB)
    reader, key = scene.reader(FetchPolicy.TABLES), blob_key(blob.hash)
    span = ByteRange(0, 100 * KIB)
    assert reader.read_range(key, span) == noise(9, 4 * MIB)[: 100 * KIB]
    assert reader.invalidate(key) is True
    assert reader.read_range(key, span) == data[: 100 * KIB]
    scene.cache.abandon(other)


def test_bytes_of_a_corrupt_store_do_not_reach_readers_of_another(scene: Scene) -> None:
    """Both stores have the blob. Unverified bytes are shared only between readers of the same store."""
    blob, data = scene.blob(4 * MIB)
    other = Scene(scene.directory / "other")
    other.blob(4 * MIB)
    other.cache = scene.cache
    other.store.distort = lambda span, found: memoryview(bytes(len(found)))
    key, span = blob_key(blob.hash), ByteRange(0, MIB)
    assert other.reader(FetchPolicy.TABLES).read_range(key, span) != data[:MIB]
    assert scene.reader(FetchPolicy.TABLES).read_range(key, span) == data[:MIB]
    other.close()


@pytest.mark.parametrize("step", ["stat", "read"])
def test_a_failing_store_leaves_no_partial_blob(scene: Scene, monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    blob, data = scene.blob(4 * MIB)
    reader, key = scene.reader(FetchPolicy.EPOCHS), blob_key(blob.hash)

    def refuse(*arguments: object) -> object:
        raise StoreUnavailableError("not today")

    with monkeypatch.context() as patch:
        patch.setattr(scene.store, "stat" if step == "stat" else "before", refuse)
        with pytest.raises(StoreUnavailableError) if step == "read" else nullcontext():
            reader.read_range(key, ByteRange(0, MIB))
        assert scene.files() == {}
    assert scene.counters.snapshot().failed_fills == (step == "stat")
    assert reader.read_range(key, ByteRange(0, MIB)) == data[:MIB]


def test_threads_that_meet_one_corrupt_copy_all_read_again(scene: Scene) -> None:
    blob, _ = scene.blob(MIB)
    reader, key = scene.reader(FetchPolicy.MEDIA), blob_key(blob.hash)
    assert reader.fill(blob) is Filled.FETCHED
    all_have_read = threading.Barrier(4)

    def meet() -> bool:
        all_have_read.wait(10)
        return reader.invalidate(key)

    with ThreadPoolExecutor(4) as pool:
        answers = [done.result() for done in [pool.submit(meet) for _ in range(4)]]
    assert answers == [True] * 4
    assert [reader.invalidate(key) for _ in range(2)] == [True, False], "once for each thread, then the store is wrong"


def test_independent_readers_fetch_each_byte_once(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """Readers that do not know of each other, as in two libraries of one program."""
    monkeypatch.setattr(f"{FETCHER}._STALL_S", 30.0)
    blob, data = scene.blob(8 * MIB)
    scene.store.before = lambda span: time.sleep(span.size_bytes / 100e6)
    readers = [scene.reader(FetchPolicy.EPOCHS) for _ in range(3)]
    with ThreadPoolExecutor(3) as pool:
        list(pool.map(lambda at: read_members(readers[at], blob, data, members(8 * MIB, at, READ)), range(3)))
    assert scene.store.bytes_out == 8 * MIB
