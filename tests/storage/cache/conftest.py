"""Scenes that are closed after each test, and a check that no test leaves a partial blob."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.storage.cache.scenes import Scene


@pytest.fixture(autouse=True)
def no_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    """Skip waits for the disk. One test checks the order of the steps."""
    monkeypatch.setattr(os, "fsync", lambda fd: None)


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    made = Scene(tmp_path)
    yield made
    made.close()
    assert all(reader._fetcher.is_idle for reader in made.readers)
    assert not [name for name in made.files() if name.endswith((".part", ".new", ".map"))]
