"""If this fails, processes that commit to one branch at the same time lose or repeat each other's work."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

import pytest

from tests.faults.scenes import link
from warpdata.datasets import open_dataset
from warpdata.repository.catalog import parse_address
from warpdata.settings import load_settings
from warpdata.storage import open_store

WRITER = """
import random, sys
import pyarrow as pa
import warpdata as wd
from warpdata.session import Session, connect
from warpdata.testing import DropReplies, FaultyStore

url, process, commits = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
plain = connect(url)
lossy = FaultyStore(plain.writer, DropReplies(0.05, random.Random(process)))
link = Session(lossy, lossy, plain.settings)
for step in range(commits):
    rows = pa.table({"n": pa.array([process * 1000 + step], pa.int64())})
    wd.DatasetBuilder("a/b", link).append_table("main", rows).publish(f"{process}/{step}")
"""


def race(url: str, processes: int, commits: int, environ: dict[str, str] | None = None) -> None:
    import os

    running = [
        subprocess.Popen(
            [sys.executable, "-c", WRITER, url, str(process), str(commits)],
            env={**os.environ, **(environ or {})},
            stderr=subprocess.PIPE,
            text=True,
        )
        for process in range(processes)
    ]
    for each in running:
        _, errors = each.communicate(timeout=300)
        assert each.returncode == 0, errors[-2000:]


@pytest.mark.timeout(300)
@pytest.mark.parametrize("commits", [4, pytest.param(10, marks=pytest.mark.soak)])
def test_eight_processes_of_many_commits(tmp_path: Path, commits: int) -> None:
    url = (tmp_path / "store").as_uri()
    race(url, processes=8, commits=commits)
    dataset = open_dataset(link(open_store(url, load_settings())), parse_address("a/b"))
    messages = [entry.message for entry in dataset.history()]
    assert sorted(messages) == sorted(f"{process}/{step}" for process in range(8) for step in range(commits))
    seen = dataset.table().to_arrow()["n"].to_pylist()
    assert sorted(seen) == sorted(process * 1000 + step for process in range(8) for step in range(commits))
    for process in range(8):
        mine = [n for n in seen if n // 1000 == process]
        assert mine == sorted(mine), "one writer's commits stay in its order"


@pytest.mark.s3
@pytest.mark.timeout(300)
def test_processes_race_on_s3(s3_server: object, s3_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    environ = s3_server.environ()  # type: ignore[attr-defined]
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    race(s3_url, processes=4, commits=5, environ=environ)
    dataset = open_dataset(
        link(open_store(s3_url, load_settings()), random.Random(1).randrange(9)), parse_address("a/b")
    )
    assert len({entry.message for entry in dataset.history()}) == len(dataset.history()) == 20
