"""If these fail, a store on a plain web server cannot be read, or its wrong replies are trusted."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from tests.web_server import SLOW_PIECE_BYTES, WebServer, serving
from warpdata.errors import (
    BadInputError,
    CorruptError,
    DeniedError,
    ObjectNotFoundError,
    StorageError,
    StoreUnavailableError,
    UnsupportedError,
)
from warpdata.primitives.hashing import fingerprint_file
from warpdata.settings import Settings
from warpdata.storage import ByteRange, LocalStore, Writer, open_store
from warpdata.testing.store_suite import BAD_KEYS, ODD_KEYS, READS

DATA = Random(1).randbytes(3_000_000)


@pytest.fixture
def origin(tmp_path: Path) -> LocalStore:
    """The same objects, seen as a directory."""
    store = LocalStore(tmp_path / "origin")
    store.create("a/k", DATA)
    store.create("empty", b"")
    return store


@pytest.fixture
def server(origin: LocalStore, tmp_path: Path) -> Iterator[WebServer]:
    with serving(tmp_path / "origin") as server:
        yield server


@pytest.fixture
def store(server: WebServer, tmp_path: Path) -> Writer:
    url = f"http://127.0.0.1:{server.server_port}/lake"
    return open_store(url, Settings(store_url=url, cache_dir=tmp_path, timeout_s=5, max_retries=1))


def test_objects_are_read_as_they_are(store: Writer) -> None:
    fetched = store.read("a/k")
    assert fetched.data == DATA == b"".join(store.stream("a/k"))
    assert store.read("empty").data == b""
    info = store.stat("a/k")
    assert (info.key, info.size_bytes, info.etag) == ("a/k", len(DATA), fetched.etag)
    assert store.local_path("a/k") is None


def test_ranges_equal_slices(store: Writer) -> None:
    rng = Random(2)
    for _ in range(10):
        pairs = [sorted((rng.randrange(len(DATA)), rng.randrange(len(DATA)))) for _ in range(rng.randint(1, 5))]
        spans = [ByteRange(start, min(end, start + 5000)) for start, end in pairs]
        assert [bytes(part) for part in store.read_ranges("a/k", spans)] == [DATA[s.start : s.end] for s in spans]


@pytest.mark.parametrize(("gap", "sent"), [(0, 4), (10, 3), (50_000, 2), (1_000_000, 1)])
def test_ranges_within_the_gap_share_a_request(server: WebServer, store: Writer, gap: int, sent: int) -> None:
    """The library would merge ranges itself, but a caller that chooses a small gap pays for each byte."""
    spans = [ByteRange(start, start + 10) for start in (40_000, 10, 110_000, 30)]
    parts = store.read_ranges("a/k", spans, gap_bytes=gap)
    assert [bytes(part) for part in parts] == [DATA[span.start : span.end] for span in spans]
    assert server.requests == ["GET"] * sent


def test_a_stream_may_take_longer_than_a_request(
    server: WebServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fetching all of it takes more than a second here, and a request may take half of one."""
    _ask_for_little_at_a_time(monkeypatch)
    server.fault = "slow"
    url = f"http://127.0.0.1:{server.server_port}/lake"
    impatient = open_store(url, Settings(store_url=url, cache_dir=tmp_path, timeout_s=0.5, max_retries=0))
    assert b"".join(impatient.stream("a/k")) == DATA


