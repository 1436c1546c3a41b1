"""If these fail, the cache serves bytes that nobody checked, or takes more of the disk than it was given."""

from __future__ import annotations

import os
import shutil
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from tests.storage.cache.scenes import Clock, Scene, noise, write_entry
from warpdata.errors import CorruptError, StorageError
from warpdata.limits import CACHE_IDLE_S, CACHE_OPEN_ENTRIES, CACHE_REST_S, CACHE_TOUCH_S, CACHE_UNUSED_PIN_S, MIB
from warpdata.primitives.hashing import Blob, sha256_hex
from warpdata.storage import ByteRange
from warpdata.storage.cache import BlobCache, CacheStats, Collected, Refusal, entries
from warpdata.storage.cache.dir_scan import Survey, survey
from warpdata.storage.cache.entries import Entry
from warpdata.storage.cache.eviction import Room
from warpdata.storage.cache.layout import Places
from warpdata.storage.cache.locks import Handle
from warpdata.storage.cache.partial import TRAILER_BYTES, Part
from warpdata.storage.cache.quota import Account, Ledger

DATA = noise(1, 10_000)
DIGEST = sha256_hex(DATA)


def small(folder: Path, limit_bytes: int, clock: Clock | None = None) -> BlobCache:
    return BlobCache(folder / "cache", limit_bytes, clock or Clock())


def total(cache: BlobCache) -> int | None:
    with Ledger(cache.folder / "blobs" / "ledger").locked() as account:
        return account.total_bytes


# Entries


def test_an_entry_is_two_files(scene: Scene) -> None:
    write_entry(scene.cache, DATA)
    folder = scene.shelves / DIGEST[:2]
    assert scene.files() == {DIGEST: len(DATA), f"{DIGEST}.ok": (folder / f"{DIGEST}.ok").stat().st_size}
    assert (folder / DIGEST).read_bytes() == DATA
    entry = scene.cache.find(DIGEST)
    assert entry is not None
    assert entry.view == DATA
    assert entry.is_whole()
    assert entry.path == folder / DIGEST


@pytest.mark.parametrize("missing", ["", ".ok"])
def test_half_an_entry_is_none(scene: Scene, missing: str) -> None:
    write_entry(scene.cache, DATA)
    (scene.shelves / DIGEST[:2] / f"{DIGEST}{missing}").unlink()
    assert scene.cache.find(DIGEST) is None
    assert not scene.cache.is_entry(DIGEST)


@pytest.mark.parametrize("change", ["longer", "shorter", "record of another", "record cut"])
def test_an_entry_that_does_not_fit_its_record_is_none(scene: Scene, change: str) -> None:
    write_entry(scene.cache, DATA)
    path = scene.shelves / DIGEST[:2] / DIGEST
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
        shutil.copyfile(scene.shelves / other.hash[:2] / f"{other.hash}.ok", record)
    assert scene.cache.find(DIGEST) is None
    before, there = total(scene.cache), path.stat().st_size
    assert before is not None
    assert write_entry(scene.cache, DATA) is not None, "it is filled again over what is there"
    assert total(scene.cache) == before + len(DATA) - there
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


def test_bytes_live_longer_than_the_entry(scene: Scene) -> None:
    write_entry(scene.cache, DATA)
    entry = scene.cache.find(DIGEST)
    assert entry is not None
    piece = entry.slice(ByteRange(5, 5000))
    del entry
    assert scene.cache.drop(DIGEST)
    assert piece == DATA[5:5000]
    assert scene.files() == {}
    assert total(scene.cache) == 0


def test_rot_is_found_when_looked_for_and_dropped(scene: Scene) -> None:
    write_entry(scene.cache, DATA)
    path = scene.shelves / DIGEST[:2] / DIGEST
    path.write_bytes(DATA[:-1] + bytes([DATA[-1] ^ 1]))
    assert scene.cache.find(DIGEST) is not None
    assert scene.cache.find_whole(DIGEST) is None
    assert scene.cache.find(DIGEST) is None
    assert scene.counters.snapshot().healed == 1
    assert scene.files() == {}


