"""If this fails, a call that the first specification of the project writes down does not work as written."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import warpdata as wd
from tests.storage.cache.scenes import eventually
from tests.web_server import serving
from warpdata import errors
from warpdata.errors import BadInputError, DatasetNotFoundError
from warpdata.kinds.tables import Table
from warpdata.settings import load_settings

images = pytest.importorskip("PIL.Image", reason="the extra warpdata[image] is not installed")

ROWS = 240


@pytest.fixture
def image_dir(tmp_path: Path) -> Path:
    directory = tmp_path / "images"
    directory.mkdir()
    for number in range(4):
        images.new("RGB", (6, 4), (number, 0, 0)).save(directory / f"{number}.png")
    return directory


@pytest.fixture
def parquet_files(tmp_path: Path) -> list[Path]:
    paths = [tmp_path / f"{part}.parquet" for part in range(3)]
    for part, path in enumerate(paths):
        ids = range(part * 80, part * 80 + 80)
        rows = {"id": ids, "image": [f"{n % 4}.png" for n in ids]}
        pq.write_table(pa.table(rows), path, row_group_size=20)
    return paths


@pytest.fixture
def published(tmp_path: Path, parquet_files: list[Path], image_dir: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("WARP_STORE", str(tmp_path / "store"))
    builder = wd.DatasetBuilder("ws/name")
    builder.add_table("main", parquet_files)
    builder.add_artifact("raw_images", image_dir, kind="tar_shards")
    builder.bind("main", "image", "raw_images", "image")
    return builder.publish(set_latest=True).version


def ids(batches: Any) -> list[int]:
    return [value for batch in batches for value in batch["id"].to_pylist()]


def test_reading_works_as_written(published: str) -> None:
    dataset = wd.dataset("ws/name", mode="auto")
    table = dataset.table("main")
    assert dataset.version == published
    assert table.schema().names == ["id", "image"]
    assert table.head(5).num_rows == 5
    assert table.select(["id"]).filter("id < 3").to_arrow()["id"].to_pylist() == [0, 1, 2]
    assert len(next(table.batches(10, columns=["id"], shard=(0, 2), limit=4))) == 4
    assert ids(table.batches(50, shard="auto", prefetch="auto")) == list(range(ROWS))
    assert next(table.batch_dicts(3, columns=["id"], prefetch="auto")) == {"id": [0, 1, 2]}
    assert dataset.warm(tables=["main"], max_bytes="200GB").blobs == 3
    assert (len(table.pandas()), len(table.polars())) == (ROWS, ROWS)


def test_references_work_as_written(published: str) -> None:
    batch = next(wd.dataset("ws/name").table("main").batches(8))
    ref = batch["image"][0]
    assert ref.as_pil().size == (6, 4)
    assert ref.as_numpy().shape == (4, 6, 3)
    assert ref.open().read() == ref.read_bytes() == ref.local_path().read_bytes()
    assert images.open(io.BytesIO(ref.read_bytes())).size == (6, 4)


def test_errors_have_the_names_that_are_written() -> None:
    assert issubclass(errors.AccessDeniedError, PermissionError)
    assert issubclass(errors.AuthenticationError, errors.DeniedError)
    assert issubclass(errors.ManifestCorruptedError, errors.CorruptError)
    with pytest.raises(DatasetNotFoundError):
        wd.dataset("ws/nothing")


def test_to_torch_takes_the_batch_size_first(published: str) -> None:
    pytest.importorskip("torch", reason="the extra warpdata[torch] is not installed")
    dataset = wd.dataset("ws/name")
    batch = next(iter(dataset.to_torch(16, shard="auto", prefetch="auto")))
    assert len(batch["id"]) == 16
    assert len(next(iter(dataset.to_torch(8, "main")))["id"]) == 8
    assert len(next(iter(dataset.to_torch(batch_size=4, table="main")))["id"]) == 4
    with pytest.raises(BadInputError, match="batch_size must be int"):
        dataset.to_torch("main")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="batch_size"):
        dataset.to_torch(8, batch_size=8)


@pytest.mark.parametrize("prefetch", ["auto", 0, 1, 3, 1000])
def test_prefetch_does_not_change_the_rows(published: str, prefetch: Any) -> None:
    table = wd.dataset("ws/name").table()
    assert ids(table.batches(7, prefetch=prefetch)) == list(range(ROWS))
    assert ids(table.filter("id % 3 = 0").batches(7, prefetch=prefetch)) == list(range(0, ROWS, 3))
    assert ids(table.batches(7, prefetch=prefetch, limit=50)) == list(range(50))


@pytest.fixture
def wide(tmp_path: Path) -> Path:
    """Row groups that are too large to be fetched with their footer."""
    values = np.random.default_rng(0).integers(0, 2**62, 600_000)
    path = tmp_path / "wide.parquet"
    pq.write_table(pa.table({"id": values}), path, row_group_size=100_000, compression="none")
    wd.DatasetBuilder("ws/wide", (tmp_path / "store").as_uri()).add_table("main", path).publish()
    return tmp_path / "store"


def count_requests(store: Path, prefetch: Any, least: int) -> int:
    """Wait for `least` requests for the first batch of one row group, after the footer, and return their number."""
    with serving(store) as server:
        settings = replace(load_settings(), store_url=server.url)
        table = wd.dataset("ws/wide", mode="remote", settings=settings).table()
        table.count()
        table.schema()
        list(table.batches(1, limit=1))
        before = len(server.requests)
        batches = table.batches(100_000, prefetch=prefetch)
        next(batches)
        eventually(lambda: len(server.requests) - before >= least)  # those that read ahead have threads of their own
        used = len(server.requests) - before
        assert sum(batch.num_rows for batch in batches) == 500_000
        return used


def test_no_prefetch_reads_what_the_batch_needs(wide: Path) -> None:
    assert count_requests(wide, 0, least=1) == 1
    assert count_requests(wide, 2, least=3) == 3
    assert count_requests(wide, "auto", least=4) > 3


def test_the_environment_sets_the_default(published: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert load_settings().prefetch == "auto"
    monkeypatch.setenv("WARP_PREFETCH", "2")
    dataset = wd.dataset("ws/name")
    assert dataset.session.settings.prefetch == 2
    assert dataset.stream().options.prefetch == 2
    assert dataset.stream(prefetch="auto").options.prefetch == 4
    assert dataset.stream(prefetch=1).options.prefetch == 1
    seen: list[Any] = []
    scan = Table._scan

    def recorded(table: Table, asked: Any) -> Any:
        seen.append(asked.ahead_rows)
        return scan(table, asked)

    monkeypatch.setattr(Table, "_scan", recorded)
    list(dataset.table().batches(10))
    list(dataset.table().batches(10, prefetch="auto"))
    assert seen == [20, None]
    monkeypatch.setenv("WARP_PREFETCH", "auto")
    assert wd.dataset("ws/name").stream().options.prefetch == 4
    monkeypatch.setenv("WARP_PREFETCH", "soon")
    with pytest.raises(BadInputError, match="WARP_PREFETCH='soon'"):
        wd.dataset("ws/name")


@pytest.mark.parametrize("prefetch", [-1, True, 1.5, "many"])
def test_a_wrong_prefetch_is_refused(published: str, prefetch: Any) -> None:
    with pytest.raises(BadInputError, match="prefetch"):
        wd.dataset("ws/name").table().batches(5, prefetch=prefetch)


def test_a_version_can_be_published_without_being_the_latest(published: str) -> None:
    builder = wd.DatasetBuilder("ws/name").add_table("main", pa.table({"id": [1]}))
    builder.add_artifact("raw_images", {"a": b"a"})
    done = builder.publish("a trial", set_latest=False, label="trial")
    assert not done.changed
    assert wd.dataset("ws/name").version == published
    assert wd.dataset(f"ws/name@{done.version}").table().count() == 1
    trial = wd.dataset("ws/name@trial")
    assert (trial.version, trial.history()[0].message) == (done.version, "a trial")
    assert [revision.version for revision in wd.dataset("ws/name").history()] == [published]
    assert wd.verify(trial).problems == ()
    assert builder.publish(replace=True).changed
    assert wd.dataset("ws/name").version == done.version


def test_a_first_version_need_not_be_the_latest(tmp_path: Path) -> None:
    store = tmp_path.as_uri()
    done = wd.DatasetBuilder("ws/new", store).add_table("main", pa.table({"id": [1]})).publish(set_latest=False)
    with pytest.raises(DatasetNotFoundError):
        wd.dataset("ws/new", store=store)
    assert wd.dataset(f"ws/new@{done.version}", store=store).table().count() == 1
