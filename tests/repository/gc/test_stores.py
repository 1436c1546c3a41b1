"""If these fail, collections lose data on a real S3 server or a disk, or many processes get in each other's way.

Processes publish, label, are killed and collect at the same time, with lost replies. Then every kept version is read
and hashed.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

import warpdata as wd
from tests.repository.gc.scenes import keys
from warpdata.datasets import open_dataset
from warpdata.errors import ErrorKind, NotFoundError
from warpdata.repository.catalog import Catalog, parse_address
from warpdata.session import connect
from warpdata.settings import load_settings
from warpdata.storage import ObjectStore, open_store
from warpdata.testing import S3Endpoint

HASTE = """
from datetime import timedelta
from warpdata.repository.gc import collector, lease
lease.RENEWAL_S, lease.VALID_S, lease.LAPSE = 0.2, 3.0, timedelta(seconds=10)
collector.LAPSE = timedelta(0)  # young objects are condemned, too
"""
"""Makes leases short, in the same proportions, and collections reckless."""
WRITER = """
import random, sys
import pyarrow as pa
import warpdata as wd
from warpdata.errors import ConflictError
from warpdata.session import Session, connect
from warpdata.testing import DropReplies, FaultyStore

url, process, commits = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
plain, chance = connect(url), random.Random(process)
lossy = FaultyStore(plain.writer, DropReplies(0.05, chance))
link = Session(lossy, lossy, plain.settings)
print("ready", flush=True)
for step in range(commits):
    while True:
        try:
            if step % 2:  # content that comes and goes: orphaned, condemned and needed again
                rows = pa.table({"n": pa.array([chance.randrange(6)], pa.int64())})
                wd.DatasetBuilder(f"a/flip{process % 2}", link).add_table("main", rows).publish(replace=True)
            else:
                rows = pa.table({"n": pa.array([process * 1000 + step], pa.int64())})
                wd.DatasetBuilder("a/log", link).append_table("main", rows).publish(f"{process}/{step}")
        except ConflictError as error:
            if "was not renewed" in error.message:
                continue  # this process stalled
            raise
        break
    print("done", process, step, flush=True)
"""
COLLECTOR = """
import os, sys
import warpdata as wd
from warpdata.errors import ConflictError

url, stop = sys.argv[1:]
while not os.path.exists(stop):
    try:
        report = wd.gc(url, keep="last 3", dry_run=False, wait_s=20).report
        print("done", report.deleted_count, flush=True)
    except ConflictError:
        print("busy", flush=True)
"""


def start(script: str, *arguments: object, environ: dict[str, str]) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", HASTE + script, *map(str, arguments)]
    return subprocess.Popen(
        command, env={**os.environ, **environ}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def run_together(url: str, stop: Path, environ: dict[str, str], *, writers: int, commits: int, kills: int) -> int:
    """Run writers, collectors and writers that are killed. Check all versions. Return how much was collected."""
    chance = random.Random(writers)
    running = [start(WRITER, url, number, commits, environ=environ) for number in range(writers)]
    collectors = [start(COLLECTOR, url, stop, environ=environ) for _ in range(1 + writers // 4)]
    for number in range(kills):
        victim = start(WRITER, url, 500 + number, commits, environ=environ)
        assert victim.stdout is not None
        for _ in range(chance.randint(1, 4)):
            victim.stdout.readline()
        victim.send_signal(signal.SIGKILL)
        victim.communicate()
    outputs = []
    for each in (*running, *collectors):
        if each is collectors[0]:
            stop.touch()
        output, errors = each.communicate(timeout=600)
        assert each.returncode == 0, errors[-2000:]
        outputs.append(output)
    lines = [line.split() for output in outputs[:writers] for line in output.splitlines() if line.startswith("done")]
    check_store(url, {int(process) * 1000 + int(step) for _, process, step in lines if int(step) % 2 == 0})
    collected = [line.split()[1] for output in outputs[writers:] for line in output.splitlines() if "done" in line]
    return sum(map(int, collected))


def check_store(url: str, acknowledged: set[int]) -> None:
    session = connect(url, mode="remote")
    catalog = Catalog(session.writer)
    for dataset_id in catalog.datasets():
        dataset = open_dataset(session, parse_address(dataset_id))
        assert not wd.verify(dataset).problems
        for entry in dataset.history():
            try:
                old = open_dataset(session, parse_address(f"{dataset_id}@{entry.version}"))
            except NotFoundError as error:
                if error.kind is not ErrorKind.VERSION_COLLECTED:
                    raise
            else:
                assert not wd.verify(old).problems
    log = open_dataset(session, parse_address("a/log"))
    seen = log.table().to_arrow()["n"].to_pylist()
    assert len(seen) == len(set(seen)) == len(log.history()), "every append is there once"
    assert acknowledged <= set(seen)


@pytest.fixture
def s3(s3_server: S3Endpoint, s3_url: str, monkeypatch: pytest.MonkeyPatch) -> str:
    for name, value in s3_server.environ().items():
        monkeypatch.setenv(name, value)
    return s3_url


def test_a_collection_on_s3(s3: str) -> None:
    """With the cache in front: a blob of a later generation is read, cached by content, and read offline."""

    def publish(*numbers: int) -> str:
        rows = pa.table({"n": pa.array(numbers, pa.int64())})
        return wd.DatasetBuilder("a/b", s3).add_table("main", rows).publish(replace=True).version

    first = publish(1, 2)
    publish(3)
    store = open_store(s3, load_settings())
    assert isinstance(store, ObjectStore)
    report = wd.gc(s3, keep="last 1", dry_run=False).report
    assert report.deleted_count == 2
    assert len(keys(store, "blobs")) == 1
    again = publish(1, 2)
    assert again != first
    dataset = wd.dataset("a/b", store=s3)
    assert len(dataset.manifest.generations) == 1
    assert dataset.table().to_arrow()["n"].to_pylist() == [1, 2]
    assert not wd.verify(dataset).problems
    dataset.warm()
    offline = wd.dataset("a/b", store=s3, mode="local")
    assert offline.table().to_arrow()["n"].to_pylist() == [1, 2]
    many = [f"blobs/00/00/{number:064x}" for number in range(1200)]
    for key in many[:3]:
        store.create(key, b"x")
    store.delete_many(many)
    assert len(keys(store, "blobs")) == 2


def test_processes_on_disk(tmp_path: Path) -> None:
    run_together((tmp_path / "store").as_uri(), tmp_path / "stop", {}, writers=2, commits=4, kills=1)


@pytest.mark.soak
@pytest.mark.timeout(1200)
def test_many_processes_on_disk(tmp_path: Path) -> None:
    assert run_together((tmp_path / "store").as_uri(), tmp_path / "stop", {}, writers=6, commits=40, kills=8) > 50


@pytest.mark.soak
@pytest.mark.timeout(1200)
def test_many_processes_on_s3(s3: str, s3_server: S3Endpoint, tmp_path: Path) -> None:
    assert run_together(s3, tmp_path / "stop", s3_server.environ(), writers=4, commits=30, kills=4) > 50
