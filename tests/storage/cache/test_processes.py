"""If these fail, processes that share a cache break it for each other: too full, too slow, or wrong."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
import time
from pathlib import Path

import pytest

from tests.storage.cache.scenes import (
    Scene,
    members,
    noise,
    read_members,
    run_python,
    start_python,
    write_entry,
)
from warpdata.limits import KIB, MIB
from warpdata.primitives.hashing import blob_key
from warpdata.storage import ByteRange
from warpdata.storage.cache import FetchPolicy, Filled
from warpdata.storage.cache.quota import Quota

OPENING = """
import json, os, sys, threading, time
from pathlib import Path
from random import Random
from tests.storage.cache.scenes import *
from warpdata.storage.cache import *
from warpdata.primitives.hashing import *
from warpdata.storage import ByteRange
from warpdata.storage.cache.quota import Quota
"""


def finish(processes: list[subprocess.Popen[str]]) -> list[str]:
    """Return the output of each. All must succeed without a message."""
    out = []
    for process in processes:
        output, errors = process.communicate(timeout=60)
        assert (process.returncode, errors) == (0, "")
        out.append(output)
    return out


# One cold blob, many readers

READ_ALL = (
    OPENING
    + """
import warpdata.storage.cache.fetcher
warpdata.storage.cache.fetcher._STALL_S = 60.0  # a busy machine is not a stalled fetch
directory, digest, size, seed = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
scene = Scene(directory, clock=time.time)
scene.store.before = lambda span: time.sleep(0.001 + span.size_bytes / 400e6)
reader, data = scene.reader(FetchPolicy.MEDIA), noise(0, size)
print("ready", flush=True)
sys.stdin.readline()
read_members(reader, Blob(digest, size), data, members(size, seed))
reader.close()
print(json.dumps(scene.store.bytes_out))
"""
)


@pytest.mark.parametrize("count", [1, 8])
def test_each_byte_of_a_cold_blob_leaves_the_store_about_once(tmp_path: Path, count: int) -> None:
    scene = Scene(tmp_path)
    size = 32 * MIB
    blob, _ = scene.blob(size)
    processes = [start_python(READ_ALL, tmp_path, blob.hash, size, seed) for seed in range(count)]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    fetched = [json.loads(out) for out in finish(processes)]
    assert sum(fetched) <= 1.1 * size, fetched
    assert scene.cache.contains(blob.hash)
    assert scene.cache.verify() == []


# Limit

FILL_MANY = (
    OPENING
    + """
directory, seed = Path(sys.argv[1]), int(sys.argv[2])
os.fsync = lambda fd: None
cache = BlobCache(directory / "cache", 1_000_000, time.time)
scene, quota = Scene(directory), Quota(directory / "cache" / "blobs" / "ledger")
rng, kept, highest = Random(seed), 0, 0
for turn in range(120):
    data = noise(rng.randrange(300), rng.choice([1000, 30_000, 90_000]))
    kept += write_entry(cache, data, eager=rng.random() < 0.8) is not None
    entry = cache.find(sha256_hex(data))
    assert entry is None or entry.view == data
    if turn % 5 == 0:
        with quota.transaction() as transaction:
            sizes = sum(size for name, size in scene.files().items() if not name.endswith((".ok", ".new", ".map")))
            assert transaction.total_bytes is None or sizes <= transaction.total_bytes
        highest = max(highest, sizes)
print(json.dumps([kept, highest]))
"""
)


def test_all_processes_together_keep_the_limit(tmp_path: Path) -> None:
    """Each process looks at the files of all of them, so the number of looks does not depend on the machine."""
    scene = Scene(tmp_path, limit_bytes=1_000_000)
    processes = [start_python(FILL_MANY, tmp_path, seed) for seed in range(4)]
    kept, highest = zip(*map(json.loads, finish(processes)), strict=True)
    assert 500_000 < max(highest) <= 1_000_000
    assert sum(kept) > 100
    assert scene.cache.verify() == []
    assert scene.cache.stats().parts == 0


# Killed processes

DIE_FILLING = (
    OPENING
    + """
