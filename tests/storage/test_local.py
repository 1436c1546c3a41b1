"""If these fail, a local directory is not a store: objects may be lost, torn, hidden or out of place."""

from __future__ import annotations

from pathlib import Path

import pytest

from warpdata.errors import CorruptError, LimitExceededError, UnsupportedError
from warpdata.limits import MAX_OPEN_HANDLES
from warpdata.primitives.hashing import blob_key, sha256_hex
from warpdata.storage import ByteRange, LocalStore, Writer
from warpdata.testing import StoreSuite


class TestLocalStore(StoreSuite):
    @pytest.fixture
    def store(self, tmp_path: Path) -> Writer:
        return LocalStore(tmp_path / "a root")


def test_opening_and_reading_make_nothing(tmp_path: Path) -> None:
    store = LocalStore(tmp_path / "absent")
    assert list(store.list_objects("")) == []
    assert store.list_folders("") == []
    assert store.local_path("k") is None
    store.delete("k")
    assert list(tmp_path.iterdir()) == []


def test_writes_leave_nothing_behind_in_the_staging_folder(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    store.create("k", b"x")
    store.create("k", b"y")
    store.replace("k", b"z")
    assert list((tmp_path / ".tmp").iterdir()) == []


def test_a_staged_object_gets_its_key_once(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    first, second, left = store.stage("a/k", b"x"), store.stage("a/k", b"y"), store.stage("a/k", b"z")
    assert list(store.list_objects("")) == []
    assert first.create()
    assert not second.create()
    for staged in (first, second, left):
        staged.close()
    assert store.read("a/k").data == b"x"
    assert list((tmp_path / ".tmp").iterdir()) == []


def test_what_is_being_staged_is_not_listed(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    store.create("a/k", b"x")
    (tmp_path / ".tmp" / "left by a killed writer").write_bytes(b"half")
    assert [info.key for info in store.list_objects("")] == ["a/k"]
    assert store.list_folders("") == ["a"]


def test_large_ranges_of_a_local_object_are_mapped_not_copied(tmp_path: Path) -> None:
    store, content = LocalStore(tmp_path), bytes(range(256)) * 4096
    store.create("k", content)
    whole, part = store.read_ranges("k", [ByteRange(0, len(content)), ByteRange(2, 4)])
    assert whole.obj is part.obj
    assert whole.readonly
    store.delete("k")
    assert bytes(whole) == content, "a view outlives the name it was read by"


def test_a_blob_that_was_made_again_is_seen_after_invalidate(tmp_path: Path) -> None:
    store, key = LocalStore(tmp_path), blob_key(sha256_hex(b"right"))
    store.create(key, b"wrong")
    assert bytes(store.read_range(key, ByteRange(0, 5))) == b"wrong"
    assert not store.invalidate(key), "the open file is the current one"
    assert bytes(store.read_range(key, ByteRange(0, 5))) == b"wrong"
    (tmp_path / key).unlink()  # by another process
    (tmp_path / key).write_bytes(b"right")
    assert store.invalidate(key)
    assert bytes(store.read_range(key, ByteRange(0, 5))) == b"right"


def test_a_blob_that_is_cut_off_while_open_is_an_error_not_a_crash(tmp_path: Path) -> None:
    store, key = LocalStore(tmp_path), blob_key(sha256_hex(b"0123456789"))
    store.create(key, b"0123456789")
    store.read_range(key, ByteRange(0, 10))
    (tmp_path / key).write_bytes(b"012")
    assert bytes(store.read_range(key, ByteRange(0, 3))) == b"012"
    with pytest.raises(CorruptError, match="ends at byte 3"):
        store.read_range(key, ByteRange(1, 10))


def test_few_files_stay_open(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    keys = [blob_key(sha256_hex(bytes([number]))) for number in range(200)]
    for key in keys:
        store.create(key, b"x")
    before = len(list(Path("/proc/self/fd").iterdir())) if Path("/proc/self/fd").exists() else 0
    for key in keys:
        store.read_range(key, ByteRange(0, 1))
    if before:
        assert len(list(Path("/proc/self/fd").iterdir())) - before <= MAX_OPEN_HANDLES


def test_an_object_has_the_mode_of_any_new_file(tmp_path: Path) -> None:
    """Other users may read a shared store if the umask allows it."""
    plain = tmp_path / "plain"
    plain.touch()
    store = LocalStore(tmp_path / "store")
    store.create("created", b"x")
    store.replace("replaced", b"x")
    for key in ("created", "replaced"):
        assert (tmp_path / "store" / key).stat().st_mode == plain.stat().st_mode


def test_an_object_too_large_to_hold_is_not_read_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("warpdata.storage.local.MAX_SMALL_OBJECT_BYTES", 10)
    store = LocalStore(tmp_path)
    store.create("k", b"12345678901")
    with pytest.raises(LimitExceededError, match="11 bytes"):
        store.read("k")
    assert b"".join(store.stream("k")) == b"12345678901"


def test_a_directory_signs_no_urls(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    store.create("k", b"x")
    with pytest.raises(UnsupportedError):
        store.signed_url("k", 60)
