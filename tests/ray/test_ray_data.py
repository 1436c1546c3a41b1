"""If this fails, rows are lost, doubled or changed between a dataset and Ray Data."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import warpdata as wd
from tests.jobs import scenes
from warpdata.errors import BadInputError, InvalidSourceError, SchemaMismatchError

ROWS = scenes.SHARDS * scenes.ROWS


@pytest.fixture
def photos(local_ray: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> wd.Dataset:
    """A dataset with images and rows."""
    scenes.new_store(monkeypatch, tmp_path / "store")
    scenes.ingest(scenes.write_images(tmp_path / "images"))
    scenes.append_rows()
    return wd.dataset(scenes.NAME)


@pytest.mark.parametrize("blocks", [1, 5, 40])
def test_every_row_comes_once(photos: wd.Dataset, blocks: int) -> None:
    rows = photos.to_ray("rows", columns=["n", "word"], blocks=blocks)
    assert rows.count() == ROWS
    assert rows.schema().names == ["n", "word"]
    found = pa.concat_tables(rows.iter_batches(batch_format="pyarrow", batch_size=700))
    assert found.sort_by("n").equals(photos.table("rows").select(["n", "word"]).to_arrow().sort_by("n"))


def test_the_number_of_rows_is_known_before_anything_is_read(photos: wd.Dataset) -> None:
    import ray.data as data

    numbers = pa.table({"n": np.random.default_rng(1).permutation(400_000)})
    wd.DatasetBuilder("acme/numbers").add_table("main", numbers).publish()
    indexed = wd.dataset("acme/numbers").create_index("main", "n", "btree")
    reads: list[Any] = []
    original = data.read_datasource

    def keep(source: Any, **options: Any) -> Any:
        reads.append(source)
        return original(source, **options)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(data, "read_datasource", keep)
        photos.to_ray("rows")
        indexed.to_ray(filter="n = 1234")
        photos.to_ray("rows", filter="n < 1234")
    counts = [[task.metadata.num_rows for task in source.get_read_tasks(7)] for source in reads]
    assert (sum(counts[0]), sum(counts[1]), counts[2]) == (ROWS, 1, [None] * 7)
    assert all(task.metadata.size_bytes for task in reads[0].get_read_tasks(7))


def test_columns_and_filters_are_read_by_the_tasks(photos: wd.Dataset) -> None:
    rows = photos.to_ray("rows", filter="n % 10 = 3", blocks=4).select_columns(["word", "n"])
    taken = rows.take_all()
    assert Counter(row["n"] for row in taken) == Counter(range(3, ROWS, 10))
    assert all(row.keys() == {"word", "n"} for row in taken)
    assert photos.to_ray("rows").limit(17).count() == 17
    sample = photos.sample(100, table="rows")
    assert sorted(row["n"] for row in photos.to_ray(sample).take_all()) == sorted(sample.to_arrow()["n"].to_pylist())


def test_references_are_resolved_in_the_workers(photos: wd.Dataset) -> None:
    refs = photos.table("main").to_arrow()["image"].to_pylist()
    expected = {ref.path: ref.read_bytes() for ref in refs}
    rows = photos.to_ray("main", blocks=3)
    assert Counter(row["image"] for row in rows.take_all()) == Counter(expected.values())
    stored = photos.to_ray("main", references="stored", columns="image")
    assert {row["image"] for row in stored.take_all()} == expected.keys()
    with pytest.raises(BadInputError, match="is not known"):
        photos.to_ray("main", references="pixels")  # type: ignore[arg-type]


def test_streaming_split_gives_each_row_to_one_consumer(photos: wd.Dataset) -> None:
    import ray

    def consume(part: Any) -> list[int]:
        return [int(n) for batch in part.iter_batches(batch_size=64) for n in batch["n"]]

    parts = photos.to_ray("rows", columns=["n"], blocks=8).streaming_split(3)
    run = ray.remote(num_cpus=0.1)(consume)
    taken = ray.get([run.remote(part) for part in parts])
    assert sorted(n for part in taken for n in part) == list(range(ROWS))


def test_a_sink_commits_once(photos: wd.Dataset, tmp_path: Path) -> None:
    def scale(batch: dict[str, Any]) -> dict[str, Any]:
        return {"n": batch["n"], "v": batch["v"] * 2, "pair": np.stack([batch["x"], -batch["x"]], axis=1)}

    rows = photos.to_ray("rows", blocks=6).map_batches(scale)
    done = wd.write_ray(rows, "acme/clean", message="scale")
    clean = wd.dataset("acme/clean")
    assert (done.version, len(clean.history())) == (clean.version, 1)
    found = clean.table().to_arrow().sort_by("n")
    source = photos.table("rows").to_arrow().sort_by("n")
    assert found["n"].to_pylist() == list(range(ROWS))
    assert found.schema.field("v").type == pa.list_(pa.float32(), 8)
    assert found["pair"].to_pylist() == [[x, -x] for x in source["x"].to_pylist()]
    assert wd.verify("acme/clean").problems == ()
    appended = wd.write_ray(rows.limit(10), "acme/clean", append=True)
    assert wd.dataset("acme/clean").table().count() == ROWS + 10
    assert appended.version == wd.dataset("acme/clean").version
    assert not [*(tmp_path / "store" / "leases").glob("*")]


def test_a_failed_write_changes_nothing(photos: wd.Dataset) -> None:
    def refuse(batch: dict[str, Any]) -> dict[str, Any]:
        if 1200 in batch["n"]:
            raise ValueError("this row cannot be scaled")
        return batch

    rows = photos.to_ray("rows", blocks=6).map_batches(refuse)
    with pytest.raises(Exception, match="this row cannot be scaled"):
        wd.write_ray(rows, "acme/clean")
    assert "acme/clean" not in wd.list_datasets()


def test_blocks_of_different_columns_are_refused(photos: wd.Dataset) -> None:
    def uneven(batch: dict[str, Any]) -> dict[str, Any]:
        return {"n": batch["n"] if batch["n"][0] < 1000 else [str(n) for n in batch["n"]]}

    rows = photos.to_ray("rows", blocks=6, columns=["n"]).map_batches(uneven, batch_size=None)
    with pytest.raises(Exception, match="different columns") as caught:
        wd.write_ray(rows, "acme/clean")
    assert isinstance(caught.value, SchemaMismatchError) or "SchemaMismatchError" in str(caught.value)
    empty = photos.to_ray("rows", columns=["n"]).filter(lambda row: False)
    with pytest.raises(InvalidSourceError, match="no rows"):
        wd.write_ray(empty, "acme/empty")
