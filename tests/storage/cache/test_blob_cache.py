"""If these fail, the cache serves bytes that were never verified, or takes more of the disk than its limit."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path
from typing import Any

import pytest

from tests.storage.cache.scenes import Clock, Scene, noise, open_partial, write_entry, write_range
from warpdata.errors import CorruptError, StorageError
from warpdata.limits import MIB
from warpdata.primitives.hashing import Blob, sha256_hex
from warpdata.primitives.live_objects import LiveObjects
from warpdata.primitives.lock_file import LockFile
from warpdata.storage import ByteRange
from warpdata.storage.cache import BlobCache, CacheStats, EvictionResult, Refusal, entries
from warpdata.storage.cache.blob_cache import BACKOFF_S
from warpdata.storage.cache.entries import MAX_OPEN, PIN_S, TOUCH_S, CacheEntry
from warpdata.storage.cache.eviction import IDLE_S, CacheScan, LruEvictor, scan_cache
from warpdata.storage.cache.layout import CacheLayout
from warpdata.storage.cache.quota import Quota, QuotaTransaction

DATA = noise(1, 10_000)
DIGEST = sha256_hex(DATA)


def small(directory: Path, limit_bytes: int, clock: Clock | None = None) -> BlobCache:
    return BlobCache(directory / "cache", limit_bytes, clock or Clock())


def total(cache: BlobCache) -> int | None:
    with Quota(cache.directory / "blobs" / "ledger").transaction() as quota:
        return quota.total_bytes


# Entries


def test_an_entry_is_two_files(scene: Scene) -> None:
    write_entry(scene.cache, DATA)
    directory = scene.blobs / DIGEST[:2]
    assert scene.files() == {DIGEST: len(DATA), f"{DIGEST}.ok": (directory / f"{DIGEST}.ok").stat().st_size}
    assert (directory / DIGEST).read_bytes() == DATA
    entry = scene.cache.find(DIGEST)
    assert entry is not None
    assert entry.view == DATA
    assert entry.is_intact()
    assert entry.path == directory / DIGEST


@pytest.mark.parametrize("missing", ["", ".ok"])
def test_an_entry_needs_both_files(scene: Scene, missing: str) -> None:
    write_entry(scene.cache, DATA)
    (scene.blobs / DIGEST[:2] / f"{DIGEST}{missing}").unlink()
    assert scene.cache.find(DIGEST) is None
    assert not scene.cache.contains(DIGEST)


@pytest.mark.parametrize("change", ["longer", "shorter", "record of another", "record cut"])
def test_an_entry_must_match_its_record(scene: Scene, change: str) -> None:
    write_entry(scene.cache, DATA)
    path = scene.blobs / DIGEST[:2] / DIGEST
    record = path.with_name(f"{DIGEST}.ok")
    if change == "longer":
        path.write_bytes(DATA + b"x")
    elif change == "shorter":
        os.truncate(path, 9_999)
    elif change == "record cut":
        os.truncate(record, 20)
    else:
        other = write_entry(scene.cache, b"other")
        assert other is not None
        shutil.copyfile(scene.blobs / other.hash[:2] / f"{other.hash}.ok", record)
    assert scene.cache.find(DIGEST) is None
    before, size = total(scene.cache), path.stat().st_size
    assert before is not None
    assert write_entry(scene.cache, DATA) is not None, "the blob is filled again over the file"
    if change != "longer":  # a total that is lower than the files is counted again
        assert total(scene.cache) == before + len(DATA) - size
    entry = scene.cache.find(DIGEST)
    assert entry is not None
    assert entry.view == DATA


def test_the_empty_blob_is_an_entry(scene: Scene) -> None:
    write_entry(scene.cache, b"")
    entry = scene.cache.find(sha256_hex(b""))
    assert entry is not None
    assert bytes(entry.slice(ByteRange(0, 0))) == b""
    with pytest.raises(CorruptError):
        entry.slice(ByteRange(0, 1))


def test_views_outlive_the_entry(scene: Scene) -> None:
    write_entry(scene.cache, DATA)
    entry = scene.cache.find(DIGEST)
    assert entry is not None
    piece = entry.slice(ByteRange(5, 5000))
    del entry
    assert scene.cache.remove(DIGEST)
    assert piece == DATA[5:5000]
    assert scene.files() == {}
    assert total(scene.cache) == 0


def test_a_corrupt_entry_is_found_by_a_check_and_removed(scene: Scene) -> None:
    write_entry(scene.cache, DATA)
    path = scene.blobs / DIGEST[:2] / DIGEST
    path.write_bytes(DATA[:-1] + bytes([DATA[-1] ^ 1]))
    assert scene.cache.find(DIGEST) is not None
    assert scene.cache.find_intact(DIGEST) is None
    assert scene.cache.find(DIGEST) is None
    assert scene.counters.snapshot().healed == 1
    assert scene.files() == {}


def test_an_entry_is_checked_once(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    write_entry(scene.cache, DATA)
    checks: list[CacheEntry] = []

    def check(entry: CacheEntry) -> bool:
        checks.append(entry)
        return True

    monkeypatch.setattr(CacheEntry, "is_intact", check)
    for _ in range(3):
        assert scene.cache.find_intact(DIGEST) is not None
        scene.cache.opened.release(0)  # the check is remembered without the pin
    assert len(checks) == 1
    keep_inode = (scene.blobs / DIGEST[:2] / DIGEST).open("rb")
    scene.cache.remove(DIGEST)
    write_entry(scene.cache, DATA)
    keep_inode.close()
    assert scene.cache.find_intact(DIGEST) is not None
    assert len(checks) == 2, "another file is checked again"


def test_a_path_that_does_not_exist_is_not_returned(scene: Scene) -> None:
    """Another process may have removed the entry while this one had it open."""
    write_entry(scene.cache, DATA)
    assert scene.cache.find_intact(DIGEST) is not None
    other = BlobCache(scene.cache.directory, 1000 * MIB, scene.clock)
    assert other.remove(DIGEST)
    assert scene.cache.find(DIGEST) is not None, "mapped bytes stay readable"
    assert scene.cache.find_intact(DIGEST) is None
    assert scene.cache.find(DIGEST) is None
    write_entry(other, DATA)
    assert scene.cache.find(DIGEST) is not None
    assert other.remove(DIGEST)
    assert scene.cache.remove(DIGEST) is True, "an open entry counts as a copy"
    assert scene.cache.remove(DIGEST) is False


# Filling

SOURCE = "0" * 16
BLOB = Blob(DIGEST, len(DATA))


def test_bytes_are_synced_before_they_have_a_name(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[str] = []
    replace, name = Path.replace, {scene.blobs / DIGEST[:2]: "directory"}

    def sync(fd: int) -> None:
        path = Path(f"/proc/self/fd/{fd}").readlink()
        steps.append(f"sync {name.get(path, path.suffix or 'data')}")

    def rename(self: Path, target: Path) -> Path:
        steps.append(f"name {target.suffix or 'data'}")
        return replace(self, target)

    monkeypatch.setattr(os, "fsync", sync)
    monkeypatch.setattr(Path, "replace", rename)
    write_entry(scene.cache, DATA)
    assert steps == ["sync .part", "name .ok", "name data", "sync directory"]


def test_a_partial_blob_is_no_entry(scene: Scene) -> None:
    partial = open_partial(scene.cache, BLOB)
    write_range(partial, DATA, 0, len(DATA))
    assert partial.is_complete
    assert scene.cache.find(DIGEST) is None
    assert {name: size for name, size in scene.files().items() if name.endswith(".part")} == {
        f"{DIGEST}.{SOURCE}.part": len(DATA)
    }
    quick = partial.hashes()[1]
    scene.cache.abandon(partial)
    assert scene.files() == {}
    assert total(scene.cache) == 0
    assert scene.cache.commit(partial, quick) is False
    assert scene.files() == {}


def test_an_entry_can_be_used_and_evicted_at_once(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """Even while the process that commits it still waits for the disk."""
    seen: list[bool] = []

    def look(fd: int) -> None:
        if scene.cache.contains(DIGEST):
            seen.append(scene.cache.find(DIGEST) is not None and scene.cache.verify() == [])

    monkeypatch.setattr(os, "fsync", look)
    write_entry(scene.cache, DATA)
    assert seen == [True]


@pytest.mark.parametrize("garbage", [b"", b"x", bytes(10_000), bytes(50_000)])
@pytest.mark.parametrize("suffix", ["part", "map"])
def test_files_of_a_killed_process_are_not_trusted(scene: Scene, garbage: bytes, suffix: str) -> None:
    path = scene.path(DIGEST, f".{SOURCE}.{suffix}")
    path.parent.mkdir(parents=True)
    path.write_bytes(garbage)
    assert write_entry(scene.cache, DATA) is not None
    assert total(scene.cache) == len(DATA)
    entry = scene.cache.find(DIGEST)
    assert entry is not None
    assert entry.view == DATA


def test_space_of_a_killed_process_is_freed(scene: Scene) -> None:
    partial = open_partial(scene.cache, BLOB)
    write_range(partial, DATA, 0, len(DATA))
    partial.data.close()  # as by the end of its process
    partial.map.close()
    fresh = open_partial(scene.cache, BLOB)
    assert fresh.present_bytes() == 0, "unverified bytes of a killed process are not used"
    assert total(scene.cache) == len(DATA)
    scene.cache.abandon(fresh)
    assert total(scene.cache) == 0


def test_a_partial_blob_that_was_deleted_makes_no_entry(scene: Scene) -> None:
    partial = open_partial(scene.cache, BLOB)
    write_range(partial, DATA, 0, len(DATA))
    partial.paths.data.unlink()
    with pytest.raises(FileNotFoundError):
        scene.cache.commit(partial, partial.hashes()[1])
    scene.cache.abandon(partial)
    assert scene.files() == {}


def test_an_entry_is_not_filled_again(scene: Scene) -> None:
    write_entry(scene.cache, DATA)
    assert scene.cache.open_partial(DIGEST, SOURCE, len(DATA), eager=True) is Refusal.PRESENT
    assert len(scene.files()) == 2


def test_the_size_is_needed_unless_another_reader_knows_it(scene: Scene) -> None:
    assert scene.cache.open_partial(DIGEST, SOURCE, None, eager=True) is Refusal.UNKNOWN_SIZE
    assert scene.files() == {}
    first = open_partial(scene.cache, BLOB)
    second = scene.cache.open_partial(DIGEST, SOURCE, None, eager=True)
    assert not isinstance(second, Refusal)
    assert second.blob == BLOB
    assert scene.cache.open_partial(DIGEST, SOURCE, 77, eager=True) is Refusal.BUSY
    for partial in (first, second):
        scene.cache.abandon(partial)
    (scene.blobs / DIGEST[:2] / f"{DIGEST}.{SOURCE}.map").write_bytes(b"left")
    assert scene.cache.open_partial(DIGEST, SOURCE, None, eager=True) is Refusal.UNKNOWN_SIZE
    assert scene.files() == {}


# Limit


def test_a_blob_larger_than_the_limit_is_refused(tmp_path: Path) -> None:
    cache = small(tmp_path, 10_000)
    assert cache.open_partial(DIGEST, SOURCE, 10_001, eager=True) is Refusal.TOO_LARGE
    assert not cache.directory.exists()
    assert BlobCache(tmp_path / "none", 0, Clock()).open_partial(DIGEST, SOURCE, 1, eager=True) is Refusal.TOO_LARGE


def test_the_least_recently_used_goes_first(tmp_path: Path) -> None:
    clock = Clock()
    cache = small(tmp_path, 50_000, clock)
    blobs = []
    for seed in range(4):
        blobs.append(write_entry(cache, noise(seed, 10_000)))
        clock.now += 100
    assert cache.find(blobs[0].hash) is not None  # type: ignore[union-attr]
    clock.now += 100
    write_entry(cache, noise(9, 15_001))
    present = [blob is not None and cache.contains(blob.hash) for blob in blobs]
    assert present == [True, False, False, True]


def test_eviction_frees_space_for_more_than_one_blob(tmp_path: Path) -> None:
    """Otherwise each fill of a full cache would need a scan."""
    clock = Clock()
    cache = small(tmp_path, 1_000_000, clock)
    for seed in range(98):
        write_entry(cache, noise(seed, 10_000))
        clock.now += 1
    write_entry(cache, noise(1000, 30_000))
    assert cache.stats().bytes <= 900_000


def test_a_full_cache_is_scanned_rarely(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scans: list[CacheLayout] = []

    def scan(layout: CacheLayout, *, clean: bool) -> CacheScan:
        scans.append(layout)
        return scan_cache(layout, clean=clean)

    monkeypatch.setattr("warpdata.storage.cache.eviction.scan_cache", scan)
    clock = Clock()
    cache = small(tmp_path, 100_000, clock)
    for seed in range(200):
        write_entry(cache, noise(seed, 1000))
        clock.now += 1
    assert len(scans) <= 1 + 200 // 9, "each scan frees a tenth of the space"
    scans.clear()
    for seed in range(200, 300):
        assert write_entry(cache, noise(seed, 20_000), eager=False) is None
    assert len(scans) == 1, "a failed scan is not repeated at once"
    assert not cache.can_fill(eager=False)
    clock.now += BACKOFF_S
    assert cache.can_fill(eager=False)


def test_a_policy_that_is_not_eager_evicts_only_idle_entries(tmp_path: Path) -> None:
    clock = Clock()
    cache = small(tmp_path, 25_000, clock)
    first, second = write_entry(cache, noise(1, 10_000)), write_entry(cache, noise(2, 10_000))
    assert first is not None
    assert second is not None
    clock.now += IDLE_S - 1
    assert cache.find(second.hash) is not None
    assert write_entry(cache, noise(3, 10_000), eager=False) is None
    assert cache.stats().entries == 2
    clock.now += BACKOFF_S
    assert write_entry(cache, noise(3, 10_000), eager=False) is not None
    assert (cache.contains(first.hash), cache.contains(second.hash)) == (False, True)
    assert write_entry(cache, noise(4, 10_000), eager=True) is not None, "an eager fill evicts any unused entry"


def test_entries_in_use_are_not_evicted(tmp_path: Path) -> None:
    clock = Clock()
    cache, other = small(tmp_path, 25_000, clock), small(tmp_path, 25_000, clock)
    kept, lost = write_entry(cache, noise(1, 10_000)), write_entry(cache, noise(2, 10_000))
    assert kept is not None
    assert lost is not None
    clock.now += 10_000
    entry = other.find(kept.hash)
    assert entry is not None
    os.utime(other.directory / "blobs" / kept.hash[:2] / f"{kept.hash}.ok", (0, 0))
    assert write_entry(cache, noise(3, 10_000)) is not None
    assert (cache.contains(kept.hash), cache.contains(lost.hash)) == (True, False)
    assert cache.clear() == EvictionResult(entries=1, bytes=10_000, kept_pinned=1)
    assert entry.view == noise(1, 10_000)


def test_views_keep_the_pin_after_the_entry_was_closed(tmp_path: Path) -> None:
    cache, other = small(tmp_path, 25_000), small(tmp_path, 25_000)
    blob = write_entry(cache, DATA)
    assert blob is not None
    entry = cache.find(blob.hash)
    assert entry is not None
    piece = entry.slice(ByteRange(0, 10))
    del entry
    cache.opened.release(0)
    assert other.clear().kept_pinned == 1
    assert piece == DATA[:10]
    del piece
    assert other.clear() == EvictionResult(1, 10_000, 0)


def test_reserved_space_is_not_reserved_again(tmp_path: Path) -> None:
    cache = small(tmp_path, 25_000)
    partial = open_partial(cache, BLOB)
    assert write_entry(cache, noise(2, 15_001)) is None
    cache.abandon(partial)
    assert write_entry(cache, noise(2, 15_001)) is not None


def test_a_scan_corrects_the_total(tmp_path: Path) -> None:
    """A killed process leaves a total that is too high, partial blobs and orphaned files."""
    cache = small(tmp_path, 25_000)
    kept = write_entry(cache, noise(1, 10_000))
    assert kept is not None
    with Quota(cache.directory / "blobs" / "ledger").transaction() as quota:
        quota.total_bytes = 24_999
    shard = cache.directory / "blobs" / "ab"
    shard.mkdir(exist_ok=True)
    digest = "ab" * 32
    orphans = [digest, f"{digest[:-1]}c.ok", f"{digest[:-1]}d.{SOURCE}.part", f"{digest[:-1]}e.new", f"{digest}.part"]
    for name in [*orphans, f"{digest}.{SOURCE}.map", f"{digest}.map"]:
        (shard / name).write_bytes(bytes(9000))
    (shard / "unrelated").write_bytes(b"")
    assert write_entry(cache, noise(2, 10_000)) is not None
    assert cache.contains(kept.hash), "nothing had to be evicted"
    assert total(cache) == 20_000
    assert [path.name for path in shard.iterdir()] == ["unrelated"]


def test_a_lost_total_is_counted_again(tmp_path: Path) -> None:
    clock = Clock()
    cache = small(tmp_path, 25_000, clock)
    write_entry(cache, noise(1, 10_000))
    (cache.directory / "blobs" / "ledger").write_bytes(b"corrupt")
    clock.now += 1
    write_entry(cache, noise(2, 10_000))
    assert total(cache) == 20_000


def test_space_is_reserved_before_it_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process may be killed in between. The total is then too high, never too low."""
    cache = small(tmp_path, 25_000)
    ftruncate = os.ftruncate
    seen: list[bytes] = []

    def look(fd: int, size: int) -> None:
        seen.append((cache.directory / "blobs" / "ledger").read_bytes())
        ftruncate(fd, size)

    write_entry(cache, noise(1, 1000))
    monkeypatch.setattr(os, "ftruncate", look)
    partial = open_partial(cache, Blob(DIGEST, 5000))
    assert [int(line.split()[1]) for line in seen] == [6000] * len(seen)
    cache.abandon(partial)


