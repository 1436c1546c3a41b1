"""If this fails, an interrupted job repeats finished work, commits twice, or leaves something broken behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import warpdata as wd
from tests.jobs import scenes
from warpdata.errors import AlreadyExistsError, BadInputError, WarpError
from warpdata.jobs import Job, Plan, ProcessEngine, Task, ThreadEngine
from warpdata.primitives.hashing import blob_key
from warpdata.primitives.progress import ProgressCounter, silent
from warpdata.repository.catalog import JOBS_PREFIX
from warpdata.repository.gc import CondemnedKeys
from warpdata.session import connect

JOB = "embed-2026"
DRIVER = """
from tests.jobs import scenes
from warpdata.jobs import ProcessEngine

if __name__ == "__main__":
    print(scenes.add_column(engine=ProcessEngine(workers=1), job="embed-2026"), flush=True)
"""


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A store with rows in some shards, and a file that counts the calls of functions."""
    monkeypatch.setenv(scenes.CALLS, str(tmp_path / "calls"))
    store = scenes.new_store(monkeypatch, tmp_path / "store")
    scenes.append_rows()
    return store


@pytest.fixture
def expected(store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The version that the change leads to without an engine, in a store of its own."""
    with monkeypatch.context() as patched:
        scenes.new_store(patched, tmp_path / "reference")
        patched.delenv(scenes.CALLS)
        scenes.append_rows()
        return scenes.add_column()


def records(store: Path) -> list[Path]:
    return sorted(store.glob(f"jobs/{JOB}/*.json"))


class StopAfter:
    """Interrupts the driver, like Ctrl-C, when some tasks have ended."""

    def __init__(self, tasks: int) -> None:
        self._tasks = tasks

    def __call__(self, event: Any) -> None:
        if event.stage == "rows" and event.done_files >= self._tasks:
            raise KeyboardInterrupt


def interrupt(tasks: int, **how: Any) -> None:
    with (
        pytest.raises(KeyboardInterrupt),
        wd.dataset(scenes.NAME).edit(progress=StopAfter(tasks)) as edit,
    ):
        edit.add_column("rows", "y", scenes.double, columns=["x"], batch_size=scenes.ROWS, job=JOB, **how)


def test_an_interrupted_job_goes_on_and_commits_once(store: Path, expected: str) -> None:
    before = scenes.commit_count()
    interrupt(3, engine=ThreadEngine(workers=1))
    done = len(records(store))
    assert done >= 3
    assert scenes.commit_count() == before
    assert not [*store.glob("leases/*")]
    calls = scenes.count_calls()
    assert scenes.add_column(engine=ThreadEngine(workers=1), job=JOB) == expected
    assert scenes.count_calls() - calls == scenes.SHARDS - done
    assert scenes.commit_count() == before + 1
    assert records(store) == []
    assert wd.verify(scenes.NAME).problems == ()


def test_a_killed_driver_goes_on_when_it_is_started_again(store: Path, expected: str, tmp_path: Path) -> None:
    script = tmp_path / "driver.py"
    script.write_text(DRIVER)
    root = str(Path(__file__).parents[2])
    environment = {**os.environ, "PYTHONPATH": root}
    before = scenes.commit_count()
    with subprocess.Popen([sys.executable, str(script)], env=environment, stdout=subprocess.DEVNULL) as driver:
        deadline = time.monotonic() + 60
        while not records(store) and time.monotonic() < deadline:
            time.sleep(0.01)
        driver.send_signal(signal.SIGKILL)
    assert records(store), "the driver was killed after its first task"
    assert scenes.commit_count() == before
    done = len(records(store))
    calls = scenes.count_calls()
    assert scenes.add_column(engine="threads", job=JOB) == expected
    assert scenes.count_calls() - calls <= scenes.SHARDS - done
    assert scenes.commit_count() == before + 1


def test_a_job_that_was_repeated_after_its_commit_is_committed_once(store: Path, expected: str) -> None:
    before = scenes.commit_count()
    for _ in range(2):  # the second call is that of a driver that was killed before it saw its commit
        assert scenes.add_column(engine=ThreadEngine(), job=JOB) == expected
    assert scenes.commit_count() == before + 1
    assert not records(store)
    with pytest.raises(AlreadyExistsError):
        scenes.add_column(engine=ThreadEngine(), job="another")
    with pytest.raises(AlreadyExistsError):
        scenes.add_column(engine=ThreadEngine())
    with wd.dataset(scenes.NAME).edit() as edit:
        edit.add_column("rows", "y", scenes.double, columns=["x"], engine=ThreadEngine(), job=JOB)
        with pytest.raises(BadInputError, match="committed by an earlier run"):
            edit.add_column("rows", "z", scenes.double, columns=["x"], engine=ThreadEngine(), job=JOB)
    with wd.dataset(scenes.NAME).edit() as edit:
        edit.drop_column("rows", "y")
    scenes.add_column(engine=ThreadEngine(), job=JOB)
    assert scenes.commit_count() == before + 3, "a job whose column was dropped is new work"


def test_a_killed_worker_is_replaced(store: Path, expected: str, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setenv(scenes.KILLS, str(tmp_path / "killed"))
    assert scenes.add_column(engine=ProcessEngine(workers=1), job=JOB) == expected
    assert (tmp_path / "killed").exists()
    assert scenes.count_calls() == scenes.SHARDS


def test_workers_that_always_die_are_an_error(store: Path) -> None:
    before = wd.dataset(scenes.NAME).version
    with pytest.raises(WarpError, match="ended 3 times"), wd.dataset(scenes.NAME).edit() as edit:
        edit.add_column("rows", "y", _die, columns=["x"], engine=ProcessEngine(workers=1))
    assert wd.dataset(scenes.NAME).version == before


def _die(batch: Any) -> Any:
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize("damage", ["corrupt", "empty", "other task", "blob lost", "newer bytes"])
def test_a_record_that_cannot_be_used_is_made_again(store: Path, expected: str, damage: str) -> None:
    interrupt(4, engine=ThreadEngine(workers=1))
    listed = records(store)
    victim, other = listed[0], listed[1]
    victim.chmod(0o644)
    if damage == "corrupt":
        data = bytearray(victim.read_bytes())
        data[len(data) // 2] ^= 1
        victim.write_bytes(data)
    elif damage == "empty":
        victim.write_bytes(b"")
    elif damage == "other task":
        victim.write_bytes(other.read_bytes())
    else:
        digest = json.loads(victim.read_bytes())["blobs"][0][0]
        blob = store / "blobs" / digest[:2] / digest[2:4] / digest
        blob.chmod(0o644)
        blob.unlink() if damage == "blob lost" else blob.write_bytes(b"shorter")
    calls = scenes.count_calls()
    assert scenes.add_column(engine=ThreadEngine(workers=1), job=JOB) == expected
    assert scenes.count_calls() - calls == scenes.SHARDS - len(listed) + 1
    assert wd.verify(scenes.NAME).problems == ()


def test_outputs_whose_keys_are_condemned_get_another_generation(
    store: Path, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A collection that began before the job may delete the plain keys at any moment."""
    interrupt(4, engine=ThreadEngine(workers=1))
    blobs = [json.loads(path.read_bytes())["blobs"][0][0] for path in records(store)]
    part = "gc/condemned/20260101T000000Z-00000000/00000"
    from warpdata.repository.gc import condemned

    keys = sorted((f"blobs/{digest[:2]}/{digest[2:4]}/{digest}", 1) for digest in blobs)
    connect().writer.create(part, condemned.encode_part(keys))
    version = scenes.add_column(engine=ThreadEngine(workers=1), job=JOB)
    generations = wd.dataset(scenes.NAME).manifest.generations
    assert set(blobs) <= generations.keys()
    assert version != expected
    for digest in blobs:
        plain = store / "blobs" / digest[:2] / digest[2:4] / digest
        plain.unlink(missing_ok=True)
    assert wd.verify(scenes.NAME).problems == ()
    assert wd.dataset(scenes.NAME).table("rows").select(["y"]).count() == scenes.SHARDS * scenes.ROWS


def test_a_collection_keeps_the_outputs_of_a_running_job_and_forgets_old_jobs(store: Path) -> None:
    session = connect()
    with Job(session, ThreadEngine(1), JOB, "a job") as job:
        plan = Plan(_Writing(), [Task("0" * 64, b"made by a task", 1)])
        (result,) = job.run(plan, ProgressCounter(silent, "rows", 1, 1))
        wd.gc(dry_run=False)
        assert session.reader.stat(blob_key(result.blobs[0].hash)).size_bytes == result.blobs[0].byte_size
    wd.gc(dry_run=False)
    assert len(records(store)) == 1, "an interrupted job may go on for a week"
    old = (datetime.now(UTC) - timedelta(days=8)).timestamp()
    os.utime(records(store)[0], (old, old))
    wd.gc(dry_run=False)
    assert not list(session.reader.list_objects(JOBS_PREFIX))


class _Writing:
    def open(self, session: Any) -> Any:
        def run(data: bytes, context: Any) -> None:
            path = context.new_directory() / "blob"
            path.write_bytes(data)
            context.add_file(path)

        return run


def test_the_first_record_of_a_task_decides(store: Path) -> None:
    """A task may run twice, such as on a node that was only thought lost. Its function may not be deterministic."""
    from warpdata.jobs.plan import TaskResult
    from warpdata.jobs.records import TaskRecords

    kept = TaskRecords(connect().writer, JOB, lambda _: None)
    first, second = TaskResult({"value": 1}), TaskResult({"value": 2})
    assert kept.put("a" * 64, first) == first
    assert kept.put("a" * 64, second) == first
    assert kept.load(["a" * 64, "b" * 64], CondemnedKeys()) == {"a" * 64: first}
