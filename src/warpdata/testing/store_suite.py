"""A conformance suite for stores: tests that any `Writer` inherits.

    class TestMyStore(StoreSuite):
        @pytest.fixture
        def store(self, tmp_path: Path) -> Writer:
            return MyStore(tmp_path)

The suite checks the "Operations" section of docs/specs/store.md and nothing else. Behaviour on a full disk or a
broken network belongs to the tests of each store.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from random import Random

import pytest

from warpdata.errors import BadInputError, CorruptError, InvalidSourceError, ObjectNotFoundError
from warpdata.limits import COALESCE_GAP_BYTES, MAX_KEY_LENGTH, MIB, SINGLE_PUT_BYTES
from warpdata.primitives.hashing import Fingerprint, fingerprint_file
from warpdata.storage import ByteRange, ObjectInfo, Writer

__all__ = ["StoreSuite"]

Act = Callable[[Writer, str], object]

READS: dict[str, Act] = {
    "read": lambda store, key: store.read(key),
    "read_if_changed": lambda store, key: store.read_if_changed(key, '"tag"'),
    "read_range": lambda store, key: store.read_range(key, ByteRange(0, 1)),
    "read_ranges": lambda store, key: store.read_ranges(key, [ByteRange(0, 1), ByteRange(9 * MIB, 9 * MIB + 1)]),
    "stream": lambda store, key: list(store.stream(key)),
    "stat": lambda store, key: store.stat(key),
}
INVALIDATIONS: dict[str, Act] = {"invalidate": lambda store, key: store.invalidate(key)}
LISTS: dict[str, Act] = {
    "list_objects": lambda store, key: list(store.list_objects(key)),
    "list_folders": lambda store, key: store.list_folders(key),
}
WRITES: dict[str, Act] = {
    "create": lambda store, key: store.create(key, b"data"),
    "replace": lambda store, key: store.replace(key, b"data"),
    "delete": lambda store, key: store.delete(key),
}
ODD_KEYS = (
    "with space/and more",
    "größe/naïve/日本語",
    "e\u0301",  # an accent of its own: keys are not normalized
    "100%/a%20b/%2e%2e",
    "a#b?c&d=e+f",
    "~tilde/'quotes'/(brackets)/[more]/{more}",
    "..dots/dots../.hidden",
    "UPPER/lower",
    "x,y;z:w@v!$*^`|<>",
)
BAD_KEYS = (
    "../x",
    "a/../../x",
    "a/..",
    "/abs",
    "a//b",
    "a/",
    "./a",
    "a/./b",
    "..",
    ".",
    "back\\slash",
    "nul\0",
    "new\nline",
    "delete\x7f",
    "half\ud800",
    "k" * (MAX_KEY_LENGTH + 1),
    "é" * (MAX_KEY_LENGTH // 2 + 1),
)


class StoreSuite:
    """Inherit, name the class `Test…`, and provide `store`: a new empty root for each test."""

    @pytest.fixture
    def store(self) -> Writer:
        raise NotImplementedError("a subclass of StoreSuite provides the `store` fixture")

    def test_is_a_writer_and_starts_empty(self, store: Writer) -> None:
        assert isinstance(store, Writer)
        assert list(store.list_objects("")) == []
        assert store.list_folders("") == []

    # Creating

    def test_create_makes_an_object_once(self, store: Writer) -> None:
        assert store.create("a/b", b"first") is True
        assert store.create("a/b", b"second") is False
        assert store.create("a/b", b"first") is False
        assert store.read("a/b").data == b"first"

    def test_one_of_many_racing_creators_wins(self, store: Writer) -> None:
        contents = [f"creator {number}".encode() * 100 for number in range(16)]
        start = threading.Barrier(len(contents))

        def create(data: bytes) -> bool:
            start.wait()
            return store.create("heads/main/1", data)

        with ThreadPoolExecutor(len(contents)) as pool:
            made = list(pool.map(create, contents))
        assert made.count(True) == 1
        assert store.read("heads/main/1").data == contents[made.index(True)]

    def test_an_empty_object_is_an_object(self, store: Writer) -> None:
        assert store.create("empty", b"")
        assert store.create("empty", b"x") is False
        assert store.read("empty").data == b""
        assert store.stat("empty").size_bytes == 0
        assert b"".join(store.stream("empty")) == b""
        assert _range(store, "empty", 0, 0) == b""
        assert [info.key for info in store.list_objects("")] == ["empty"]

    @pytest.mark.parametrize("key", ODD_KEYS)
    def test_odd_keys_are_kept_to_the_letter(self, store: Writer, key: str) -> None:
        data = key.encode()
        assert store.create(key, data)
        assert store.create(key, b"other") is False
        assert store.read(key).data == data
        assert _range(store, key, 0, len(data)) == data
        assert store.stat(key).key == key
        assert [info.key for info in store.list_objects("")] == [key]
        if "/" in key:
            assert store.list_folders("") == [key.split("/")[0]]
        store.delete(key)
        assert list(store.list_objects("")) == []

    # Reading

    def test_read_stat_and_listing_agree(self, store: Writer) -> None:
        store.create("k", b"0123456789")
        fetched = store.read("k")
        assert fetched.data == b"0123456789"
        assert fetched.etag
        assert store.stat("k") == ObjectInfo("k", 10, fetched.etag)
        assert list(store.list_objects("")) == [store.stat("k")]

    @pytest.mark.parametrize("name", READS)
    def test_an_absent_key_is_not_found(self, store: Writer, name: str) -> None:
        store.create("a/there", b"x")
        for key in ("absent", "a/absent", "absent/there", "a"):  # the last is a directory, which is no object
            with pytest.raises(ObjectNotFoundError) as caught:
                READS[name](store, key)
            assert repr(key) in caught.value.message

    def test_read_if_changed_tells_old_from_new(self, store: Writer) -> None:
        store.create("k", b"old")
        old = store.read("k")
        assert old.etag is not None
        assert store.read_if_changed("k", old.etag) is None
        store.replace("k", b"new")
        new = store.read_if_changed("k", old.etag)
        assert new is not None
        assert new.data == b"new"
        assert new == store.read("k")
        assert new.etag is not None
        assert store.read_if_changed("k", new.etag) is None

    def test_stream_equals_read(self, store: Writer) -> None:
        data = _noise(1, 9 * MIB + 17)
        store.create("k", data)
        assert b"".join(store.stream("k")) == data == store.read("k").data

    def test_a_local_path_leads_to_the_same_bytes(self, store: Writer) -> None:
        store.create("a/k", b"mapped")
        path = store.local_path("a/k")
        assert path is None or path.read_bytes() == b"mapped"
        assert store.local_path("a/absent") is None
        assert store.local_path("a") is None

    def test_distrust_leaves_the_store_itself_alone(self, store: Writer) -> None:
        store.create("a/k", b"said to be damaged")
        store.read("a/k")
        for _ in range(3):
            said = store.invalidate("a/k")
            assert said in (True, False)
            assert store.read("a/k").data == b"said to be damaged"
        assert store.invalidate("a/absent") is False

    def test_readers_see_all_of_a_write_or_nothing(self, store: Writer) -> None:
        contents = [bytes([letter]) * (256 * 1024) for letter in b"ab"]
        store.replace("hint", contents[0])
        done = threading.Event()

        def watch() -> int:
            seen = 0
            while not done.is_set():
                assert store.read("hint").data in contents
                seen += 1
            return seen

        with ThreadPoolExecutor(2) as pool:
            watchers = [pool.submit(watch) for _ in range(2)]
            try:
                for turn in range(30):
                    store.replace("hint", contents[turn % 2])
            finally:
                done.set()
            assert all(watcher.result() for watcher in watchers)

    # Ranges

    def test_a_range_is_exact(self, store: Writer) -> None:
        store.create("k", b"0123456789")
        assert _range(store, "k", 0, 10) == b"0123456789"
        assert _range(store, "k", 2, 5) == b"234"
        assert _range(store, "k", 9, 10) == b"9"

    @pytest.mark.parametrize(("start", "end"), [(5, 11), (9, 1000), (10, 11), (15, 20), (0, 11), (3 * MIB, 4 * MIB)])
    def test_a_range_past_the_end_is_never_a_shorter_result(self, store: Writer, start: int, end: int) -> None:
        store.create("k", b"0123456789")
        with pytest.raises(CorruptError):
            store.read_range("k", ByteRange(start, end))
        with pytest.raises(CorruptError):
            store.read_ranges("k", [ByteRange(0, 1), ByteRange(start, end)])

    @pytest.mark.parametrize(("start", "end"), [(5, 4), (-1, 2), (-3, -1)])
    def test_a_range_that_is_none_is_bad_input(self, store: Writer, start: int, end: int) -> None:
        store.create("k", b"0123456789")
        with pytest.raises(BadInputError):
            store.read_range("k", ByteRange(start, end))

    def test_empty_ranges_cost_and_return_nothing(self, store: Writer) -> None:
        store.create("k", b"0123456789")
        assert _ranges(store, "k", []) == []
        assert _range(store, "k", 4, 4) == b""
        assert _range(store, "k", 10, 10) == b""
        assert _ranges(store, "k", [ByteRange(0, 0), ByteRange(1, 3), ByteRange(7, 7)]) == [b"", b"12", b""]

    def test_ranges_come_back_in_the_order_asked(self, store: Writer) -> None:
        store.create("k", b"0123456789")
        spans = [ByteRange(8, 10), ByteRange(0, 3), ByteRange(2, 9), ByteRange(0, 3), ByteRange(5, 6)]
        assert _ranges(store, "k", spans) == [b"89", b"012", b"2345678", b"012", b"5"]

    def test_ranges_far_apart_come_back_together(self, store: Writer) -> None:
        data = _noise(2, 3 * COALESCE_GAP_BYTES)
        store.create("k", data)
        spans = [ByteRange(len(data) - 9, len(data)), ByteRange(0, 9), ByteRange(len(data) // 2, len(data) // 2 + 9)]
        assert _ranges(store, "k", spans) == [data[span.start : span.end] for span in spans]

    def test_any_ranges_equal_slices(self, store: Writer) -> None:
        data = _noise(3, 4 * COALESCE_GAP_BYTES + 1)
        store.create("k", data)
        rng = _seeded(4)
        for _ in range(25):
            reach = rng.choice([10, 1000, COALESCE_GAP_BYTES, len(data)])
            base = rng.randrange(len(data) - reach + 1)
            ends = [sorted((rng.randint(0, reach), rng.randint(0, reach))) for _ in range(rng.randint(1, 12))]
            spans = [ByteRange(base + start, base + end) for start, end in ends]
            assert _ranges(store, "k", spans) == [data[span.start : span.end] for span in spans], spans

    @pytest.mark.parametrize("gap", [0, 1, 5, 1000, COALESCE_GAP_BYTES, 2**40])
    def test_the_gap_between_neighbours_changes_no_result(self, store: Writer, gap: int) -> None:
        data = _noise(9, 2 * COALESCE_GAP_BYTES)
        store.create("k", data)
        starts = [0, 10, 20, 21, 30, 5000, len(data) - 10, 15, 10]
        spans = [ByteRange(start, start + 5) for start in starts]
        parts = store.read_ranges("k", spans, gap_bytes=gap)
        assert [bytes(part) for part in parts] == [data[span.start : span.end] for span in spans]

    def test_threads_may_share_a_store(self, store: Writer) -> None:
        data = _noise(5, MIB)
        store.create("k", data)

        def read(start: int) -> bool:
            return _range(store, "k", start, start + 1000) == data[start : start + 1000]

        with ThreadPoolExecutor(8) as pool:
            assert all(pool.map(read, range(0, MIB - 1000, 5000)))

    # Listing

    def test_a_prefix_is_a_folder(self, store: Writer) -> None:
        keys = ["a/1", "a/b/2", "a/b/c/3", "a-b/4", "ab/5", "b", "Z/6", "ä/7"]
        for key in reversed(keys):
            store.create(key, key.encode())
        assert [info.key for info in store.list_objects("")] == sorted(keys)
        assert [info.key for info in store.list_objects("a")] == ["a/1", "a/b/2", "a/b/c/3"]
        assert [info.key for info in store.list_objects("a/b")] == ["a/b/2", "a/b/c/3"]
        assert [info.size_bytes for info in store.list_objects("ä")] == [len("ä/7".encode())]
        for nothing in ("b", "a/1", "nowhere", "a/nowhere"):
            assert list(store.list_objects(nothing)) == []
            assert store.list_folders(nothing) == []
        assert store.list_folders("") == sorted(["a", "a-b", "ab", "Z", "ä"])
        assert store.list_folders("a") == ["b"]
        assert store.list_folders("a/b") == ["c"]

    # Names

    @pytest.mark.parametrize("name", [*READS, *INVALIDATIONS, *LISTS, *WRITES])
    def test_a_bad_key_is_refused_before_anything_happens(self, store: Writer, name: str) -> None:
        act = {**READS, **INVALIDATIONS, **LISTS, **WRITES}[name]
        for key in BAD_KEYS if name in LISTS else ("", *BAD_KEYS):
            with pytest.raises(BadInputError):
                act(store, key)
        assert list(store.list_objects("")) == []

    def test_a_long_key_is_accepted(self, store: Writer) -> None:
        folder = "f" * 127 + "/"
        key = folder * 6 + "k" * 100
        assert store.create(key, b"x")
        assert store.read(key).data == b"x"

    # Replacing and deleting

    def test_replace_overwrites_or_makes(self, store: Writer) -> None:
        store.replace("a/hint", b"one")
        assert store.read("a/hint").data == b"one"
        store.replace("a/hint", b"another, longer")
        assert store.read("a/hint").data == b"another, longer"
        store.replace("a/hint", b"")
        assert store.read("a/hint").data == b""
        assert store.create("a/hint", b"x") is False

    @pytest.mark.parametrize("size", [100_000, SINGLE_PUT_BYTES + MIB + 1])
    def test_a_file_replaces_a_corrupt_object(self, store: Writer, tmp_path: Path, size: int) -> None:
        source, print_of_it = _file(tmp_path, _noise(9, size))
        store.replace("blobs/x", b"truncated")
        assert _range(store, "blobs/x", 0, 9) == b"truncated"
        store.replace_file("blobs/x", source, print_of_it)
        assert b"".join(store.stream("blobs/x")) == source.read_bytes()
        assert _range(store, "blobs/x", 1, 9) == source.read_bytes()[1:9]
        store.replace_file("made/x", source, print_of_it)
        assert store.stat("made/x").size_bytes == size

    def test_a_file_that_changed_replaces_nothing(self, store: Writer, tmp_path: Path) -> None:
        source, print_of_it = _file(tmp_path, b"as it was")
        source.write_bytes(b"as it is now")
        store.create("blobs/x", b"kept")
        with pytest.raises(InvalidSourceError):
            store.replace_file("blobs/x", source, print_of_it)
        assert store.read("blobs/x").data == b"kept"

    def test_delete_removes_exactly_one_key(self, store: Writer) -> None:
        for key in ("a/1", "a/2", "a/3/4"):
            store.create(key, b"x")
        store.delete("a/1")
        store.delete("a/1")
        store.delete("a/3")  # a directory: no such object
        store.delete("never/there")
        store.delete("a/2/below an object")
        assert [info.key for info in store.list_objects("")] == ["a/2", "a/3/4"]
        assert store.create("a/1", b"again")
        assert store.read("a/1").data == b"again"

    def test_many_keys_are_deleted_at_once(self, store: Writer) -> None:
        for number in range(5):
            store.create(f"a/{number}", b"x")
        store.delete_many([])
        store.delete_many(["a/1", "a/3", "a/1", "never/there", "a/4"])
        assert [info.key for info in store.list_objects("")] == ["a/0", "a/2"]
        with pytest.raises(BadInputError):
            store.delete_many(["../outside"])

    def test_times_of_writes_are_those_of_one_clock(self, store: Writer) -> None:
        """Garbage collection compares the times of objects with each other, never with the clock of this machine."""
        store.create("a", b"x")
        store.replace("b", b"x")
        times = [info.modified for info in store.list_objects("")]
        assert times == [store.stat("a").modified, store.stat("b").modified]
        if times[0] is not None and times[1] is not None:
            assert times[0] <= times[1]
            store.replace("a", b"y")
            renewed = store.stat("a").modified
            assert renewed is not None
            assert renewed >= times[1]

    def test_abandoned_writes_are_no_objects(self, store: Writer) -> None:
        store.create("a", b"x")
        assert store.remove_abandoned(datetime.now(UTC)) == (0, 0)
        assert [info.key for info in store.list_objects("")] == ["a"]

    # Files

    @pytest.mark.parametrize("size", [0, 1, 100_000, SINGLE_PUT_BYTES, SINGLE_PUT_BYTES + MIB + 1])
    def test_a_file_arrives_whole(self, store: Writer, tmp_path: Path, size: int) -> None:
        source, print_of_it = _file(tmp_path, _noise(6, size))
        assert store.create_file("blobs/x", source, print_of_it) is True
        assert store.stat("blobs/x").size_bytes == size
        assert b"".join(store.stream("blobs/x")) == source.read_bytes()
        store.create_file("blobs/x", source, print_of_it)
        assert b"".join(store.stream("blobs/x")) == source.read_bytes()

    def test_a_small_file_is_made_once(self, store: Writer, tmp_path: Path) -> None:
        store.create("blobs/x", b"first")
        assert store.create_file("blobs/x", *_file(tmp_path, b"second")) is False
        assert store.read("blobs/x").data == b"first"

    def test_many_may_upload_the_same_file(self, store: Writer, tmp_path: Path) -> None:
        source, print_of_it = _file(tmp_path, _noise(7, MIB))
        with ThreadPoolExecutor(8) as pool:
            made = list(pool.map(lambda _: store.create_file("blobs/x", source, print_of_it), range(8)))
        assert made.count(True) == 1
        assert store.read("blobs/x").data == source.read_bytes()

    @pytest.mark.parametrize("size", [100_000, SINGLE_PUT_BYTES + MIB + 1])
    @pytest.mark.parametrize("change", ["first byte", "last byte", "shorter", "longer", "gone"])
    def test_a_file_that_changed_leaves_nothing(self, store: Writer, tmp_path: Path, size: int, change: str) -> None:
        data = _noise(8, size)
        source, print_of_it = _file(tmp_path, data)
        changed = {
            "first byte": bytes([data[0] ^ 1]) + data[1:],
            "last byte": data[:-1] + bytes([data[-1] ^ 1]),
            "shorter": data[:-1],
            "longer": data + b"!",
        }
        if change == "gone":
            source.unlink()
        else:
            source.write_bytes(changed[change])
        with pytest.raises(InvalidSourceError) as caught:
            store.create_file("blobs/x", source, print_of_it)
        assert str(source) in caught.value.message
        assert list(store.list_objects("")) == []
        with pytest.raises(ObjectNotFoundError):
            store.read("blobs/x")


def _range(store: Writer, key: str, start: int, end: int) -> bytes:
    return bytes(store.read_range(key, ByteRange(start, end)))


def _ranges(store: Writer, key: str, spans: Sequence[ByteRange]) -> list[bytes]:
    return [bytes(part) for part in store.read_ranges(key, spans)]


def _file(folder: Path, data: bytes) -> tuple[Path, Fingerprint]:
    path = folder / "source.bin"
    path.write_bytes(data)
    return path, fingerprint_file(path)


def _noise(seed: int, size: int) -> bytes:
    """Return bytes without a pattern, so that a slice from the wrong offset is detected."""
    return _seeded(seed).randbytes(size)


def _seeded(seed: int) -> Random:
    return Random(seed)  # noqa: S311  (not for secrets: a test must be the same each time)