# Pins


def test_few_entries_are_open_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The bound is that of the process, so caches that other tests have left must not count."""
    monkeypatch.setattr("warpdata.storage.cache.entries._all_opened", LiveObjects())
    clock = Clock()
    cache = small(tmp_path, MIB, clock)
    blobs = [write_entry(cache, noise(seed, 10)) for seed in range(MAX_OPEN + 10)]
    for blob in blobs:
        assert blob is not None
        assert cache.find(blob.hash) is not None
        clock.now += 0.01
        assert len(cache.opened.by_key) <= MAX_OPEN
    open_now = {key[-64:] for key in cache.opened.by_key}
    assert open_now == {blob.hash for blob in blobs[-len(open_now) :] if blob is not None}
    assert len(open_now) > MAX_OPEN * 3 / 4
    clock.now += PIN_S + 1
    assert blobs[0] is not None
    assert cache.find(blobs[0].hash) is not None
    assert len(cache.opened.by_key) == 1, "unused entries are closed after a minute"


def test_the_last_use_is_written_once_a_minute(scene: Scene) -> None:
    clock = scene.clock
    assert isinstance(clock, Clock)
    write_entry(scene.cache, DATA)
    record = scene.blobs / DIGEST[:2] / f"{DIGEST}.ok"
    begun = clock.now
    seen = set()
    for _ in range(13):
        assert scene.cache.find(DIGEST) is not None
        seen.add(record.stat().st_mtime - begun)
        clock.now += TOUCH_S / 4
    assert seen == {0, TOUCH_S, 2 * TOUCH_S, 3 * TOUCH_S}
    assert scene.cache.find(DIGEST) is not None
    scene.cache.opened.release(0)
    assert record.stat().st_mtime == clock.now, "and when the entry is closed"


def test_an_entry_that_is_being_evicted_is_absent(scene: Scene) -> None:
    write_entry(scene.cache, DATA)
    evictor = LockFile.open(scene.blobs / DIGEST[:2] / DIGEST, os.O_RDWR)
    assert evictor.try_lock(exclusive=True)
    assert scene.cache.find(DIGEST) is None
    assert scene.cache.verify() == [], "which is not corruption"
    evictor.close()
    assert scene.cache.find(DIGEST) is not None


# Maintenance


def test_stats_of_an_absent_cache(tmp_path: Path) -> None:
    cache = small(tmp_path, 500)
    assert cache.stats() == CacheStats(0, 0, 500, 0, 0)
    assert cache.clear() == EvictionResult(0, 0, 0)
    assert cache.verify() == []
    assert not cache.directory.exists()


def test_stats_count_entries_and_partial_blobs(scene: Scene) -> None:
    write_entry(scene.cache, DATA)
    partial = open_partial(scene.cache, Blob(sha256_hex(b"other"), 77))
    assert scene.cache.stats() == CacheStats(1, len(DATA), 1000 * MIB, 1, 77)
    scene.cache.abandon(partial)


def test_collect_stops_at_the_limit(tmp_path: Path) -> None:
    clock = Clock()
    cache = small(tmp_path, MIB, clock)
    for seed in range(10):
        write_entry(cache, noise(seed, 1000))
        clock.now += 1
    assert cache.collect(20_000) == EvictionResult(0, 0, 0)
    assert cache.collect(6500) == EvictionResult(4, 4000, 0)
    assert total(cache) == 6000
    assert cache.counters.snapshot().evicted_bytes == 4000


def test_verify_removes_corrupt_entries(scene: Scene) -> None:
    blobs = [write_entry(scene.cache, noise(seed, 1000 + seed)) for seed in range(5)]
    paths = [scene.blobs / blob.hash[:2] / blob.hash for blob in blobs if blob is not None]
    paths[1].write_bytes(noise(77, 1001))
    os.truncate(paths[2], 10)
    paths[3].with_name(paths[3].name + ".ok").write_bytes(b"corrupt")
    counted: list[int] = []
    problems = scene.cache.verify(counted.append)
    assert sorted(problem.digest for problem in problems) == sorted(path.name for path in paths[1:4])
    assert all(problem.fact for problem in problems)
    assert sum(counted) == 1000 + 1001 + 1004
    assert scene.cache.stats().entries == 2
    assert scene.cache.verify() == []


def test_an_entry_opened_during_its_removal_is_not_kept(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise a reader that found it corrupt would get the same bytes again."""
    blob = write_entry(scene.cache, noise(1, 1000))
    assert blob is not None
    remove = LruEvictor.remove

    def opened_before(evictor: LruEvictor, quota: QuotaTransaction, digest: str) -> bool:
        assert scene.cache.find(digest) is not None
        return remove(evictor, quota, digest)

    with monkeypatch.context() as patch:
        patch.setattr(LruEvictor, "remove", opened_before)
        assert scene.cache.remove(blob.hash)
    assert scene.cache.find(blob.hash) is None


