"""If this fails, a Ray cluster gives another version than one process, or does not survive the loss of a node."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import warpdata as wd
from tests.exporters.scenes import files_of
from tests.jobs import scenes
from warpdata.jobs import RayEngine

LOSSES = ["ingest", "add_column", "add_column_of_images", "create_index", "compact"]


@pytest.fixture
def images(tmp_path: Path) -> Path:
    return scenes.write_images(tmp_path / "images")


def run(images: Path, name: str, store: Path, monkeypatch: pytest.MonkeyPatch, **how: Any) -> str:
    """Make a store, run one change, and return the version."""
    scenes.new_store(monkeypatch, store)
    if name == "ingest":
        return scenes.ingest(images, **how)
    scenes.ingest(images)
    scenes.append_rows()
    if name == "add_column":
        return scenes.add_column(**how)
    return scenes.CHANGES[name](**how)


@dataclass(frozen=True)
class GatedRay(RayEngine):
    """Lets tasks that begin after the first record wait for a file, so that a node is lost in the middle of one."""

    store: Path = Path()

    def run(self, function: Any, items: Any, on_progress: Any) -> Any:
        return super().run(Gated(function, self.store, f"gated {function.token}"), items, on_progress)


@dataclass
class Gated:
    function: Any
    store: Path
    token: str

    def __call__(self, task: Any, report: Any) -> Any:
        gate = self.store.with_name("gate")
        while list(self.store.glob("jobs/*/*.json")) and not gate.exists():
            time.sleep(0.01)
        return self.function(task, report)


@contextmanager
def losing_a_node(cluster: Any, store: Path) -> Iterator[list[str]]:
    """Kill the node of a worker when the first task of a job has ended."""
    lost: list[str] = []
    ended = threading.Event()

    def watch() -> None:
        while not ended.wait(0.02):
            if list(store.glob("jobs/*/*.json")):
                node = cluster.worker_nodes.copy().pop()
                cluster.remove_node(node, allow_graceful=False)
                lost.append(node.node_id)
                store.with_name("gate").touch()
                return

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield lost
    finally:
        ended.set()
        watcher.join()


@pytest.mark.parametrize("name", LOSSES)
def test_a_lost_node_changes_nothing(
    cluster: Any, images: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    scenes.small_segments(monkeypatch)
    expected = run(images, name, tmp_path / "single", monkeypatch)
    before = scenes.commit_count() - 1
    store = tmp_path / "cluster"
    with losing_a_node(cluster, store) as lost:
        found = run(images, name, store, monkeypatch, engine=GatedRay(store=store))
    assert found == expected
    assert len(lost) == 1
    assert scenes.commit_count() == before + 1
    assert wd.verify(scenes.NAME, engine="ray").problems == ()
    assert not [*store.glob("jobs/*/*"), *store.glob("leases/*")]


def test_verify_survives_the_loss_of_a_node(
    cluster: Any, images: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = scenes.new_store(monkeypatch, tmp_path / "store")
    scenes.ingest(images)
    scenes.append_rows()
    monkeypatch.setattr(sys.modules["warpdata.maintenance.verify"], "_TASK_BLOBS", 2)
    with losing_a_node(cluster, store) as lost:
        found = wd.verify(scenes.NAME, engine=GatedRay(store=store), job="scrub")
    assert len(lost) == 1
    assert found == wd.verify(scenes.NAME)
    assert found.blobs > 10


def test_an_export_is_written_by_the_cluster(
    cluster: Any, images: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("warpdata.exporters.file_copies._TASK_FILES", 10)
    scenes.new_store(monkeypatch, tmp_path / "store")
    scenes.ingest(images)
    wd.export(scenes.NAME, tmp_path / "plain", "imagefolder")
    wd.export(scenes.NAME, tmp_path / "divided", "imagefolder", engine="ray")
    assert files_of(tmp_path / "divided") == files_of(tmp_path / "plain")


def test_a_driver_that_was_interrupted_goes_on(
    cluster: Any, images: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = run(images, "add_column", tmp_path / "single", monkeypatch)
    scenes.new_store(monkeypatch, tmp_path / "cluster")
    scenes.ingest(images)
    scenes.append_rows()
    before = scenes.commit_count()

    def stop(event: Any) -> None:
        if event.stage == "rows" and event.done_files >= 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), wd.dataset(scenes.NAME).edit(progress=stop) as edit:
        edit.add_column("rows", "y", scenes.double, columns=["x"], batch_size=scenes.ROWS, engine="ray", job="j")
    assert scenes.commit_count() == before
    done = len(list((tmp_path / "cluster").glob("jobs/j/*.json")))
    assert done >= 2
    assert scenes.add_column(engine=RayEngine(workers=1), job="j") == expected
    assert scenes.commit_count() == before + 1


def test_a_function_of_a_notebook_travels_by_value(
    cluster: Any, images: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scenes.new_store(monkeypatch, tmp_path / "store")
    scenes.append_rows()
    factor = 3.0
    make: Callable[[Any], Any] = lambda batch: [value * factor for value in batch.column(0).to_pylist()]  # noqa: E731
    with wd.dataset(scenes.NAME).edit() as edit:
        edit.add_column("rows", "z", make, columns=["x"], engine=RayEngine(cpus=0.5, memory="50MB"))
    row = wd.dataset(scenes.NAME).table("rows").head(1).to_pylist()[0]
    assert row["z"] == row["x"] * 3


def test_an_error_of_a_function_ends_the_job(cluster: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scenes.new_store(monkeypatch, tmp_path / "store")
    scenes.append_rows()
    before = wd.dataset(scenes.NAME).version
    with pytest.raises(ValueError, match="no value for this row"), wd.dataset(scenes.NAME).edit() as edit:
        edit.add_column("rows", "z", scenes.refuse, engine="ray")
    assert wd.dataset(scenes.NAME).version == before