directory, digest, size = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
scene = Scene(directory, clock=time.time)
fetched = []
def pause(span):
    fetched.append(span)
    if len(fetched) > 2:
        print("filling\\n" if len(fetched) == 3 else "", end="", flush=True)
        time.sleep(60)
scene.store.before = pause
scene.reader(FetchPolicy.EAGER).fill(Blob(digest, size))
"""
)


def test_files_of_a_killed_process_are_not_used(tmp_path: Path) -> None:
    scene = Scene(tmp_path, clock=time.time)
    blob, data = scene.blob(40 * MIB)
    process = start_python(DIE_FILLING, tmp_path, blob.hash, 40 * MIB)
    assert process.stdout is not None
    assert process.stdout.readline() == "filling\n"
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=10)
    assert scene.has_partial(blob)
    assert scene.cache.find(blob.hash) is None
    reader = scene.reader(FetchPolicy.MEDIA)
    read_members(reader, blob, data, members(40 * MIB, 1)[:20])
    assert reader.fill(blob) in (Filled.FETCHED, Filled.PRESENT), "the reads may have filled it"
    assert (scene.blobs / blob.hash[:2] / blob.hash).read_bytes() == data
    with Quota(scene.blobs / "ledger").transaction() as quota:
        assert quota.total_bytes == 40 * MIB, "the space of the killed process is free"
    scene.close()


# Pins

HOLD = (
    OPENING
    + """
scene = Scene(Path(sys.argv[1]), clock=time.time)
data = noise(int(sys.argv[3]), 100_000)
reader, key = scene.reader(FetchPolicy.MEDIA), blob_key(sys.argv[2])
piece = reader.read_range(key, ByteRange(5, 50_000))
print("holding", flush=True)
sys.stdin.readline()
assert piece == data[5:50_000]
for _ in range(100):
    assert reader.read_range(key, ByteRange(70_000, 70_010)) == data[70_000:70_010]
assert scene.store.counts() == {}, scene.store.counts()
"""
)


def test_entries_in_use_by_another_process_are_not_evicted(tmp_path: Path) -> None:
    scene = Scene(tmp_path, clock=time.time)
    held, loose = write_entry(scene.cache, noise(1, 100_000)), write_entry(scene.cache, noise(2, 100_000))
    assert held is not None
    assert loose is not None
    process = start_python(HOLD, tmp_path, held.hash, 1)
    assert process.stdout is not None
    assert process.stdout.readline() == "holding\n"
    done = scene.cache.clear()
    assert (done.entries, done.kept_pinned) == (1, 1)
    assert (scene.cache.contains(held.hash), scene.cache.contains(loose.hash)) == (True, False)
    process.communicate("done\n", timeout=20)
    assert process.returncode == 0
    assert scene.cache.clear().entries == 1, "pins end with their process"


def test_reads_go_on_when_another_process_removes_the_entry(tmp_path: Path) -> None:
    scene = Scene(tmp_path, clock=time.time)
    held = write_entry(scene.cache, noise(1, 100_000))
    assert held is not None
    process = start_python(HOLD, tmp_path, held.hash, 1)
    assert process.stdout is not None
    assert process.stdout.readline() == "holding\n"
    assert scene.cache.remove(held.hash)
    process.communicate("done\n", timeout=20)
    assert process.returncode == 0


# Forks

FORK = (
    OPENING
    + """
import multiprocessing
scene = Scene(Path(sys.argv[1]), clock=time.time)
blob, data = scene.blob(24 * 1024 * 1024)
other, more = scene.blob(2_000_000, 2)
small, little = scene.blob(50_000, 3)
reader = scene.reader(FetchPolicy.EAGER)
reader.fill(small)
piece = reader.read_range(blob_key(small.hash), ByteRange(0, 10))
gate = threading.Event()
scene.store.before = lambda span: gate.wait(30) if span.end > 2_000_000 else None
reader.prefetch([blob])
eventually(lambda: scene.cache.stats().parts == 1)