def test_an_entry_removed_while_it_is_opened_is_not_kept(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    blob = write_entry(scene.cache, noise(1, 1000))
    assert blob is not None
    open_entry = entries.open_entry

    def removed_after(*given: Any) -> CacheEntry | None:
        entry = open_entry(*given)
        assert scene.cache.remove(blob.hash)
        return entry

    with monkeypatch.context() as patch:
        patch.setattr(entries, "open_entry", removed_after)
        assert scene.cache.find(blob.hash) is None
    assert scene.cache.find(blob.hash) is None


def test_maintenance_of_an_unusable_directory_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    cache = BlobCache(tmp_path / "file" / "cache", MIB, Clock())
    for operation in (cache.stats, cache.verify, lambda: BlobCache(tmp_path / "file", MIB, Clock()).clear()):
        with pytest.raises(StorageError) as caught:
            operation()
        assert str(tmp_path / "file") in caught.value.message
        assert caught.value.hint


def test_a_lookup_among_many_entries_is_fast(tmp_path: Path) -> None:
    """No benchmark: only that the cost does not grow with the number of entries."""
    cache = small(tmp_path, 100 * MIB)
    blobs = [write_entry(cache, noise(seed, 20)) for seed in range(300)]
    begun = time.perf_counter()
    for blob in blobs:
        assert blob is not None
        assert cache.find(blob.hash) is not None
    assert (time.perf_counter() - begun) / 300 < 0.01
