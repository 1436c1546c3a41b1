"""If these fail, tests and notebooks that run in memory do not say anything about real stores."""

from __future__ import annotations

import secrets
from pathlib import Path

import pytest

from warpdata.errors import LimitExceededError, UnsupportedError
from warpdata.settings import Settings
from warpdata.storage import Writer, open_store
from warpdata.testing import StoreSuite


class TestMemoryStore(StoreSuite):
    @pytest.fixture
    def store(self, tmp_path: Path) -> Writer:
        return _open(tmp_path, secrets.token_hex(8))


def test_one_name_is_one_store(tmp_path: Path) -> None:
    name = secrets.token_hex(8)
    _open(tmp_path, name).create("k", b"shared")
    assert _open(tmp_path, name).read("k").data == b"shared"
    assert list(_open(tmp_path, name + "-other").list_objects("")) == []


def test_an_object_too_large_to_hold_is_not_read_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("warpdata.storage.object_store.MAX_SMALL_OBJECT_BYTES", 10)
    store = _open(tmp_path, secrets.token_hex(8))
    store.create("k", b"12345678901")
    with pytest.raises(LimitExceededError, match="11 bytes"):
        store.read("k")
    assert b"".join(store.stream("k")) == b"12345678901"


def test_memory_signs_no_urls(tmp_path: Path) -> None:
    store = _open(tmp_path, secrets.token_hex(8))
    store.create("k", b"x")
    with pytest.raises(UnsupportedError):
        store.signed_url("k", 60)


def _open(folder: Path, name: str) -> Writer:
    url = f"memory://{name}"
    return open_store(url, Settings(store_url=url, cache_dir=folder))
