"""If this fails, a service that was killed has lost what it acknowledged, or cannot go on."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def kill(scene: str, tmp_path: Path, stride: int) -> int:
    """Kill a process at every `stride`-th step of a scene, and let a second one go on. Return the number of kills."""
    command = [sys.executable, "-m", "tests.server.killed_process", scene, str(tmp_path / scene), str(stride)]
    done = subprocess.run(
        command, cwd=ROOT, env=os.environ | {"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


@pytest.mark.parametrize(("scene", "stride"), [("purge", 41), ("repair", 25), ("upload", 17), ("parts", 17)])
def test_kill_at_some_steps(scene: str, stride: int, tmp_path: Path) -> None:
    assert kill(scene, tmp_path, stride) > 1


@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("scene", ["purge", "repair", "upload", "parts"])
def test_kill_at_every_step(scene: str, tmp_path: Path) -> None:
    assert kill(scene, tmp_path, 1) > 20
