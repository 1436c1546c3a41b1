"""If this fails, a worker of a loader waits for ever for a lock that a thread of its parent held when it was forked."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.primitives.test_fork import run_in_fork
from warpdata.primitives.fork import ForkSafeLock

ROOT = Path(__file__).parents[2]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="a system without fork")
def test_a_child_reads_while_every_lock_was_held(tmp_path: Path) -> None:
    """Forking with threads is unsafe, but loaders of torch do it. Stores on a network refuse it."""
    command = [sys.executable, "-W", "ignore", "-m", "tests.faults.fork_scene", (tmp_path / "store").as_uri()]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=100, check=False)
    assert ran.returncode == 0, ran.stderr


def test_a_lock_that_is_held_is_free_in_the_child() -> None:
    lock = ForkSafeLock()

    def takes_it() -> bool:
        with lock:
            return True

    with lock:
        run_in_fork(takes_it)
