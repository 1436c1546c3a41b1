"""If these fail, a cached read returns other bytes than the store holds, or keeps returning corrupt ones."""

from __future__ import annotations

import gc
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
from warpdata.primitives.parallel import REQUEST_LIMIT
from warpdata.storage import ByteRange, Reader
from warpdata.storage.cache import CachedReader, FetchPolicy, Filled


def test_it_is_a_reader(scene: Scene) -> None:
    assert isinstance(scene.reader(FetchPolicy.EAGER), Reader)


# A cached read equals a read of the store

SIZE = 300_000
SPANS = st.tuples(st.integers(0, SIZE), st.sampled_from([0, 1, 17, 5000, 40_000, SIZE])).map(
    lambda pair: ByteRange(pair[0], min(SIZE, pair[0] + pair[1]))
)
READS = st.one_of(
    st.tuples(st.just("ranges"), st.lists(SPANS, max_size=5), st.sampled_from([0, 1000, MIB])),
    st.tuples(st.sampled_from(["read", "stream", "path", "invalidate", "fill", "forget", "wait", "clear"])),
)


@settings(max_examples=60)
@given(policy=st.sampled_from(FetchPolicy), reads=st.lists(READS, max_size=25))
def test_every_read_equals_the_store(
    tmp_path_factory: pytest.TempPathFactory, policy: FetchPolicy, reads: list[tuple[object, ...]]
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
        shutil.rmtree(scene.directory)


@pytest.mark.parametrize("is_cached", [False, True])
def test_invalid_ranges_are_refused_in_the_same_way(scene: Scene, is_cached: bool) -> None:
    blob, _ = scene.blob(1000)
    reader, key = scene.reader(FetchPolicy.MEDIA), blob_key(blob.hash)
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


def test_other_objects_come_from_the_store(scene: Scene) -> None:
    reader, store = scene.reader(FetchPolicy.EAGER), scene.store
    digest = sha256_hex(b"x")
    for key in ("datasets/a/latest.json", f"blobs/{digest}", f"other/{digest[:2]}/{digest[2:4]}/{digest}"):
        store.create(key, b"0123456789")
    store.clear()
    operations: dict[str, Callable[[Reader, str], object]] = {
        "read": lambda reader, key: reader.read(key),
        "read_if_changed": lambda reader, key: reader.read_if_changed(key, "tag"),
        "read_ranges": lambda reader, key: [bytes(part) for part in reader.read_ranges(key, [ByteRange(0, 2)])],
        "stream": lambda reader, key: b"".join(reader.stream(key)),
        "stat": lambda reader, key: reader.stat(key),
        "list_objects": lambda reader, key: list(reader.list_objects("")),
        "list_folders": lambda reader, key: reader.list_folders(""),
    }
    for name, ask in operations.items():
        for key in (info.key for info in [*store.list_objects("")]):
            store.clear()
            assert ask(reader, key) == ask(store, key)
            assert store.counts() == {name: 2}
            assert reader.invalidate(key) is False
    assert reader.url == store.url
    assert reader.local_path("datasets/a/latest.json") == store.local_path("datasets/a/latest.json")
    assert scene.files() == {}


def test_an_absent_blob_is_not_found(scene: Scene) -> None:
    reader, key = scene.reader(FetchPolicy.EAGER), blob_key(sha256_hex(b"never stored"))
    for _ in range(3):
        with pytest.raises(ObjectNotFoundError):
            reader.read_range(key, ByteRange(0, 1))
        with pytest.raises(ObjectNotFoundError):
            reader.read(key)
        with pytest.raises(ObjectNotFoundError):
            list(reader.stream(key))
    assert reader.local_path(key) is None


def test_stat_asks_the_store(scene: Scene) -> None:
    """An upload is skipped if the store has the blob, so the cache must not answer."""
    blob, _ = scene.blob(1000)
    reader = scene.reader(FetchPolicy.EAGER)
    reader.fill(blob)
    scene.store.delete(blob_key(blob.hash))
    with pytest.raises(ObjectNotFoundError):
        reader.stat(blob_key(blob.hash))


# Hits


def test_a_hit_makes_no_system_call_and_no_copy(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    blob, data = scene.blob(100_000)
    reader, key = scene.reader(FetchPolicy.MEDIA), blob_key(blob.hash)
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
    reader, key = scene.reader(FetchPolicy.MEDIA), blob_key(blob.hash)
    reader.fill(blob)
    scene.store.clear()
    assert reader.read(key).data == data
    assert b"".join(reader.stream(key)) == data
    assert scene.store.counts() == {}


def test_a_large_entry_is_not_read_whole(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    assert MAX_SMALL_OBJECT_BYTES == 64 * MIB
    monkeypatch.setattr("warpdata.storage.cache.reader.MAX_SMALL_OBJECT_BYTES", 100)
    blob, _ = scene.blob(101)
    reader = scene.reader(FetchPolicy.MEDIA)
    reader.fill(blob)
    with pytest.raises(LimitExceededError):
        reader.read(blob_key(blob.hash))


# Corruption


@pytest.mark.parametrize("where", [0, 50_000, 99_999])
def test_an_invalidated_entry_is_fetched_again(scene: Scene, where: int) -> None:
    blob, data = scene.blob(100_000)
    reader, key, span = scene.reader(FetchPolicy.MEDIA), blob_key(blob.hash), ByteRange(where, where + 1)
    reader.fill(blob)
    path = scene.blobs / blob.hash[:2] / blob.hash
    with path.open("r+b") as file:
        file.seek(where)
        file.write(bytes([data[where] ^ 255]))
    assert reader.read_range(key, span) != data[where : where + 1], "ranges are not verified here"
    assert reader.invalidate(key) is True
    assert reader.read_range(key, span) == data[where : where + 1]
    assert not path.exists()
    assert reader.invalidate(key) is False, "no copy is left"
    assert scene.counters.snapshot().healed == 1
    assert reader.fill(blob) is Filled.FETCHED
    assert path.read_bytes() == data


@pytest.mark.parametrize("ask", ["local_path", "read", "stream"])
def test_corrupt_bytes_are_never_returned_whole(scene: Scene, ask: str) -> None:
    """Callers that get a path or a whole object do not verify it."""
    blob, data = scene.blob(100_000)
    reader, key = scene.reader(FetchPolicy.MEDIA), blob_key(blob.hash)
    reader.fill(blob)
    (scene.blobs / blob.hash[:2] / blob.hash).write_bytes(noise(5, 100_000))
    if ask == "local_path":
        assert reader.local_path(key) == scene.store.local_path(key)
    elif ask == "read":
        assert reader.read(key).data == data
    else:
        assert b"".join(reader.stream(key)) == data
    assert scene.counters.snapshot().healed == 1


def test_a_corrupt_entry_that_cannot_be_removed_is_not_used_again(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    blob, data = scene.blob(100_000)
    reader, key = scene.reader(FetchPolicy.MEDIA), blob_key(blob.hash)
    reader.fill(blob)
    (scene.blobs / blob.hash[:2] / blob.hash).write_bytes(noise(5, 100_000))

    def refuse(*_: object, **__: object) -> None:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(Path, "unlink", refuse)
    assert reader.invalidate(key) is True
    monkeypatch.undo()
    assert reader.read_range(key, ByteRange(0, 10)) == data[:10]


# Close


def test_readers_with_other_policies_share_the_cache(scene: Scene) -> None:
    blob, data = scene.blob(100_000)
    media = scene.reader(FetchPolicy.MEDIA)
    tables = media.with_policy(FetchPolicy.TABLES)
    assert (media.policy, tables.policy) == (FetchPolicy.MEDIA, FetchPolicy.TABLES)
    tables.read_range(blob_key(blob.hash), ByteRange(0, 80_000))
    eventually(lambda: scene.cache.contains(blob.hash))
    assert media.read_range(blob_key(blob.hash), ByteRange(5, 9)) == data[5:9]


def test_a_closed_reader_reads_and_fills_nothing(scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
    blob, data = scene.blob(100_000)
    reader = scene.reader(FetchPolicy.EAGER)
    with caplog.at_level(logging.DEBUG, "warpdata.storage.cache"):
        reader.close()
    assert "IOStats(" in caplog.text
    read_members(reader, blob, data, members(100_000, 1, 10_000))
    reader.prefetch([blob])
    assert scene.files() == {}
    assert scene.is_idle()


@pytest.mark.parametrize("how", ["close", "collect garbage"])
def test_an_incomplete_blob_leaves_no_files(scene: Scene, how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(REQUEST_LIMIT, "_fixed", 1)  # then the tasks of the pool cannot claim all of it at once
    monkeypatch.setattr("warpdata.storage.cache.fetcher._FIRST_TASKS", 1)
    blob, _ = scene.blob(20 * MIB)
    reader: CachedReader | None = scene.reader(FetchPolicy.EAGER)
    assert reader is not None
    reader.read_range(blob_key(blob.hash), ByteRange(0, 10))
    eventually(scene.is_idle)
    scene.cache.remove(blob.hash)
    scene.store.open.clear()
    other, _ = scene.blob(40 * MIB, seed=2)
    reader.prefetch([other])
    eventually(lambda: scene.has_partial(other))
    if how == "close":
        threading.Timer(0.2, scene.store.open.set).start()
        reader.close()
    else:
        scene.readers.clear()
        reader = None
        gc.collect()
        scene.store.open.set()
    eventually(lambda: not [name for name in scene.files() if name.endswith(".part")])
    assert not scene.cache.contains(other.hash)


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(8) as pool:
        yield pool


@pytest.mark.parametrize("policy", FetchPolicy)
def test_threads_read_the_same_bytes(scene: Scene, threads: ThreadPoolExecutor, policy: FetchPolicy) -> None:
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

    for done in [threads.submit(read, seed) for seed in range(8)]:
        done.result()
    counts = scene.counters.snapshot()
    assert (counts.rejected, counts.failed_fills) == (0, 0)


def test_a_blob_that_was_evicted_is_filled_again(scene: Scene) -> None:
    blob, _ = scene.blob(100_000)
    reader = scene.reader(FetchPolicy.EAGER)
    for _ in range(3):
        reader.read_range(blob_key(blob.hash), ByteRange(0, 10))
        eventually(lambda: scene.cache.contains(blob.hash))
        eventually(lambda: scene.cache.clear().entries == 1)
    assert scene.counters.snapshot().fills == 3


def test_an_unknown_size_costs_one_request(scene: Scene) -> None:
    blob, data = scene.blob(3 * MIB)
    reader = scene.reader(FetchPolicy.MEDIA)
    read_members(reader, blob, data, members(3 * MIB, 3))
    eventually(lambda: scene.cache.contains(blob.hash))
    assert scene.store.counts()["stat"] == 1
    assert Blob(blob.hash, scene.files()[blob.hash]) == blob
