"""Fixtures of the WShard tests: the built TypeScript library."""

from __future__ import annotations

import fcntl
import os
import shutil
from pathlib import Path

import pytest

from tests.formats.wshard.typescript import build


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the built package, which all workers of a run share."""
    base = tmp_path_factory.getbasetemp()
    shared = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    directory, verdict = shared / "wshard-js", shared / "wshard-js.verdict"
    with (shared / "wshard-js.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not verdict.exists():
            shutil.rmtree(directory, ignore_errors=True)
            directory.mkdir()
            verdict.write_text(build(directory) or "")
    if reason := verdict.read_text():
        pytest.skip(reason)
    return directory