@pytest.mark.parametrize("fault", ["", "no tags"])
def test_a_stream_of_many_requests_is_whole(
    store: Writer, server: WebServer, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    _ask_for_little_at_a_time(monkeypatch)
    server.fault = fault
    assert b"".join(store.stream("a/k")) == DATA
    assert len(server.requests) > 2
    assert b"".join(store.stream("empty")) == b""


def _ask_for_little_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("warpdata.storage.object_store._STREAM_REQUEST_BYTES", SLOW_PIECE_BYTES)
    monkeypatch.setattr("warpdata.storage.object_store.STREAM_CHUNK_BYTES", SLOW_PIECE_BYTES)


@pytest.mark.parametrize("key", ODD_KEYS)
def test_odd_keys_are_found(store: Writer, origin: LocalStore, key: str) -> None:
    origin.create(key, key.encode())
    assert store.read(key).data == key.encode()


def test_a_tag_tells_old_from_new(store: Writer, origin: LocalStore) -> None:
    tag = store.read("a/k").etag
    assert tag is not None
    assert store.read_if_changed("a/k", tag) is None
    origin.replace("a/k", b"new")
    changed = store.read_if_changed("a/k", tag)
    assert changed is not None
    assert changed.data == b"new"


@pytest.mark.parametrize("name", READS)
def test_what_is_not_there_is_not_found(store: Writer, name: str) -> None:
    with pytest.raises(ObjectNotFoundError, match="absent"):
        READS[name](store, "absent")


@pytest.mark.parametrize("name", READS)
def test_a_bad_key_never_leaves_the_house(store: Writer, server: WebServer, name: str) -> None:
    for key in ("", *BAD_KEYS):
        with pytest.raises(BadInputError):
            READS[name](store, key)
    assert server.requests == []


def test_writing_is_refused_without_asking(store: Writer, server: WebServer, tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.write_bytes(b"x")
    with pytest.raises(DeniedError, match="read-only"):
        store.create("k", b"x")
    with pytest.raises(DeniedError):
        store.create_file("k", source, fingerprint_file(source))
    with pytest.raises(DeniedError):
        store.replace("k", b"x")
    with pytest.raises(DeniedError):
        store.delete("a/k")
    assert server.requests == []


def test_listing_and_signing_are_more_than_a_web_server_can(store: Writer) -> None:
    with pytest.raises(UnsupportedError, match="cannot be listed") as caught:
        list(store.list_objects(""))
    assert "by its name" in (caught.value.hint or "")
    with pytest.raises(UnsupportedError, match="cannot be listed"):
        store.list_folders("")
    with pytest.raises(UnsupportedError):
        store.signed_url("a/k", 60)


# Servers that misbehave


def test_a_range_past_the_end_is_never_a_shorter_result(store: Writer) -> None:
    for span in (ByteRange(len(DATA) - 5, len(DATA) + 5), ByteRange(len(DATA), len(DATA) + 1)):
        with pytest.raises(CorruptError):
            store.read_range("a/k", span)


def test_a_server_that_sends_too_little_is_not_believed(store: Writer, server: WebServer) -> None:
    server.fault = "short"
    with pytest.raises(CorruptError, match="9 bytes"):
        store.read_range("a/k", ByteRange(10, 20))


def test_a_server_that_knows_no_ranges_is_named_as_such(store: Writer, server: WebServer) -> None:
    server.fault = "no ranges"
    with pytest.raises(UnsupportedError, match="does not answer range requests") as caught:
        store.read_range("a/k", ByteRange(10, 20))
    assert "http.server" in (caught.value.hint or "")
    assert "a/k" in caught.value.message
    assert store.read("a/k").data == DATA


def test_an_answer_that_breaks_off_is_an_error(store: Writer, server: WebServer) -> None:
    server.fault = "cut"
    for name in ("read", "read_range", "stream"):
        with pytest.raises(StorageError):
            READS[name](store, "a/k")


def test_a_server_without_tags_gives_none(store: Writer, server: WebServer) -> None:
    server.fault = "no tags"
    assert store.read("a/k").etag is None
    assert store.stat("a/k").etag is None


def test_a_hiccup_is_tried_again(store: Writer, server: WebServer) -> None:
    server.fault = "down once"
    assert store.read("a/k").data == DATA
    assert server.requests == ["GET", "GET"]


def test_a_server_that_stays_down_is_unavailable(store: Writer, server: WebServer) -> None:
    server.fault = "down"
    with pytest.raises(StoreUnavailableError, match="503"):
        store.read("a/k")
