"""If these fail, a cached read returns other bytes than the store holds, or goes on returning damaged ones."""

from __future__ import annotations

import gc
import itertools
import logging
import shutil
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.storage.cache.scenes import Scene, eventually, members, noise, read_members
from warpdata.errors import BadInputError, CorruptError, LimitExceededError, ObjectNotFoundError
from warpdata.limits import KIB, MAX_SMALL_OBJECT_BYTES, MIB
from warpdata.primitives.hashing import Blob, blob_key, sha256_hex
from warpdata.storage import ByteRange, Reader
from warpdata.storage.cache import FILL_EAGERLY, FILL_FOR_MEDIA, FILL_FOR_TABLES, CachedReader, Filled, FillPolicy

POLICIES = [FILL_EAGERLY, FILL_FOR_MEDIA, FILL_FOR_TABLES, FillPolicy(3, 0.1, eager=False)]


def test_it_is_a_reader(scene: Scene) -> None:
    assert isinstance(scene.reader(FILL_EAGERLY), Reader)


# The fast path equals the slow one

SIZE = 300_000
SPANS = st.tuples(st.integers(0, SIZE), st.sampled_from([0, 1, 17, 5000, 40_000, SIZE])).map(
    lambda pair: ByteRange(pair[0], min(SIZE, pair[0] + pair[1]))
)
READS = st.one_of(
    st.tuples(st.just("ranges"), st.lists(SPANS, max_size=5), st.sampled_from([0, 1000, MIB])),
    st.tuples(st.sampled_from(["read", "stream", "path", "invalidate", "fill", "forget", "wait", "clear"])),
)
_fresh = itertools.count()


@settings(max_examples=60)
@given(policy=st.sampled_from(POLICIES), reads=st.lists(READS, max_size=25))
def test_whatever_is_read_equals_the_store(
    tmp_path_factory: pytest.TempPathFactory, policy: FillPolicy, reads: list[tuple[object, ...]]
) -> None:
    scene = Scene(tmp_path_factory.mktemp("equal"))
    try:
        blob, data = scene.blob(SIZE)
        reader, key = scene.reader(policy), blob_key(blob.hash)
        for act in reads:
            match act:
                case ("ranges", list() as spans, int() as gap):
                    found = reader.read_ranges(key, spans, gap_bytes=gap)
                    assert [bytes(part) for part in found] == [data[span.start : span.end] for span in spans]
                case ("read",):
                    assert reader.read(key).data == data
                case ("stream",):
                    assert b"".join(reader.stream(key)) == data
                case ("path",):
                    path = reader.local_path(key)
                    assert path is not None
                    assert path.read_bytes() == data
                case ("invalidate",):
                    reader.invalidate(key)
                case ("fill",):
                    assert reader.fill(blob) is not Filled.NO_ROOM
                case ("forget",):
                    scene.cache.opened.release(0)
                case ("clear",):
                    scene.cache.clear()
                case ("wait",):
                    threading.Event().wait(0.002)
        assert scene.counters.snapshot().failed_fills == 0
    finally:
        scene.close()
        shutil.rmtree(scene.cache.folder.parent)


@pytest.mark.parametrize("is_cached", [False, True])
def test_ranges_that_are_none_are_refused_alike(scene: Scene, is_cached: bool) -> None:
    blob, _ = scene.blob(1000)
    reader, key = scene.reader(FILL_FOR_MEDIA), blob_key(blob.hash)
    if is_cached:
        reader.fill(blob)
    with pytest.raises(CorruptError):
        reader.read_range(key, ByteRange(990, 1001))
    with pytest.raises(CorruptError):
        reader.read_ranges(key, [ByteRange(0, 5), ByteRange(2000, 2001)])
    for start, end in ((5, 4), (-1, 2)):
        with pytest.raises(BadInputError):
            reader.read_range(key, ByteRange(start, end))
    assert reader.read_ranges(key, []) == []
    assert bytes(reader.read_range(key, ByteRange(4, 4))) == b""


def test_other_objects_are_passed_on(scene: Scene) -> None:
    reader, store = scene.reader(FILL_EAGERLY), scene.store
    digest = sha256_hex(b"x")
    for key in ("datasets/a/latest.json", f"blobs/{digest}", f"other/{digest[:2]}/{digest[2:4]}/{digest}"):
        store.create(key, b"0123456789")
    store.clear()
    asked: dict[str, Callable[[Reader, str], object]] = {
        "read": lambda reader, key: reader.read(key),
        "read_if_changed": lambda reader, key: reader.read_if_changed(key, "tag"),
        "read_ranges": lambda reader, key: [bytes(part) for part in reader.read_ranges(key, [ByteRange(0, 2)])],
        "stream": lambda reader, key: b"".join(reader.stream(key)),
        "stat": lambda reader, key: reader.stat(key),
        "list_objects": lambda reader, key: list(reader.list_objects("")),
        "list_folders": lambda reader, key: reader.list_folders(""),
    }
    for name, ask in asked.items():
        for key in (info.key for info in [*store.list_objects("")]):
            store.clear()
            assert ask(reader, key) == ask(store, key)
            assert store.counts() == {name: 2}
            assert reader.invalidate(key) is False
    assert reader.url == store.url
    assert reader.local_path("datasets/a/latest.json") == store.local_path("datasets/a/latest.json")
    assert scene.files() == {}