def test_the_whole_is_checked_once(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    write_entry(scene.cache, DATA)
    looks: list[Entry] = []

    def look(entry: Entry) -> bool:
        looks.append(entry)
        return True

    monkeypatch.setattr(Entry, "is_whole", look)
    for _ in range(3):
        assert scene.cache.find_whole(DIGEST) is not None
        scene.cache.opened.release(0)  # the pin may go, what was learned stays
    assert len(looks) == 1
    keep_inode = (scene.shelves / DIGEST[:2] / DIGEST).open("rb")
    scene.cache.drop(DIGEST)
    write_entry(scene.cache, DATA)
    keep_inode.close()
    assert scene.cache.find_whole(DIGEST) is not None
    assert len(looks) == 2, "another file is another matter"


def test_a_path_that_leads_nowhere_is_not_handed_out(scene: Scene) -> None:
    """Another process may have found the entry damaged and dropped it, while this one still had it open."""
    write_entry(scene.cache, DATA)
    assert scene.cache.find_whole(DIGEST) is not None
    other = BlobCache(scene.cache.folder, 1000 * MIB, scene.clock)
    assert other.drop(DIGEST)
    assert scene.cache.find(DIGEST) is not None, "bytes that are mapped can be read on"
    assert scene.cache.find_whole(DIGEST) is None
    assert scene.cache.find(DIGEST) is None
    write_entry(other, DATA)
    assert scene.cache.find(DIGEST) is not None
    assert other.drop(DIGEST)
    assert scene.cache.drop(DIGEST) is True, "what was remembered was nearer than the store"
    assert scene.cache.drop(DIGEST) is False


# Filling


def test_bytes_are_synced_before_they_have_a_name(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[str] = []
    replace, name = Path.replace, {scene.shelves / DIGEST[:2]: "folder"}

    def sync(fd: int) -> None:
        path = Path(f"/proc/self/fd/{fd}").readlink()
        steps.append(f"sync {name.get(path, path.suffix or 'data')}")

    def rename(self: Path, target: Path) -> Path:
        steps.append(f"name {target.suffix or 'data'}")
        return replace(self, target)

    monkeypatch.setattr(os, "fsync", sync)
    monkeypatch.setattr(Path, "replace", rename)
    write_entry(scene.cache, DATA)
    assert steps == ["sync .part", "name .ok", "name data", "sync data", "sync folder"]


def test_nobody_sees_a_part(scene: Scene) -> None:
    part = scene.cache.begin(Blob(DIGEST, len(DATA)), eager=True)
    assert isinstance(part, Part)
    part.write(0, memoryview(DATA))
    assert part.is_complete
    assert scene.cache.find(DIGEST) is None
    assert scene.files() == {f"{DIGEST}.part": len(DATA) + TRAILER_BYTES}
    assert scene.cache.begin(Blob(DIGEST, len(DATA)), eager=True) is Refusal.BUSY
    scene.cache.abandon(part)
    assert scene.files() == {}
    assert total(scene.cache) == 0
    assert scene.cache.commit(part, part.hashes()[1]) is False
    assert scene.files() == {}


def test_an_entry_can_be_used_and_evicted_at_once(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also while its filler still waits for the disk, so that nobody takes it for damaged."""
    seen: list[bool] = []

    def look(fd: int) -> None:
        if scene.cache.is_entry(DIGEST):
            seen.append(scene.cache.find(DIGEST) is not None and scene.cache.verify() == [])

    monkeypatch.setattr(os, "fsync", look)
    write_entry(scene.cache, DATA)
    assert seen == [True, True]


def test_pieces_in_any_order_make_the_whole(scene: Scene) -> None:
    part = scene.cache.begin(Blob(DIGEST, len(DATA)), eager=True)
    assert isinstance(part, Part)
    for start in (7000, 0, 2000, 6500):
        part.write(start, memoryview(DATA)[start : start + 3000])
        part.hash_ahead()
    assert part.covers(ByteRange(6500, 10_000))
    assert part.covers(ByteRange(0, 5000))
    assert not part.covers(ByteRange(4000, 6600))
    assert part.read(ByteRange(6600, 9000)) == DATA[6600:9000]
    part.write(5000, memoryview(DATA)[5000:6500])
    assert part.hashes()[0] == DIGEST
    scene.cache.abandon(part)


def test_what_was_written_is_not_written_over(scene: Scene) -> None:
    """Else a damaged second copy could replace bytes that were hashed already."""
    part = scene.cache.begin(Blob(DIGEST, len(DATA)), eager=True)
    assert isinstance(part, Part)
    part.write(0, memoryview(DATA)[:6000])
    part.hash_ahead()
    part.write(0, memoryview(bytes(3000)))
    part.write(5000, memoryview(bytes(1000) + DATA[6000:]))
    assert part.hashes()[0] == DIGEST
    scene.cache.commit(part, part.hashes()[1])
    assert (scene.shelves / DIGEST[:2] / DIGEST).read_bytes() == DATA


@pytest.mark.parametrize("garbage", [b"", b"x", bytes(10_000 + TRAILER_BYTES), bytes(50_000)])
def test_the_remains_of_a_killed_process_are_not_trusted(scene: Scene, garbage: bytes) -> None:
    path = scene.shelves / DIGEST[:2] / f"{DIGEST}.part"
    path.parent.mkdir(parents=True)
    path.write_bytes(garbage)
    assert write_entry(scene.cache, DATA) is not None
    assert total(scene.cache) == len(DATA)
    entry = scene.cache.find(DIGEST)
    assert entry is not None
    assert entry.view == DATA


def test_a_part_that_lost_its_name_makes_no_entry(scene: Scene) -> None:
    part = scene.cache.begin(Blob(DIGEST, len(DATA)), eager=True)
    assert isinstance(part, Part)
    part.write(0, memoryview(DATA))
    part.path.unlink()
    with pytest.raises(FileNotFoundError):
        scene.cache.commit(part, part.hashes()[1])
    assert scene.files() == {}


def test_somebody_who_only_looks_is_not_taken_for_a_filler(scene: Scene) -> None:
    path = scene.shelves / DIGEST[:2] / f"{DIGEST}.part"
    path.parent.mkdir(parents=True)
    path.touch()
    looker = Handle.open(path, os.O_RDONLY)
    assert looker.try_lock(exclusive=False)
    threading.Timer(0.1, looker.unlock).start()
    assert write_entry(scene.cache, DATA) is not None


def test_what_is_there_is_not_filled(scene: Scene) -> None:
    write_entry(scene.cache, DATA)
    assert scene.cache.begin(Blob(DIGEST, len(DATA)), eager=True) is Refusal.PRESENT
    assert f"{DIGEST}.part" not in scene.files()


def test_others_see_how_far_a_fill_is_but_not_a_collection(scene: Scene) -> None:
    part = scene.cache.begin(Blob(DIGEST, len(DATA)), eager=True, filling=False)
    assert isinstance(part, Part)
    part.write(0, memoryview(DATA)[:4000])
    assert scene.cache.progress_elsewhere(DIGEST) is None
    part.tell(filling=True)
    seen = scene.cache.progress_elsewhere(DIGEST)
    assert seen is not None
    assert (seen.size_bytes, seen.covered_bytes) == (10_000, 4000)
    part.write(5000, memoryview(DATA)[5000:])
    seen = scene.cache.progress_elsewhere(DIGEST)
    assert seen is not None
    assert seen.covered_bytes == 9000
    scene.cache.abandon(part)
    assert scene.cache.progress_elsewhere(DIGEST) is None


# The limit


def test_a_blob_larger_than_the_limit_is_never_begun(tmp_path: Path) -> None:
    cache = small(tmp_path, 10_000)
    assert cache.begin(Blob(DIGEST, 10_000), eager=True) is Refusal.TOO_LARGE
    assert not cache.folder.exists()
    assert BlobCache(tmp_path / "none", 0, Clock()).begin(Blob(DIGEST, 1), eager=True) is Refusal.TOO_LARGE


def test_the_least_recently_used_goes_first(tmp_path: Path) -> None:
    clock = Clock()
    cache = small(tmp_path, 50_000, clock)
    blobs = []
    for seed in range(4):
        blobs.append(write_entry(cache, noise(seed, 10_000)))
        clock.now += 100
    assert cache.find(blobs[0].hash) is not None  # type: ignore[union-attr]
    clock.now += 100
    write_entry(cache, noise(9, 15_000))
    there = [blob is not None and cache.is_entry(blob.hash) for blob in blobs]
    assert there == [True, False, False, True]


def test_room_is_made_for_more_than_one(tmp_path: Path) -> None:
    """Else each fill of a full cache would look at all entries again."""
    clock = Clock()
    cache = small(tmp_path, 1_000_000, clock)
    for seed in range(98):
        write_entry(cache, noise(seed, 10_000))
        clock.now += 1
    write_entry(cache, noise(1000, 30_000))
    assert cache.stats().bytes <= 900_000


def test_a_full_cache_is_surveyed_now_and_then_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    surveys: list[Places] = []

    def look(places: Places, *, tidy: bool) -> Survey:
        surveys.append(places)
        return survey(places, tidy=tidy)

    monkeypatch.setattr("warpdata.storage.cache.eviction.survey", look)
    clock = Clock()
    cache = small(tmp_path, 100_000, clock)
    for seed in range(200):
        write_entry(cache, noise(seed, 1000))
        clock.now += 1
    assert len(surveys) <= 1 + 200 // 9, "with each survey a tenth of the room becomes free"
    surveys.clear()
    for seed in range(200, 300):
        assert write_entry(cache, noise(seed, 20_000), eager=False) is None
    assert len(surveys) == 1, "what is in use stays in use for a while"
    assert not cache.has_hope(eager=False)
    clock.now += CACHE_REST_S
    assert cache.has_hope(eager=False)


def test_an_opportunist_evicts_only_what_is_idle(tmp_path: Path) -> None:
    clock = Clock()
    cache = small(tmp_path, 25_000, clock)
    first, second = write_entry(cache, noise(1, 10_000)), write_entry(cache, noise(2, 10_000))
    assert first is not None
    assert second is not None
    clock.now += CACHE_IDLE_S - 1
    assert cache.find(second.hash) is not None
    assert write_entry(cache, noise(3, 10_000), eager=False) is None
    assert cache.stats().entries == 2
    clock.now += CACHE_REST_S
    assert write_entry(cache, noise(3, 10_000), eager=False) is not None
    assert (cache.is_entry(first.hash), cache.is_entry(second.hash)) == (False, True)
    assert write_entry(cache, noise(4, 10_000), eager=True) is not None, "who is eager does not ask for how long"


def test_what_somebody_uses_stays(tmp_path: Path) -> None:
    clock = Clock()
    cache, other = small(tmp_path, 25_000, clock), small(tmp_path, 25_000, clock)
    kept, lost = write_entry(cache, noise(1, 10_000)), write_entry(cache, noise(2, 10_000))
    assert kept is not None
    assert lost is not None
    clock.now += 10_000
    entry = other.find(kept.hash)
    assert entry is not None
    os.utime(other.folder / "blobs" / kept.hash[:2] / f"{kept.hash}.ok", (0, 0))
    assert write_entry(cache, noise(3, 10_000)) is not None
    assert (cache.is_entry(kept.hash), cache.is_entry(lost.hash)) == (True, False)
    assert cache.clear() == Collected(entries=1, bytes=10_000, kept_pinned=1)
    assert entry.view == noise(1, 10_000)


def test_bytes_in_use_keep_the_pin_after_the_entry_was_forgotten(tmp_path: Path) -> None:
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
    assert other.clear() == Collected(1, 10_000, 0)


def test_room_that_is_promised_is_not_promised_again(tmp_path: Path) -> None:
    cache = small(tmp_path, 25_000)
    part = cache.begin(Blob(DIGEST, 10_000), eager=True)
    assert isinstance(part, Part)
    assert write_entry(cache, noise(2, 15_000)) is None
    cache.abandon(part)
    assert write_entry(cache, noise(2, 15_000)) is not None


def test_drift_is_corrected_when_room_is_needed(tmp_path: Path) -> None:
    """A killed process leaves a total that is too high, dead parts and lonely files."""
    cache = small(tmp_path, 25_000)
    kept = write_entry(cache, noise(1, 10_000))
    assert kept is not None
    with Ledger(cache.folder / "blobs" / "ledger").locked() as account:
        account.total_bytes = 24_999
    shelf = cache.folder / "blobs" / "ab"
    shelf.mkdir(exist_ok=True)
    for name in ("ab" * 32, "ab" * 31 + "ac.ok", "ab" * 31 + "ad.part", "ab" * 31 + "ae.new"):
        (shelf / name).write_bytes(bytes(9000))
    (shelf / "somebody else's").write_bytes(b"")
    assert write_entry(cache, noise(2, 10_000)) is not None
    assert cache.is_entry(kept.hash), "nothing had to be evicted"
    assert total(cache) == 20_000
    assert [path.name for path in shelf.iterdir()] == ["somebody else's"]


def test_a_total_that_was_lost_is_counted_anew(tmp_path: Path) -> None:
    clock = Clock()
    cache = small(tmp_path, 25_000, clock)
    write_entry(cache, noise(1, 10_000))
    (cache.folder / "blobs" / "ledger").write_bytes(b"damaged")
    clock.now += 1
    write_entry(cache, noise(2, 10_000))
    assert total(cache) == 20_000


def test_room_is_noted_before_it_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process may be killed in between; then the total is too high, and never too low."""
    cache = small(tmp_path, 25_000)
    ftruncate = os.ftruncate
    seen: list[bytes] = []

    def look(fd: int, size: int) -> None:
        seen.append((cache.folder / "blobs" / "ledger").read_bytes())
        ftruncate(fd, size)

    write_entry(cache, noise(1, 1000))
    monkeypatch.setattr(os, "ftruncate", look)
    part = cache.begin(Blob(DIGEST, 5000), eager=True)
    assert isinstance(part, Part)
    assert [int(line.split()[1]) for line in seen] == [1000, 6000 + TRAILER_BYTES]
    cache.abandon(part)


# Pins


def test_few_entries_are_open_at_once(tmp_path: Path) -> None:
    clock = Clock()
    cache = small(tmp_path, MIB, clock)
    blobs = [write_entry(cache, noise(seed, 10)) for seed in range(CACHE_OPEN_ENTRIES + 10)]
    for blob in blobs:
        assert blob is not None
        assert cache.find(blob.hash) is not None
        clock.now += 0.01
        assert len(cache.opened.by_key) <= CACHE_OPEN_ENTRIES
    open_now = {key[-64:] for key in cache.opened.by_key}
    assert open_now == {blob.hash for blob in blobs[-len(open_now) :] if blob is not None}
    assert len(open_now) > CACHE_OPEN_ENTRIES * 3 / 4
    clock.now += CACHE_UNUSED_PIN_S + 1
    assert blobs[0] is not None
    assert cache.find(blobs[0].hash) is not None
    assert len(cache.opened.by_key) == 1, "what was not used for a minute is let go"


def test_use_is_noted_on_disk_once_a_minute(scene: Scene) -> None:
    clock = scene.clock
    assert isinstance(clock, Clock)
    write_entry(scene.cache, DATA)
    record = scene.shelves / DIGEST[:2] / f"{DIGEST}.ok"
    begun = clock.now
    seen = set()
    for _ in range(13):
        assert scene.cache.find(DIGEST) is not None
        seen.add(record.stat().st_mtime - begun)
        clock.now += CACHE_TOUCH_S / 4
    assert seen == {0, CACHE_TOUCH_S, 2 * CACHE_TOUCH_S, 3 * CACHE_TOUCH_S}
    assert scene.cache.find(DIGEST) is not None
    scene.cache.opened.release(0)
    assert record.stat().st_mtime == clock.now, "and when it is let go"


def test_an_entry_that_is_just_being_evicted_is_absent(scene: Scene) -> None:
    write_entry(scene.cache, DATA)
    evictor = Handle.open(scene.shelves / DIGEST[:2] / DIGEST, os.O_RDWR)
    assert evictor.try_lock(exclusive=True)
    assert scene.cache.find(DIGEST) is None
    assert scene.cache.verify() == [], "which is no damage"
    evictor.close()
    assert scene.cache.find(DIGEST) is not None


# What people ask


def test_stats_of_nothing(tmp_path: Path) -> None:
    cache = small(tmp_path, 500)
    assert cache.stats() == CacheStats(0, 0, 500, 0, 0)
    assert cache.clear() == Collected(0, 0, 0)
    assert cache.verify() == []
    assert not cache.folder.exists()


def test_stats_count_entries_and_parts(scene: Scene) -> None:
    write_entry(scene.cache, DATA)
    part = scene.cache.begin(Blob(sha256_hex(b"other"), 77), eager=True)
    assert isinstance(part, Part)
    assert scene.cache.stats() == CacheStats(1, len(DATA), 1000 * MIB, 1, 77 + TRAILER_BYTES)
    scene.cache.abandon(part)


def test_collect_stops_at_the_limit_asked_for(tmp_path: Path) -> None:
    clock = Clock()
    cache = small(tmp_path, MIB, clock)
    for seed in range(10):
        write_entry(cache, noise(seed, 1000))
        clock.now += 1
    assert cache.collect(20_000) == Collected(0, 0, 0)
    assert cache.collect(6500) == Collected(4, 4000, 0)
    assert total(cache) == 6000
    assert cache.counters.snapshot().evicted_bytes == 4000


def test_verify_finds_and_drops_what_is_damaged(scene: Scene) -> None:
    blobs = [write_entry(scene.cache, noise(seed, 1000 + seed)) for seed in range(5)]
    paths = [scene.shelves / blob.hash[:2] / blob.hash for blob in blobs if blob is not None]
    paths[1].write_bytes(noise(77, 1001))
    os.truncate(paths[2], 10)
    paths[3].with_name(paths[3].name + ".ok").write_bytes(b"damaged")
    watched: list[int] = []
    problems = scene.cache.verify(watched.append)
    assert sorted(problem.digest for problem in problems) == sorted(path.name for path in paths[1:4])
    assert all(problem.fact for problem in problems)
    assert sum(watched) == 1000 + 1001 + 1004
    assert scene.cache.stats().entries == 2
    assert scene.cache.verify() == []


def test_an_entry_that_is_opened_while_it_is_dropped_is_not_kept(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else those who found it damaged would be given the same bytes again."""
    blob = write_entry(scene.cache, noise(1, 1000))
    assert blob is not None
    remove = Room.remove

    def opened_before(room: Room, account: Account, digest: str) -> bool:
        assert scene.cache.find(digest) is not None
        return remove(room, account, digest)

    with monkeypatch.context() as patch:
        patch.setattr(Room, "remove", opened_before)
        assert scene.cache.drop(blob.hash)
    assert scene.cache.find(blob.hash) is None


def test_an_entry_that_is_dropped_while_it_is_opened_is_not_kept(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    blob = write_entry(scene.cache, noise(1, 1000))
    assert blob is not None
    open_entry = entries.open_entry

    def dropped_after(*given: Any) -> Entry | None:
        entry = open_entry(*given)
        assert scene.cache.drop(blob.hash)
        return entry

    with monkeypatch.context() as patch:
        patch.setattr(entries, "open_entry", dropped_after)
        assert scene.cache.find(blob.hash) is None
    assert scene.cache.find(blob.hash) is None


def test_a_folder_that_can_not_be_looked_at_is_an_error_to_those_who_ask(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    cache = BlobCache(tmp_path / "file" / "cache", MIB, Clock())
    for ask in (cache.stats, cache.verify, lambda: BlobCache(tmp_path / "file", MIB, Clock()).clear()):
        with pytest.raises(StorageError) as caught:
            ask()
        assert str(tmp_path / "file") in caught.value.message
        assert caught.value.hint


def test_looking_is_quick_among_many(tmp_path: Path) -> None:
    """Not a benchmark: only that nothing grows with the number of entries."""
    cache = small(tmp_path, 100 * MIB)
    blobs = [write_entry(cache, noise(seed, 20)) for seed in range(300)]
    begun = time.perf_counter()
    for blob in blobs:
        assert blob is not None
        assert cache.find(blob.hash) is not None
    assert (time.perf_counter() - begun) / 300 < 0.01