def child():
    files = [os.readlink(path) for path in Path("/proc/self/fd").iterdir() if path.is_symlink()]
    assert not [path for path in files if path.endswith((".part", ".map", "ledger"))], files
    assert blob.hash not in reader._fetcher._partials.states
    assert piece == little[:10]
    for _ in range(3):
        read_members(reader, small, little, members(50_000, 1))
    assert scene.counters.snapshot().hits > 0
    read_members(reader, other, more, members(2_000_000, 1)[:9])
    assert reader.fill(other) in (Filled.FETCHED, Filled.PRESENT)
    assert scene.has_partial(blob), "the parent still fetches it"
    reader.close()

import warnings
warnings.simplefilter("ignore", DeprecationWarning)  # the test forks a process with threads
context = multiprocessing.get_context("fork")
children = [context.Process(target=child) for _ in range(3)]
for each in children: each.start()
for each in children: each.join(30)
assert [each.exitcode for each in children] == [0, 0, 0], [each.exitcode for each in children]
gate.set()
eventually(lambda: scene.cache.contains(blob.hash))
read_members(reader, blob, data, members(len(data), 1)[:20])
assert scene.cache.verify() == []
reader.close()
del piece
eventually(lambda: scene.cache.clear().kept_pinned == 0)
assert scene.files() == {}, scene.files()
print("ok")
"""
)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
def test_a_forked_child_uses_neither_threads_nor_locks_of_its_parent(tmp_path: Path) -> None:
    assert run_python(FORK, tmp_path) == "ok\n"


# Exit

END = (
    OPENING
    + """
scene = Scene(Path(sys.argv[1]), clock=time.time)
blob, data = scene.blob(24 * 1024 * 1024)
reader = scene.reader(FetchPolicy.EAGER)
how = sys.argv[2]
if how == "hanging":
    scene.store.before = lambda span: time.sleep(30) if span.size_bytes > 100_000 else None
else:
    scene.store.before = lambda span: time.sleep(0.05)
reader.read_range(blob_key(blob.hash), ByteRange(0, 10))
eventually(lambda: scene.cache.stats().parts == 1)
scene.readers.clear()
if how == "raising":
    raise SystemExit(0)
"""
)


@pytest.mark.parametrize("how", ["busy", "hanging", "raising"])
def test_a_process_exits_without_messages_during_a_fetch(tmp_path: Path, how: str) -> None:
    begun = time.perf_counter()
    assert run_python(END, tmp_path, how, timeout_s=25) == ""
    assert time.perf_counter() - begun < 20
    assert [name for name in Scene(tmp_path).files() if name.endswith(".part")] == []


def test_an_import_starts_no_thread(tmp_path: Path) -> None:
    code = "import threading, warpdata.storage.cache, os; print(threading.active_count(), os.listdir('.'))"
    assert run_python(f"import os; os.chdir({str(tmp_path)!r}); {code}") == "1 []\n"


# Threads


def test_independent_readers_of_one_process_share_a_blob(tmp_path: Path) -> None:
    """Readers that do not know of each other, as in two libraries of one program."""
    scene = Scene(tmp_path, clock=time.time)
    size = 16 * MIB
    blob, data = scene.blob(size)
    scene.store.before = lambda span: time.sleep(span.size_bytes / 200e6)
    readers = [scene.reader(FetchPolicy.MEDIA) for _ in range(3)]
    threads = [
        threading.Thread(target=read_members, args=(reader, blob, data, members(size, seed)))
        for seed, reader in enumerate(readers)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert scene.store.bytes_out <= 1.1 * size
    assert scene.store.bytes_out >= size
    assert readers[0].read_range(blob_key(blob.hash), ByteRange(0, KIB)) == data[:KIB]
    scene.close()
