"""If this fails, the result of a change depends on where its parts were computed."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

import warpdata as wd
from tests.exporters.scenes import files_of
from tests.jobs import scenes
from warpdata.errors import BadInputError
from warpdata.jobs import Engine, ProcessEngine, ThreadEngine
from warpdata.primitives.progress import ProgressEvent

PROCESSES = ProcessEngine(workers=1)


@pytest.fixture
def images(tmp_path: Path) -> Path:
    return scenes.write_images(tmp_path / "images")


@pytest.fixture
def published(images: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A store with the images and the rows, and small segments of indexes."""
    scenes.small_segments(monkeypatch)
    store = scenes.new_store(monkeypatch, tmp_path / "store")
    scenes.ingest(images)
    scenes.append_rows()
    return store


def test_every_change_gives_the_same_version_on_every_engine(
    images: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scenes.small_segments(monkeypatch)
    everything = list(scenes.CHANGES)
    # Processes take seconds to start, so they run two changes. The same functions run in threads.
    runs: list[tuple[Any, list[str]]] = [(None, everything), (ThreadEngine(3), everything), (PROCESSES, everything[:1])]
    expected: dict[str, str] = {}
    for number, (engine, changes) in enumerate(runs):
        store = scenes.new_store(monkeypatch, tmp_path / f"store-{number}")
        found = {"ingest": scenes.ingest(images, engine=engine)}
        scenes.append_rows()
        found |= {name: scenes.CHANGES[name](engine=engine) for name in changes}
        expected = expected or found
        assert found == {name: expected[name] for name in found}
        assert wd.verify(scenes.NAME).problems == ()
        assert not [*store.glob("jobs/*/*"), *store.glob("leases/*")]
    assert len(set(expected.values())) == len(expected)


@pytest.mark.parametrize(("kind", "compression"), [("files", None), ("tar_shards", "zstd")])
def test_every_packing_gives_the_same_version(
    images: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, compression: str | None
) -> None:
    found = set()
    for number, engine in enumerate([None, ThreadEngine()]):
        scenes.new_store(monkeypatch, tmp_path / f"store-{number}")
        found.add(scenes.ingest(images, kind=kind, compression=compression, engine=engine))
        assert wd.verify(scenes.NAME).problems == ()
    assert len(found) == 1


@pytest.mark.parametrize("engine", [ThreadEngine(), PROCESSES])
def test_corruption_is_found_by_every_engine(published: Path, engine: Engine) -> None:
    expected = wd.verify(scenes.NAME)
    victim = max((published / "blobs").rglob("*"), key=lambda path: path.stat().st_size if path.is_file() else 0)
    data = bytearray(victim.read_bytes())
    data[len(data) // 2] ^= 1
    victim.chmod(0o644)
    victim.write_bytes(data)
    found = wd.verify(scenes.NAME, engine=engine)
    assert (found.blobs, found.size_bytes) == (expected.blobs, expected.size_bytes)
    assert found.problems == wd.verify(scenes.NAME).problems != ()


def test_progress_of_all_workers_is_one_count(published: Path) -> None:
    events: list[ProgressEvent] = []
    with wd.dataset(scenes.NAME).edit("double", progress=events.append) as edit:
        edit.add_column("rows", "y", scenes.double, columns=["x"], batch_size=50, engine=PROCESSES)
    rows = [event for event in events if event.stage == "rows"]
    assert [event.done_bytes for event in rows] == sorted(event.done_bytes for event in rows)
    last = rows[-1]
    assert (last.done_bytes, last.done_files) == (scenes.SHARDS * scenes.ROWS, scenes.SHARDS)
    assert (last.total_bytes, last.total_files) == (last.done_bytes, last.done_files)


def test_an_error_of_a_function_is_raised_as_it_is_and_changes_nothing(published: Path) -> None:
    before = wd.dataset(scenes.NAME).version
    for engine in (ThreadEngine(), PROCESSES):
        with (
            pytest.raises(ValueError, match="no value for this row"),
            wd.dataset(scenes.NAME).edit() as edit,
        ):
            edit.add_column("rows", "y", scenes.refuse, engine=engine)
    assert wd.dataset(scenes.NAME).version == before
    assert not list((published / "leases").glob("*"))


def test_engines_are_checked_before_anything_is_done(published: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = wd.dataset(scenes.NAME)
    with pytest.raises(BadInputError, match="is not known"):
        wd.verify(scenes.NAME, engine="dask")
    with pytest.raises(BadInputError, match="needs an engine"):
        opened.compact(job="nightly")
    with pytest.raises(BadInputError, match="is not a job name"):
        opened.compact(engine="threads", job="a/b")
    with pytest.raises(BadInputError, match="is not a count"):
        wd.verify(scenes.NAME, engine=ProcessEngine(workers=0))
    monkeypatch.setenv("WARP_STORE", "memory://jobs")
    wd.DatasetBuilder("a/b").add_table("main", {"n": [1]}).publish()
    with pytest.raises(BadInputError, match="in the memory of this process"):
        wd.verify("a/b", engine="processes")
    assert wd.verify("a/b", engine="threads").problems == ()


@pytest.mark.parametrize("engine", [ThreadEngine(2), PROCESSES], ids=["threads", "processes"])
def test_an_export_is_the_same_on_every_engine(
    published: Path, tmp_path: Path, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("warpdata.exporters.file_copies._TASK_FILES", 50)
    monkeypatch.setattr("warpdata.exporters.file_copies._ROUND_FILES", 70)
    formats = ["parquet", "imagefolder"] if isinstance(engine, ThreadEngine) else ["imagefolder"]
    for format_ in formats:
        expected = wd.export(scenes.NAME, tmp_path / f"plain-{format_}", format_, table="main")
        events: list[ProgressEvent] = []
        target = tmp_path / f"divided-{format_}"
        found = wd.export(scenes.NAME, target, format_, table="main", engine=engine, progress=events.append)
        assert files_of(target) == files_of(tmp_path / f"plain-{format_}")
        assert (found.rows, found.files) == (expected.rows, expected.files) == (scenes.IMAGES, scenes.IMAGES)
        last = events[-1]
        assert (last.done_files, last.done_bytes) == (last.total_files, last.total_bytes)
    assert not [*published.glob("jobs/*/*"), *published.glob("leases/*")]


def test_an_export_that_cannot_be_divided_says_so(published: Path, tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match="has no engine"):
        wd.export(scenes.NAME, tmp_path / "out", "webdataset", table="main", engine=ThreadEngine())
    work = sys.modules["warpdata.exporters.file_copies"]._CopyWork(str(tmp_path / "elsewhere"))
    with pytest.raises(BadInputError, match="the directory of the export is not on"):
        work.open(wd.dataset(scenes.NAME).session)
    assert not list(tmp_path.glob("out*"))
