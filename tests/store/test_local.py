"""If these fail, a local directory is not a store: objects may be lost, torn, hidden or out of place."""

from __future__ import annotations

from pathlib import Path

import pytest

from warpdata.errors import LimitExceededError, UnsupportedError
from warpdata.store import ByteRange, LocalStore, Writer
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


def test_what_is_being_staged_is_not_listed(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    store.create("a/k", b"x")
    (tmp_path / ".tmp" / "left by a killed writer").write_bytes(b"half")
    assert [info.key for info in store.list_objects("")] == ["a/k"]
    assert store.list_folders("") == ["a"]


def test_ranges_of_a_local_object_are_mapped_not_copied(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    store.create("k", b"0123456789")
    whole, part = store.read_ranges("k", [ByteRange(0, 10), ByteRange(2, 4)])
    assert whole.obj is part.obj
    assert whole.readonly
    store.delete("k")
    assert bytes(whole) == b"0123456789", "a view outlives the name it was read by"


def test_an_object_has_the_mode_of_any_new_file(tmp_path: Path) -> None:
    """Others may read a shared store as far as the user's umask allows."""
    plain = tmp_path / "plain"
    plain.touch()
    store = LocalStore(tmp_path / "store")
    store.create("created", b"x")
    store.replace("replaced", b"x")
    for key in ("created", "replaced"):
        assert (tmp_path / "store" / key).stat().st_mode == plain.stat().st_mode


def test_an_object_too_large_to_hold_is_not_read_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("warpdata.store.local.MAX_SMALL_OBJECT_BYTES", 10)
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
