"""If these fail, offline reads open a socket, or report an object that is not cached as missing from the store."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import pytest

from tests.storage.cache.scenes import Clock, noise, write_entry
from warpdata.cli.exit_codes import NOT_FOUND, report_error
from warpdata.errors import (
    BadInputError,
    CorruptError,
    LimitExceededError,
    NotCachedError,
    ObjectNotFoundError,
    StorageError,
    UnsupportedError,
)
from warpdata.limits import MIB
from warpdata.primitives.hashing import Blob, blob_key, sha256_hex
from warpdata.repository.catalog import is_valid, key_policy
from warpdata.repository.manifest import Json, canonical_json
from warpdata.storage import ByteRange, LocalStore, MetadataCache, MetadataCacheFiles, Reader, read_blob
from warpdata.storage.cache import BlobCache, Mode, OfflineReader, parse_mode
from warpdata.testing import FaultyStore

URL = "s3://lake/root"
HINT = "Run `warp warm acme/pets` while online."
DATA = noise(1, 5 * MIB)
BLOB = Blob(sha256_hex(DATA), len(DATA))
KEY = blob_key(BLOB.hash)


def record(name: str) -> bytes:
    body: dict[str, Json] = {"name": name}
    return canonical_json({**body, "checksum": sha256_hex(canonical_json(body))})


HEAD_RECORD, HINT_RECORD = record("head"), record("hint")


class RemoteStore(FaultyStore):
    """A local store with the URL of a remote one."""

    @property
    def url(self) -> str:
        return URL


@pytest.fixture
def cache(tmp_path: Path) -> BlobCache:
    made = BlobCache(tmp_path / "cache", 100 * MIB, Clock())
    write_entry(made, DATA)
    return made


@pytest.fixture
def store(tmp_path: Path) -> RemoteStore:
    return RemoteStore(LocalStore(tmp_path / "store"))


@pytest.fixture
def reader(cache: BlobCache, store: RemoteStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> OfflineReader:
    """Read some small objects online, then refuse every socket."""
    page = b"a page"
    objects = {
        "datasets/acme/pets/latest.json": HINT_RECORD,
        "datasets/acme/pets/heads/main/00000000000000000001.json": HEAD_RECORD,
        blob_key(sha256_hex(page)): page,
    }
    online = MetadataCache(store, tmp_path / "metadata", key_policy, is_valid)
    for key, data in objects.items():
        store.create(key, data)
        online.read(key)
    store.create("datasets/acme/pets/labels/never-read.json", b"label")

    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("a socket was opened")

    monkeypatch.setattr(socket, "socket", refuse)
    return OfflineReader(URL, cache, MetadataCacheFiles(URL, tmp_path / "metadata"), HINT)


def test_it_is_a_reader(reader: OfflineReader) -> None:
    assert isinstance(reader, Reader)
    assert reader.url == URL


def test_a_cached_blob_is_read_in_every_way(reader: OfflineReader) -> None:
    assert reader.read(KEY).data == DATA
    assert b"".join(reader.stream(KEY)) == DATA
    assert reader.read_range(KEY, ByteRange(3, 9)) == DATA[3:9]
    spans = [ByteRange(9, 20), ByteRange(0, 0), ByteRange(MIB, 2 * MIB)]
    assert [bytes(part) for part in reader.read_ranges(KEY, spans)] == [DATA[s.start : s.end] for s in spans]
    assert reader.stat(KEY).size_bytes == len(DATA)
    path = reader.local_path(KEY)
    assert path is not None
    assert path.read_bytes() == DATA
    assert read_blob(reader, BLOB) == DATA
    with pytest.raises(CorruptError):
        reader.read_range(KEY, ByteRange(0, len(DATA) + 1))
    with pytest.raises(BadInputError):
        reader.read_range(KEY, ByteRange(2, 1))


def test_small_objects_have_the_content_of_their_last_read(reader: OfflineReader, store: RemoteStore) -> None:
    store.replace("datasets/acme/pets/latest.json", b"moved on")
    fetched = reader.read("datasets/acme/pets/latest.json")
    assert fetched.data == HINT_RECORD
    assert fetched.etag is not None
    assert reader.read_if_changed("datasets/acme/pets/latest.json", fetched.etag) is None
    assert reader.read_if_changed("datasets/acme/pets/latest.json", "other") == fetched
    assert reader.read("datasets/acme/pets/heads/main/00000000000000000001.json").data == HEAD_RECORD
    assert reader.read(blob_key(sha256_hex(b"a page"))).data == b"a page"
    assert b"".join(reader.stream("datasets/acme/pets/latest.json")) == HINT_RECORD
    assert reader.stat("datasets/acme/pets/latest.json").size_bytes == len(HINT_RECORD)


def test_a_missing_object_raises_with_a_hint(reader: OfflineReader) -> None:
    absent = sha256_hex(b"not here")
    for key in ("datasets/acme/pets/labels/never-read.json", blob_key(absent)):
        asks: list[Any] = [
            lambda key=key: reader.read(key),
            lambda key=key: reader.read_range(key, ByteRange(0, 1)),
            lambda key=key: list(reader.stream(key)),
            lambda key=key: reader.stat(key),
            lambda key=key: reader.read_if_changed(key, "tag"),
        ]
        for ask in asks:
            with pytest.raises(NotCachedError) as caught:
                ask()
            assert isinstance(caught.value, ObjectNotFoundError), "a probe for the next head finds none"
            assert URL in caught.value.message
            assert (absent if "blobs/" in key else key) in caught.value.message
            assert caught.value.hint == HINT
            assert caught.value.kind == "not_cached"
        assert reader.local_path(key) is None
    assert report_error(NotCachedError("x")) == NOT_FOUND


def test_nothing_can_be_listed_or_signed(reader: OfflineReader) -> None:
    with pytest.raises(NotCachedError):
        reader.list_objects("datasets")
    with pytest.raises(NotCachedError) as caught:
        reader.list_folders("datasets")
    assert "'datasets'" in caught.value.message
    with pytest.raises(UnsupportedError):
        reader.signed_url(KEY, 60)


def test_a_corrupt_copy_is_dropped(reader: OfflineReader, cache: BlobCache) -> None:
    (cache.directory / "blobs" / BLOB.hash[:2] / BLOB.hash).write_bytes(noise(2, len(DATA)))
    assert reader.read_range(KEY, ByteRange(0, 5)) != DATA[:5]
    assert reader.invalidate(KEY) is True
    with pytest.raises(NotCachedError):
        reader.read_range(KEY, ByteRange(0, 5))
    assert reader.invalidate(KEY) is False
    assert reader.invalidate("datasets/acme/pets/latest.json") is True
    with pytest.raises(NotCachedError):
        reader.read("datasets/acme/pets/latest.json")


def test_a_corrupt_blob_is_never_returned_whole(reader: OfflineReader, cache: BlobCache) -> None:
    (cache.directory / "blobs" / BLOB.hash[:2] / BLOB.hash).write_bytes(noise(2, len(DATA)))
    with pytest.raises((NotCachedError, CorruptError)):
        reader.read(KEY)
    assert reader.local_path(KEY) is None


def test_a_large_entry_is_not_read_whole(reader: OfflineReader, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("warpdata.storage.cache.offline.MAX_SMALL_OBJECT_BYTES", 100)
    with pytest.raises(LimitExceededError):
        reader.read(KEY)


# Modes


@pytest.mark.parametrize("text", ["auto", "remote", "hybrid", "local"])
def test_modes_have_names(text: str) -> None:
    assert parse_mode(text) == text == Mode(text).value


@pytest.mark.parametrize("text", ["", "AUTO", "offline", "auto "])
def test_an_unknown_mode_is_an_error(text: str) -> None:
    with pytest.raises(BadInputError) as caught:
        parse_mode(text)
    assert repr(text) in caught.value.message
    assert "hybrid" in (caught.value.hint or "")


# Putting bytes


def test_put_makes_an_entry(cache: BlobCache) -> None:
    path = cache.put(b"decoded")
    assert path.read_bytes() == b"decoded"
    assert cache.put(b"decoded") == path
    assert cache.contains(sha256_hex(b"decoded"))


def test_put_raises_if_there_is_no_space(tmp_path: Path) -> None:
    with pytest.raises(StorageError) as caught:
        BlobCache(tmp_path / "cache", 10, Clock()).put(bytes(11))
    assert "larger than the cache" in caught.value.message
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(StorageError):
        BlobCache(tmp_path / "file", MIB, Clock()).put(b"x")
