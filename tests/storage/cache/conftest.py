"""Scenes that are cleared away, and a check that no test leaves a thread or a part behind."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.storage.cache.scenes import Scene


@pytest.fixture(autouse=True)
def no_syncing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Waiting for the disk proves nothing here; one test looks at the order of steps."""
    monkeypatch.setattr(os, "fsync", lambda fd: None)


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    made = Scene(tmp_path)
    yield made
    made.close()
    assert not [name for name in made.files() if name.endswith((".part", ".new", ".map"))]


@pytest.fixture(autouse=True)
def threads_end() -> Iterator[None]:
    yield
    for thread in threading.enumerate():
        if thread.name == "warpdata-cache":
            thread.join(10)
            assert not thread.is_alive()
