"""If this fails, a killed recording loses steps that were reported as flushed, or recovers wrong ones.

A child process records eight channels and reports the number of flushed steps after each flush. The parent kills it
at a random moment after a random flush. Every reported step must be recovered, with the right values. Some children
have reached the end of their episode, so that the kill interrupts the assembly of the file.
"""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from tests.formats.wshard.recorder_process import CHANNEL_COUNT, NUMPY
from tests.formats.wshard.scenes import ROOT
from warpdata.errors import CorruptError
from warpdata.wshard import load_wshard, recover

RECORDER = (sys.executable, "-m", "tests.formats.wshard.recorder_process")


def kill_once(directory: Path, seed: int, recorder: Sequence[str] = RECORDER) -> tuple[Path, int] | None:
    """Record and kill. Return the journal and the number of steps that must be in it, unless the file is complete.

    The seed decides the flush; the delay after it only shifts the moment.
    """
    chance = random.Random(seed)
    path = directory / f"{seed}.wshard"
    is_short = chance.random() < 0.4
    count = 600 if is_short else 200_000
    flush_steps = chance.choice([16, 64]) if is_short else chance.choice([1, 3, 16, 64])
    flushes = 600 // flush_steps if is_short and chance.random() < 0.6 else chance.randrange(30)
    options = [str(flush_steps), chance.choice(["never", "flush"]), str(count)]
    child = subprocess.Popen(
        [*recorder, str(path), *options],
        stdout=subprocess.PIPE,
        cwd=ROOT,
    )
    assert child.stdout is not None
    assert child.stdout.readline() == b"ready\n"
    lines = [child.stdout.readline() for _ in range(min(flushes, 600 // flush_steps))]
    time.sleep(chance.random() * (0.02 if is_short else 0.003))
    child.send_signal(signal.SIGKILL)
    lines += child.stdout.read().splitlines(keepends=True)
    child.stdout.close()
    assert child.wait() in (0, -signal.SIGKILL)
    flushed = max((int(line) for line in lines if line.endswith(b"\n")), default=0)
    assert flushed >= flush_steps * min(flushes, 600 // flush_steps)
    if path.exists():
        assert check(path) == count, "a file under its final name is complete"
        return None
    return path.with_name(path.name + ".partial"), flushed


def recover_once(journal: Path, flushed: int) -> None:
    try:
        report = recover(journal)
    except (CorruptError, FileNotFoundError):
        assert flushed == 0, "the first record is lost although steps were flushed"
        return
    assert report.step_count == check(report.path) >= flushed


def kill_often(directory: Path, seeds: range) -> None:
    for seed in seeds:
        if left := kill_once(directory, seed):
            recover_once(*left)


def check(path: Path) -> int:
    """Compare every value with the expected one, and return the number of steps."""
    episode = load_wshard(path)
    steps = np.arange(episode.length)[:, None] * 7
    for number in range(CHANNEL_COUNT):
        expected = ((np.arange(number + 1) + steps + number) % 120).astype(NUMPY[number])
        np.testing.assert_array_equal(episode.observations[f"c{number}"].data, expected)
    assert episode.rewards is not None
    np.testing.assert_array_equal(episode.rewards, np.arange(episode.length) % 1000)
    return episode.length


def test_flushed_steps_survive_ten_kills(tmp_path: Path) -> None:
    kill_often(tmp_path, range(10))


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_flushed_steps_survive_two_hundred_kills(tmp_path: Path) -> None:
    kill_often(tmp_path, range(1000, 1200))
