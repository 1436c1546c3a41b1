"""If these fail, processes that share a cache ruin it for one another: too full, too slow, or wrong."""

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
    eventually,
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
from warpdata.storage.cache import FILL_FOR_MEDIA, Filled
from warpdata.storage.cache.quota import Ledger

OPENING = """
import json, os, sys, threading, time
from pathlib import Path
from random import Random
from tests.storage.cache.scenes import *
from warpdata.storage.cache import *
from warpdata.primitives.hashing import *
from warpdata.storage import ByteRange
"""


def finish(processes: list[subprocess.Popen[str]]) -> list[str]:
    """What each printed; all must have ended well and in silence."""
    out = []
    for process in processes:
        printed, complaints = process.communicate(timeout=60)
        assert (process.returncode, complaints) == (0, "")
        out.append(printed)
    return out


# One cold blob, many readers

READ_ALL = (
    OPENING
    + """
import warpdata.storage.cache.miss
warpdata.storage.cache.miss.CACHE_STALL_S = 30.0  # a busy machine is not a store that hangs
folder, digest, size, seed = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
scene = Scene(folder, clock=time.time)
scene.store.before = lambda span: time.sleep(0.001 + span.size_bytes / 400e6)
reader, data = scene.reader(FILL_FOR_MEDIA), noise(0, size)
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
    assert scene.cache.is_entry(blob.hash)
    assert scene.cache.verify() == []


# The limit

FILL_MANY = (
    OPENING
    + """
folder, seed = Path(sys.argv[1]), int(sys.argv[2])
os.fsync = lambda fd: None
cache = BlobCache(folder / "cache", 1_000_000, time.time)
rng, kept = Random(seed), 0
for turn in range(120):
    data = noise(rng.randrange(300), rng.choice([1000, 30_000, 90_000]))
    kept += write_entry(cache, data, eager=rng.random() < 0.8) is not None
    entry = cache.find(sha256_hex(data))
    assert entry is None or entry.view == data
print(kept)
"""
)


def test_the_limit_is_kept_by_all_together(tmp_path: Path) -> None:
    scene = Scene(tmp_path, limit_bytes=1_000_000)
    processes = [start_python(FILL_MANY, tmp_path, seed) for seed in range(4)]
    ledger, highest, looks = Ledger(scene.shelves / "ledger"), 0, 0
    while any(process.poll() is None for process in processes):
        if not scene.shelves.exists():
            continue
        with ledger.locked() as account:
            sizes = sum(size for name, size in scene.files().items() if not name.endswith((".ok", ".new", ".map")))
            if account.total_bytes is not None:
                assert sizes <= account.total_bytes
        highest, looks = max(highest, sizes), looks + 1
        time.sleep(0.005)
    kept = [int(out) for out in finish(processes)]
    assert looks > 5
    assert 500_000 < highest <= 1_000_000
    assert sum(kept) > 100
    assert scene.cache.verify() == []
    assert scene.cache.stats().parts == 0


# Death

DIE_FILLING = (
    OPENING
    + """
folder, digest, size = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
scene = Scene(folder, clock=time.time)
fetched = []
def pause(span):
    fetched.append(span)
    if len(fetched) > 2:
        print("filling\\n" if len(fetched) == 3 else "", end="", flush=True)
        time.sleep(60)
scene.store.before = pause
scene.reader(FILL_EAGERLY).fill(Blob(digest, size))
"""
)


def test_what_a_killed_process_leaves_is_not_trusted_and_not_in_the_way(tmp_path: Path) -> None:
    scene = Scene(tmp_path, clock=time.time)
    blob, data = scene.blob(40 * MIB)
    process = start_python(DIE_FILLING, tmp_path, blob.hash, 40 * MIB)
    assert process.stdout is not None
    assert process.stdout.readline() == "filling\n"
    eventually(lambda: scene.cache.progress_elsewhere(blob.hash) is not None)
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=10)
    assert f"{blob.hash}.part" in scene.files()
    assert scene.cache.find(blob.hash) is None
    assert scene.cache.progress_elsewhere(blob.hash) is None
    reader = scene.reader(FILL_FOR_MEDIA)
    read_members(reader, blob, data, members(40 * MIB, 1)[:20])
    assert reader.fill(blob) in (Filled.FETCHED, Filled.PRESENT), "the reads may have filled it already"
    assert (scene.shelves / blob.hash[:2] / blob.hash).read_bytes() == data
    with Ledger(scene.shelves / "ledger").locked() as account:
        assert account.total_bytes == 40 * MIB, "and its room was given back"
    scene.close()


# Pins

HOLD = (
    OPENING
    + """
scene = Scene(Path(sys.argv[1]), clock=time.time)
data = noise(int(sys.argv[3]), 100_000)
reader, key = scene.reader(FILL_FOR_MEDIA), blob_key(sys.argv[2])
piece = reader.read_range(key, ByteRange(5, 50_000))
print("holding", flush=True)
sys.stdin.readline()
assert piece == data[5:50_000]
for _ in range(100):
    assert reader.read_range(key, ByteRange(70_000, 70_010)) == data[70_000:70_010]
assert scene.store.counts() == {}, scene.store.counts()
"""
)


def test_what_another_process_reads_is_not_evicted(tmp_path: Path) -> None:
    scene = Scene(tmp_path, clock=time.time)
    held, loose = write_entry(scene.cache, noise(1, 100_000)), write_entry(scene.cache, noise(2, 100_000))
    assert held is not None
    assert loose is not None
    process = start_python(HOLD, tmp_path, held.hash, 1)
    assert process.stdout is not None
    assert process.stdout.readline() == "holding\n"
    done = scene.cache.clear()
    assert (done.entries, done.kept_pinned) == (1, 1)
    assert (scene.cache.is_entry(held.hash), scene.cache.is_entry(loose.hash)) == (True, False)
    process.communicate("done\n", timeout=20)
    assert process.returncode == 0
    assert scene.cache.clear().entries == 1, "pins go with their process"


def test_reads_go_on_when_an_entry_is_removed_under_them(tmp_path: Path) -> None:
    scene = Scene(tmp_path, clock=time.time)
    held = write_entry(scene.cache, noise(1, 100_000))
    assert held is not None
    process = start_python(HOLD, tmp_path, held.hash, 1)
    assert process.stdout is not None
    assert process.stdout.readline() == "holding\n"
    assert scene.cache.drop(held.hash)
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
reader = scene.reader(FILL_EAGERLY)
reader.fill(small)
piece = reader.read_range(blob_key(small.hash), ByteRange(0, 10))
gate = threading.Event()
scene.store.before = lambda span: gate.wait(30) if span.size_bytes > 4_000_000 else None
reader.prefetch([blob])
eventually(lambda: scene.cache.stats().parts == 1)

def child():
    files = [os.readlink(path) for path in Path("/proc/self/fd").iterdir() if path.is_symlink()]
    assert not [path for path in files if path.endswith((".part", "ledger"))], files
    assert reader._filler.board.find(blob.hash) is None
    assert piece == little[:10]
    for _ in range(3):
        read_members(reader, small, little, members(50_000, 1))
    assert scene.counters.snapshot().hits > 0
    read_members(reader, other, more, members(2_000_000, 1)[:9])
    assert reader.fill(other) in (Filled.FETCHED, Filled.PRESENT)
    assert f"{blob.hash}.part" in scene.files(), "the parent's part is the parent's"
    assert scene.cache.progress_elsewhere(blob.hash) is not None
    reader.close()

import warnings
warnings.simplefilter("ignore", DeprecationWarning)  # forking with threads around is what is tried here
context = multiprocessing.get_context("fork")
children = [context.Process(target=child) for _ in range(3)]
for each in children: each.start()
for each in children: each.join(30)
assert [each.exitcode for each in children] == [0, 0, 0], [each.exitcode for each in children]
gate.set()
eventually(lambda: scene.cache.is_entry(blob.hash))
read_members(reader, blob, data, members(len(data), 1)[:20])
assert scene.cache.verify() == []
reader.close()
del piece
eventually(lambda: scene.cache.clear().kept_pinned == 0)
assert scene.files() == {}, scene.files()
print("well")
"""
)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="nothing forks here")
def test_a_forked_child_uses_neither_threads_nor_locks_of_its_parent(tmp_path: Path) -> None:
    assert run_python(FORK, tmp_path) == "well\n"