def test_an_absent_blob_is_not_found(scene: Scene) -> None:
    reader, key = scene.reader(FILL_EAGERLY), blob_key(sha256_hex(b"never stored"))
    for _ in range(3):
        with pytest.raises(ObjectNotFoundError):
            reader.read_range(key, ByteRange(0, 1))
        with pytest.raises(ObjectNotFoundError):
            reader.read(key)
        with pytest.raises(ObjectNotFoundError):
            list(reader.stream(key))
    assert reader.local_path(key) is None


def test_whether_a_blob_is_in_the_store_is_asked_of_the_store(scene: Scene) -> None:
    """Somebody who asks may be about to not upload it."""
    blob, _ = scene.blob(1000)
    reader = scene.reader(FILL_EAGERLY)
    reader.fill(blob)
    scene.store.delete(blob_key(blob.hash))
    with pytest.raises(ObjectNotFoundError):
        reader.stat(blob_key(blob.hash))


# Hits


def test_a_hit_asks_nobody_and_copies_nothing(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    blob, data = scene.blob(100_000)
    reader, key = scene.reader(FILL_FOR_MEDIA), blob_key(blob.hash)
    reader.fill(blob)
    reader.read_range(key, ByteRange(0, 1))
    scene.store.clear()

    def no_system_call(*_: object) -> None:
        raise AssertionError("a hit called the system")

    for name in ("open", "stat", "pread", "utime"):
        monkeypatch.setattr(f"os.{name}", no_system_call)
    pieces = [reader.read_range(key, ByteRange(start, start + 100)) for start in range(0, 100_000, 1000)]
    monkeypatch.undo()
    assert [bytes(piece) for piece in pieces] == [data[start : start + 100] for start in range(0, 100_000, 1000)]
    assert len({id(piece.obj) for piece in pieces}) == 1, "all are views of one mapping"
    assert pieces[0].readonly
    assert scene.store.counts() == {}
    counts = scene.counters.snapshot()
    assert (counts.hits, counts.hit_bytes, counts.misses) == (101, 10_001, 0)


def test_an_entry_is_read_whole_and_streamed(scene: Scene) -> None:
    blob, data = scene.blob(9 * MIB)
    reader, key = scene.reader(FILL_FOR_MEDIA), blob_key(blob.hash)
    reader.fill(blob)
    scene.store.clear()
    assert reader.read(key).data == data
    assert b"".join(reader.stream(key)) == data
    assert scene.store.counts() == {}


def test_a_large_entry_is_not_read_whole(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    assert MAX_SMALL_OBJECT_BYTES == 64 * MIB
    monkeypatch.setattr("warpdata.storage.cache.reader.MAX_SMALL_OBJECT_BYTES", 100)
    blob, _ = scene.blob(101)
    reader = scene.reader(FILL_FOR_MEDIA)
    reader.fill(blob)
    with pytest.raises(LimitExceededError):
        reader.read(blob_key(blob.hash))


# Rot


@pytest.mark.parametrize("where", [0, 50_000, 99_999])
def test_what_is_distrusted_is_fetched_again_and_healed(scene: Scene, where: int) -> None:
    blob, data = scene.blob(100_000)
    reader, key, span = scene.reader(FILL_FOR_MEDIA), blob_key(blob.hash), ByteRange(where, where + 1)
    reader.fill(blob)
    path = scene.shelves / blob.hash[:2] / blob.hash
    with path.open("r+b") as file:
        file.seek(where)
        file.write(bytes([data[where] ^ 255]))
    assert reader.read_range(key, span) != data[where : where + 1], "bytes of a range are not verified here"
    assert reader.invalidate(key) is True
    assert reader.read_range(key, span) == data[where : where + 1]
    assert not path.exists()
    assert reader.invalidate(key) is False, "there is nothing nearer any more"
    assert scene.counters.snapshot().healed == 1
    assert reader.fill(blob) is Filled.FETCHED
    assert path.read_bytes() == data


@pytest.mark.parametrize("ask", ["local_path", "read", "stream"])
def test_rot_never_leaves_unseen(scene: Scene, ask: str) -> None:
    """Who gets a path or a whole does not come back to complain."""
    blob, data = scene.blob(100_000)
    reader, key = scene.reader(FILL_FOR_MEDIA), blob_key(blob.hash)
    reader.fill(blob)
    (scene.shelves / blob.hash[:2] / blob.hash).write_bytes(noise(5, 100_000))
    if ask == "local_path":
        assert reader.local_path(key) == scene.store.local_path(key)
    elif ask == "read":
        assert reader.read(key).data == data
    else:
        assert b"".join(reader.stream(key)) == data
    assert scene.counters.snapshot().healed == 1


def test_what_can_not_be_removed_is_not_used_again(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    blob, data = scene.blob(100_000)
    reader, key = scene.reader(FILL_FOR_MEDIA), blob_key(blob.hash)
    reader.fill(blob)
    (scene.shelves / blob.hash[:2] / blob.hash).write_bytes(noise(5, 100_000))

    def refuse(*_: object, **__: object) -> None:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(Path, "unlink", refuse)
    assert reader.invalidate(key) is True
    monkeypatch.undo()
    assert reader.read_range(key, ByteRange(0, 10)) == data[:10]


# Ends


def test_readers_of_a_family_share_what_they_have(scene: Scene) -> None:
    blob, data = scene.blob(100_000)
    media = scene.reader(FILL_FOR_MEDIA)
    tables = media.under(FILL_FOR_TABLES)
    assert (media.policy, tables.policy) == (FILL_FOR_MEDIA, FILL_FOR_TABLES)
    tables.read_range(blob_key(blob.hash), ByteRange(0, 80_000))
    eventually(lambda: scene.cache.is_entry(blob.hash))
    assert media.read_range(blob_key(blob.hash), ByteRange(5, 9)) == data[5:9]


def test_a_closed_reader_reads_on_and_fills_nothing(scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
    blob, data = scene.blob(100_000)
    reader = scene.reader(FILL_EAGERLY)
    with caplog.at_level(logging.DEBUG, "warpdata.storage.cache"):
        reader.close()
    assert "Counts(" in caplog.text
    read_members(reader, blob, data, members(100_000, 1, 10_000))
    reader.prefetch([blob])
    assert scene.files() == {}
    assert not [thread for thread in threading.enumerate() if thread.name == "warpdata-cache"]


@pytest.mark.parametrize("how", ["close", "forget"])
def test_an_unfinished_fill_leaves_nothing(scene: Scene, how: str) -> None:
    blob, _ = scene.blob(20 * MIB)
    reader: CachedReader | None = scene.reader(FILL_EAGERLY)
    assert reader is not None
    reader.read_range(blob_key(blob.hash), ByteRange(0, 10))
    eventually(lambda: f"{blob.hash}.part" in scene.files() or scene.cache.is_entry(blob.hash))
    scene.cache.drop(blob.hash)
    scene.store.open.clear()
    other, _ = scene.blob(20 * MIB, seed=2)
    reader.prefetch([other])
    eventually(lambda: f"{other.hash}.part" in scene.files())
    if how == "close":
        threading.Timer(0.2, scene.store.open.set).start()
        reader.close()
    else:
        scene.readers.clear()
        reader = None
        gc.collect()
        scene.store.open.set()
    eventually(lambda: not [name for name in scene.files() if name.endswith(".part")])
    assert not scene.cache.is_entry(other.hash)


@pytest.fixture
def crowd() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(8) as pool:
        yield pool


@pytest.mark.parametrize("policy", POLICIES)
def test_many_threads_see_the_same(scene: Scene, crowd: ThreadPoolExecutor, policy: FillPolicy) -> None:
    blobs = [scene.blob(2 * MIB + 7, seed) for seed in range(4)]
    reader = scene.reader(policy)

    def read(seed: int) -> None:
        rng = Random(seed)
        for _ in range(150):
            blob, data = blobs[rng.randrange(4)]
            start = rng.randrange(len(data))
            span = ByteRange(start, min(len(data), start + rng.choice([100, 10 * KIB, 600 * KIB])))
            assert reader.read_range(blob_key(blob.hash), span) == data[span.start : span.end]
            if rng.random() < 0.02:
                reader.invalidate(blob_key(blob.hash))
            if rng.random() < 0.02:
                scene.cache.clear()

    for done in [crowd.submit(read, seed) for seed in range(8)]:
        done.result()
    counts = scene.counters.snapshot()
    assert (counts.rejected, counts.failed_fills) == (0, 0)


def test_a_blob_that_was_evicted_is_filled_again(scene: Scene) -> None:
    blob, _ = scene.blob(100_000)
    reader = scene.reader(FILL_EAGERLY)
    for _ in range(3):
        reader.read_range(blob_key(blob.hash), ByteRange(0, 10))
        eventually(lambda: scene.cache.is_entry(blob.hash))
        eventually(lambda: scene.cache.clear().entries == 1)
    assert scene.counters.snapshot().fills == 3


def test_an_unknown_size_costs_one_look(scene: Scene) -> None:
    blob, data = scene.blob(3 * MIB)
    reader = scene.reader(FILL_FOR_MEDIA)
    read_members(reader, blob, data, members(3 * MIB, 3))
    eventually(lambda: scene.cache.is_entry(blob.hash))
    assert scene.store.counts()["stat"] == 1
    assert Blob(blob.hash, scene.files()[blob.hash]) == blob
