"""If this fails, a power switch or an impatient operator costs a laboratory data that it was told was safe.

A child records with eight channels and says after each flush how many steps are safe. It is killed at a
random moment; then every step it called safe must be there, and no step may be wrong. Some children reach
the end of their episode, so that the assembly of the file is interrupted too.
"""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from tests.formats.wshard.recorder_process import CHANNEL_COUNT, NUMPY
from tests.formats.wshard.scenes import ROOT
from warpdata.errors import EpisodeCorruptedError
from warpdata.wshard import load_wshard, recover


def kill_once(folder: Path, seed: int) -> int:
    """How many steps the child had called safe when it died."""
    chance = random.Random(seed)
    path = folder / f"{seed}.wshard"
    count = chance.choice([200_000, 200_000, 600])
    options = [str(chance.choice([1, 3, 16, 64])), chance.choice(["never", "flush"]), str(count)]
    child = subprocess.Popen(
        [sys.executable, "-m", "tests.formats.wshard.recorder_process", str(path), *options],
        stdout=subprocess.PIPE,
        cwd=ROOT,
    )
    assert child.stdout is not None
    assert child.stdout.readline() == b"ready\n"
    time.sleep(chance.random() * 0.08)
    child.send_signal(signal.SIGKILL)
    told = [int(line) for line in child.stdout.read().splitlines(keepends=True) if line.endswith(b"\n")]
    child.stdout.close()
    assert child.wait() in (0, -signal.SIGKILL)
    safe = told[-1] if told else 0
    if path.exists():
        assert check(path) == count, "a file that has its name is whole"
        return safe
    partial = path.with_name(path.name + ".partial")
    try:
        report = recover(partial)
    except (EpisodeCorruptedError, FileNotFoundError):
        assert safe == 0, "the beginning is lost although steps were called safe"
        return 0
    assert report.step_count == check(path) >= safe
    return safe


def check(path: Path) -> int:
    episode = load_wshard(path)
    steps = np.arange(episode.length)[:, None] * 7
    for number in range(CHANNEL_COUNT):
        expected = ((np.arange(number + 1) + steps + number) % 120).astype(NUMPY[number])
        np.testing.assert_array_equal(episode.observations[f"c{number}"].data, expected)
    assert episode.rewards is not None
    np.testing.assert_array_equal(episode.rewards, np.arange(episode.length) % 1000)
    return episode.length


def test_killed_at_thirty_moments(tmp_path: Path) -> None:
    assert sum(kill_once(tmp_path, seed) > 0 for seed in range(30)) > 10


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_killed_at_two_hundred_moments(tmp_path: Path) -> None:
    assert sum(kill_once(tmp_path, seed) > 0 for seed in range(1000, 1200)) > 80