# The end

END = (
    OPENING
    + """
scene = Scene(Path(sys.argv[1]), clock=time.time)
blob, data = scene.blob(24 * 1024 * 1024)
reader = scene.reader(FILL_EAGERLY)
how = sys.argv[2]
if how == "hanging":
    scene.store.before = lambda span: time.sleep(30) if span.size_bytes > 4_000_000 else None
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
def test_a_process_ends_in_silence_with_a_fill_under_way(tmp_path: Path, how: str) -> None:
    begun = time.perf_counter()
    assert run_python(END, tmp_path, how, patience_s=25) == ""
    assert time.perf_counter() - begun < 20
    assert [name for name in Scene(tmp_path).files() if name.endswith(".part")] == []


def test_importing_starts_nothing(tmp_path: Path) -> None:
    code = "import threading, warpdata.storage.cache, os; print(threading.active_count(), os.listdir('.'))"
    assert run_python(f"import os; os.chdir({str(tmp_path)!r}); {code}") == "1 []\n"


# Many threads and many processes do the same


def test_threads_of_one_process_are_waited_for_like_others(tmp_path: Path) -> None:
    """Two readers that do not know one another, as in two libraries of one program."""
    scene = Scene(tmp_path, clock=time.time)
    size = 16 * MIB
    blob, data = scene.blob(size)
    scene.store.before = lambda span: time.sleep(span.size_bytes / 200e6)
    readers = [scene.reader(FILL_FOR_MEDIA) for _ in range(3)]
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
