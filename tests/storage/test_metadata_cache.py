"""If these fail, users see outdated versions, or get corrupt bytes from their disk."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random

import pytest

from warpdata.errors import ObjectNotFoundError
from warpdata.limits import MAX_PAGE_BYTES
from warpdata.storage import ByteRange, KeyPolicy, LocalStore, MetadataCache, MetadataCacheFiles, Reader
from warpdata.testing import FaultyStore

PINNED, HINT, HEAD = "manifests/v1.json", "latest.json", "heads/1.json"
DATA = {PINNED: b"manifest of version 1", HINT: b"hint", HEAD: b"head"}
POLICIES = {PINNED: KeyPolicy.FOREVER, HINT: KeyPolicy.REVALIDATE, HEAD: KeyPolicy.NEVER}


def _policy(key: str) -> KeyPolicy:
    return POLICIES.get(key, KeyPolicy.FOREVER)


def _is_valid(key: str, data: bytes) -> bool:
    return not data.startswith(b"corrupt")


@pytest.fixture
def origin(tmp_path: Path) -> FaultyStore:
    """The store behind the cache, which counts what it is asked."""
    store = FaultyStore(LocalStore(tmp_path / "origin"))
    for key, data in DATA.items():
        store.create(key, data)
    store.clear()
    return store


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "cache"


@pytest.fixture
def cache(origin: FaultyStore, folder: Path) -> MetadataCache:
    return MetadataCache(origin, folder, _policy, _is_valid)


def _entries(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


# Validity


def test_it_is_a_reader(cache: MetadataCache) -> None:
    assert isinstance(cache, Reader)


def test_what_never_changes_is_fetched_once(origin: FaultyStore, folder: Path) -> None:
    for _ in range(3):
        again = MetadataCache(origin, folder, _policy, _is_valid)  # as in another process
        assert again.read(PINNED) == again.read(PINNED)
        assert again.read(PINNED).data == DATA[PINNED]
    assert origin.counts() == {"read": 1}


def test_what_may_change_is_asked_about_each_time(cache: MetadataCache, origin: FaultyStore) -> None:
    assert [cache.read(HINT).data for _ in range(3)] == [b"hint"] * 3
    assert origin.counts() == {"read": 1, "read_if_changed": 2}
    origin.replace(HINT, b"new hint")
    assert [cache.read(HINT).data for _ in range(3)] == [b"new hint"] * 3
    assert origin.counts() == {"read": 1, "read_if_changed": 5, "replace": 1}


def test_objects_that_must_be_current_are_not_cached(cache: MetadataCache, origin: FaultyStore, folder: Path) -> None:
    assert [cache.read(HEAD).data for _ in range(3)] == [b"head"] * 3
    assert origin.counts() == {"read": 3}
    assert _entries(folder) == []


def test_absence_is_not_cached(cache: MetadataCache, origin: FaultyStore) -> None:
    with pytest.raises(ObjectNotFoundError):
        cache.read("manifests/v2.json")
    origin.create("manifests/v2.json", b"published a moment later")
    assert cache.read("manifests/v2.json").data == b"published a moment later"


def test_a_deleted_object_is_not_found(cache: MetadataCache, origin: FaultyStore) -> None:
    cache.read(HINT)
    origin.delete(HINT)
    with pytest.raises(ObjectNotFoundError):
        cache.read(HINT)


def test_a_large_object_is_not_cached(cache: MetadataCache, origin: FaultyStore, folder: Path) -> None:
    for key, size in (("largest", MAX_PAGE_BYTES), ("too large", MAX_PAGE_BYTES + 1)):
        origin.create(key, bytes(size))
        origin.clear()
        assert cache.read(key).data == cache.read(key).data == bytes(size)
        assert origin.counts() == {"read": 1 if size <= MAX_PAGE_BYTES else 2}
    assert len(_entries(folder)) == 1


def test_two_stores_share_a_folder_and_nothing_else(tmp_path: Path, folder: Path) -> None:
    for name in ("one", "two"):
        store = LocalStore(tmp_path / name)
        store.create(PINNED, name.encode())
        assert MetadataCache(store, folder, _policy, _is_valid).read(PINNED).data == name.encode()


def test_everything_else_is_passed_on(cache: MetadataCache, origin: FaultyStore) -> None:
    asked: dict[str, Callable[[Reader], object]] = {
        "read_if_changed": lambda reader: reader.read_if_changed(PINNED, "tag"),
        "read_range": lambda reader: bytes(reader.read_range(PINNED, ByteRange(1, 3))),
        "read_ranges": lambda reader: [bytes(part) for part in reader.read_ranges(PINNED, [ByteRange(0, 2)])],
        "stream": lambda reader: b"".join(reader.stream(PINNED)),
        "stat": lambda reader: reader.stat(PINNED),
        "list_objects": lambda reader: list(reader.list_objects("")),
        "list_folders": lambda reader: reader.list_folders(""),
    }
    for name, ask in asked.items():
        origin.clear()
        assert ask(cache) == ask(origin)
        assert origin.counts() == {name: 2}
    assert cache.url == origin.url
    assert cache.local_path(PINNED) == origin.local_path(PINNED)


# Rot


@pytest.mark.parametrize("key", [PINNED, HINT])
def test_a_flipped_bit_is_noticed_and_healed(cache: MetadataCache, origin: FaultyStore, folder: Path, key: str) -> None:
    cache.read(key)
    (entry,) = _entries(folder)
    valid = entry.read_bytes()
    rng = Random(7)
    for position in range(len(valid)):
        corrupt = bytearray(valid)
        corrupt[position] ^= 1 << rng.randrange(8)
        entry.write_bytes(corrupt)
        origin.clear()
        assert cache.read(key).data == DATA[key], f"byte {position}"
        assert origin.counts() == {"read": 1}, f"byte {position} was trusted"
        assert entry.read_bytes() == valid, f"byte {position} was not repaired"


@pytest.mark.parametrize("key", [PINNED, HINT])
def test_a_cut_or_padded_entry_is_noticed(cache: MetadataCache, origin: FaultyStore, folder: Path, key: str) -> None:
    cache.read(key)
    (entry,) = _entries(folder)
    valid = entry.read_bytes()
    for wrong in [*(valid[:length] for length in range(len(valid))), valid + b"\0", valid * 2]:
        entry.write_bytes(wrong)
        origin.clear()
        assert cache.read(key).data == DATA[key]
        assert origin.counts() == {"read": 1}


def test_an_entry_in_the_wrong_place_is_noticed(cache: MetadataCache, origin: FaultyStore, folder: Path) -> None:
    cache.read(PINNED)
    (entry,) = _entries(folder)
    origin.create("other", b"other")
    cache.read("other")
    (other,) = set(_entries(folder)) - {entry}
    shutil.copyfile(other, entry)
    assert cache.read(PINNED).data == DATA[PINNED]


@pytest.mark.parametrize("key", [PINNED, HINT])
def test_what_is_distrusted_is_fetched_again(cache: MetadataCache, origin: FaultyStore, folder: Path, key: str) -> None:
    assert cache.invalidate(key) is False, "nothing was cached yet"
    cache.read(key)
    assert cache.invalidate(key) is True
    assert _entries(folder) == []
    origin.clear()
    assert cache.read(key).data == DATA[key]
    assert origin.counts() == {"read": 1}


def test_distrust_is_passed_on(origin: FaultyStore, folder: Path) -> None:
    class WithCopy(FaultyStore):
        def invalidate(self, key: str) -> bool:
            return key == PINNED

    cache = MetadataCache(WithCopy(origin), folder, _policy, _is_valid)
    assert (cache.invalidate(PINNED), cache.invalidate(HINT)) == (True, False)


def test_cached_objects_can_be_read_without_the_store(cache: MetadataCache, folder: Path, tmp_path: Path) -> None:
    cache.read(PINNED)
    cache.read(HINT)
    files = MetadataCacheFiles(cache.url, folder)
    for key in (PINNED, HINT):
        found = files.load(key)
        assert found is not None
        assert found.data == DATA[key]
    assert files.load(HEAD) is None
    assert MetadataCacheFiles((tmp_path / "elsewhere").as_uri(), folder).load(PINNED) is None


# A disk that does not help


def test_the_folder_may_vanish_at_any_time(cache: MetadataCache, folder: Path) -> None:
    for _ in range(3):
        assert cache.read(PINNED).data == DATA[PINNED]
        shutil.rmtree(folder)


def test_a_folder_that_cannot_be_made_is_bypassed(origin: FaultyStore, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"not a folder")
    cache = MetadataCache(origin, tmp_path / "file" / "cache", _policy, _is_valid)
    assert [cache.read(key).data for key in (PINNED, PINNED, HINT)] == [DATA[PINNED], DATA[PINNED], DATA[HINT]]
    assert origin.counts() == {"read": 3}


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EROFS, errno.EACCES, errno.EIO])
@pytest.mark.parametrize("call", ["os.mkdir", "warpdata.storage.metadata_cache.replacing", "os.replace"])
def test_a_disk_that_fails_is_bypassed(
    cache: MetadataCache, folder: Path, monkeypatch: pytest.MonkeyPatch, code: int, call: str
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(code, os.strerror(code))

    with monkeypatch.context() as patch:
        patch.setattr(call, refuse)
        assert cache.read(PINNED).data == DATA[PINNED]
        assert cache.read(HINT).data == DATA[HINT]
    assert _entries(folder) == [], "no partial file is left"
    assert cache.read(PINNED).data == DATA[PINNED]


def test_an_entry_that_cannot_be_read_is_bypassed(cache: MetadataCache, folder: Path) -> None:
    cache.read(PINNED)
    (entry,) = _entries(folder)
    entry.unlink()
    entry.mkdir()
    assert cache.read(PINNED).data == DATA[PINNED]


def test_threads_may_read_at_once(origin: FaultyStore, folder: Path) -> None:
    def read(number: int) -> bytes:
        return MetadataCache(origin, folder, _policy, _is_valid).read((PINNED, HINT)[number % 2]).data

    with ThreadPoolExecutor(8) as pool:
        seen = list(pool.map(read, range(64)))
    assert seen == [DATA[PINNED], DATA[HINT]] * 32
    assert len(_entries(folder)) == 2


def test_a_corrupt_reply_is_passed_on_but_never_kept(origin: FaultyStore, cache: MetadataCache) -> None:
    """Otherwise one bad answer would outlive the repair of the store."""
    valid = origin.read(PINNED).data
    origin.replace(PINNED, b"corrupt" + valid)
    assert cache.read(PINNED).data == b"corrupt" + valid
    origin.replace(PINNED, valid)
    assert cache.read(PINNED).data == valid
