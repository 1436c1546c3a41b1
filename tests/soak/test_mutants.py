"""If this fails, a damaged media file or foreign dataset ends the process, raises an untyped error, or changes rows.

Each decoder runs in a child process, because a crash of a C library cannot be caught. The child has little memory and
a limit of CPU time for each mutant.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.soak.mutants import TARGETS

QUICK_COUNT = 40
SOAK_COUNT = 5_000


def run(target: str, first: int, count: int, directory: Path) -> None:
    command = [
        sys.executable,
        "-W",
        "ignore",
        "-m",
        "tests.soak.mutants",
        target,
        str(first),
        str(count),
        str(directory),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    number = (directory / "number").read_text() if (directory / "number").exists() else "none"
    reason = signal.Signals(-done.returncode).name if done.returncode < 0 else f"status {done.returncode}"
    assert done.returncode == 0, f"{target}: mutant {number} ended the process: {reason}\n{done.stderr[-3000:]}"


@pytest.mark.parametrize("target", TARGETS)
def test_a_few_mutants(target: str, tmp_path: Path) -> None:
    run(target, 0, QUICK_COUNT, tmp_path)


@pytest.mark.soak
@pytest.mark.parametrize("target", TARGETS)
def test_thousands_of_mutants(target: str, tmp_path: Path) -> None:
    run(target, QUICK_COUNT, SOAK_COUNT, tmp_path)
