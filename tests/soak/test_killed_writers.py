"""If this fails, a killed process loses an acknowledged commit, or leaves a dataset that others cannot extend.

Eight processes append to one branch. Each is killed at random moments and started again. A writer prints a line after
`publish` returns; every printed commit must be in the history once, and the history must be linear.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow as pa
import pytest

import warpdata as wd
from warpdata.testing import S3Endpoint

WRITER = """
import sys
import pyarrow as pa
import warpdata as wd

url, writer, first, last = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
for step in range(first, last):
    rows = pa.table({"n": pa.array([writer * 100_000 + step], pa.int64())})
    wd.DatasetBuilder("a/b", url).append_table("main", rows).publish(f"{writer}/{step}")
    print(step, flush=True)
"""


class Writer:
    """One writer that is killed and started again. An attempt that was killed is not repeated."""

    def __init__(self, url: str, number: int, commits: int, log: Path) -> None:
        self._url, self._number, self._commits, self._log = url, number, commits, log
        self._next = 0
        self.kills = 0
        self._process = self._start()

    def acknowledged(self) -> set[str]:
        lines = self._log.read_text().splitlines() if self._log.exists() else []
        return {f"{self._number}/{line}" for line in lines}

    def is_running(self) -> bool:
        if self._process.poll() is None:
            return True
        assert self._process.returncode in (0, -signal.SIGKILL), self._process.returncode
        return False

    def kill(self) -> None:
        """Kill the process and start one with the step after the last that may have begun."""
        self._process.kill()
        self._process.wait()
        self.kills += 1
        done = [int(line) for line in self._log.read_text().splitlines()] if self._log.exists() else []
        self._next = max(self._next, max(done, default=-1) + 1) + 1
        if self._next < self._commits:
            self._process = self._start()

    def _start(self) -> subprocess.Popen[bytes]:
        arguments = [self._url, str(self._number), str(self._next), str(self._commits)]
        with self._log.open("ab") as log:
            return subprocess.Popen([sys.executable, "-c", WRITER, *arguments], stdout=log, env=dict(os.environ))


def run(url: str, directory: Path, writers: int, commits: int) -> None:
    chance = random.Random(commits)
    started = [Writer(url, number, commits, directory / f"{number}.log") for number in range(writers)]
    while any(running := [writer for writer in started if writer.is_running()]):
        time.sleep(chance.uniform(0.05, 0.8))
        chance.choice(running).kill()
    acknowledged = set().union(*(writer.acknowledged() for writer in started))
    rows = pa.table({"n": pa.array([-1], pa.int64())})
    wd.DatasetBuilder("a/b", url).append_table("main", rows).publish("last")
    dataset = wd.dataset("a/b", store=url)
    messages = [entry.message for entry in dataset.history()]
    assert messages[0] == "last", "the dataset cannot be extended"
    assert len(messages) == len(set(messages)), "a commit was repeated"
    assert acknowledged <= set(messages), f"lost: {sorted(acknowledged - set(messages))}"
    numbers = dataset.table().to_arrow()["n"].to_pylist()
    assert len(numbers) == len(set(numbers)) == len(messages)
    assert not wd.verify(dataset).problems
    assert sum(writer.kills for writer in started), "no process was killed"


@pytest.mark.soak
def test_writers_killed_on_a_local_store(tmp_path: Path) -> None:
    run((tmp_path / "store").as_uri(), tmp_path, writers=8, commits=30)


@pytest.mark.soak
@pytest.mark.s3
def test_writers_killed_on_s3(
    s3_server: S3Endpoint, s3_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in s3_server.environ().items():
        monkeypatch.setenv(name, value)
    run(s3_url, tmp_path, writers=8, commits=30)
