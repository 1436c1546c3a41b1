"""What the tests of this folder share: the TypeScript library, built."""

from __future__ import annotations

import fcntl
import os
import shutil
from pathlib import Path

import pytest

from tests.formats.wshard.typescript import build


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built package; all workers of a run share one."""
    base = tmp_path_factory.getbasetemp()
    shared = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    folder, verdict = shared / "wshard-js", shared / "wshard-js.verdict"
    with (shared / "wshard-js.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not verdict.exists():
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            verdict.write_text(build(folder) or "")
    if reason := verdict.read_text():
        pytest.skip(reason)
    return folder
