"""If this fails, a dataset that is copied, renamed, restored, warmed or collected has lost or wrong indexes."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import warpdata as wd
from tests.indexing.scenes import check_equal
from warpdata.datasets import Dataset
from warpdata.settings import Settings
from warpdata.testing import S3Endpoint

FILTERS = ("label = 'b'", "label IN ('a', 'c') AND n > 20", "NOT (n <= 30) OR label IS NULL", "n = 7")
KINDS = {"main.label": "bitmap", "main.n": "btree", "main.emb": "ivf", "main.note": "text"}
WORDS = ("red", "green", "blue", "small", "big", "car", "cat", "tree")


def make_rows(first: int, count: int) -> pa.Table:
    rng = random.Random(first)
    vectors = np.random.default_rng(first).random((count, 8), np.float32)
    return pa.table(
        {
            "n": list(range(first, first + count)),
            "label": [rng.choice(["a", "b", "c", None]) for _ in range(count)],
            "note": [" ".join(rng.choices(WORDS, k=4)) for _ in range(count)],
            "emb": pa.FixedSizeListArray.from_arrays(pa.array(vectors.reshape(-1)), 8),
        }
    )


@pytest.fixture(autouse=True)
def always_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("warpdata.query.planner._MAX_SCAN_SHARE", 1e9)
    monkeypatch.setattr("warpdata.kinds.tables.row_indexes._SELECTIVE_SHARE", 1.0)


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """A local store with a table that has an index of each kind."""
    settings = Settings(store_url=(tmp_path / "store").as_uri(), cache_dir=tmp_path / "cache")
    build(settings)
    return settings


def build(settings: Settings) -> None:
    pytest.importorskip("faiss")
    wd.DatasetBuilder("a/b", settings=settings).add_table("main", make_rows(0, 60)).publish(label="v0")
    dataset = wd.dataset("a/b", settings=settings)
    for name, kind in KINDS.items():
        dataset = dataset.create_index("main", name.partition(".")[2], kind=kind)
    dataset.snapshot("v1")


def answers(dataset: Dataset) -> list[object]:
    """Compare every kind of index with a scan, and return what it finds."""
    for text in FILTERS:
        check_equal(dataset.table(), text)
    near = dataset.search("main", near=("emb", [1.0] * 8), k=5)
    words = dataset.search("main", text="red cat", column="note", k=5)
    found: list[object] = [sorted(hits.to_arrow()["n"].to_pylist()) for hits in (near, words)]
    return found


def kinds(dataset: Dataset) -> dict[str, tuple[str, int]]:
    return {found.name: (found.kind, found.covered_rows) for found in dataset.indexes()}


EVERY = {name: (kind, 60) for name, kind in KINDS.items()}


def test_a_copy_and_a_renamed_dataset_answer_by_their_indexes(settings: Settings, tmp_path: Path) -> None:
    before = answers(wd.dataset("a/b", settings=settings))
    other = Settings(store_url=(tmp_path / "other").as_uri(), cache_dir=tmp_path / "cache2")
    for options in ({}, {"history": True}):
        name = f"c/d{len(options)}"
        wd.copy("a/b", other.store_url, name=name, settings=settings, **options)  # type: ignore[arg-type]
        copied = wd.dataset(name, settings=other)
        assert kinds(copied) == EVERY
        assert answers(copied) == before
        assert not wd.verify(copied).problems
    wd.rename("c/d1", "c/e", settings=other)
    renamed = wd.dataset("c/e@v1", settings=other)
    assert kinds(renamed) == EVERY
    assert answers(renamed) == before
    wd.rename("a/b", "a/z", settings=settings)
    assert answers(wd.dataset("a/z", settings=settings)) == before


def test_a_collection_keeps_what_indexes_need_and_takes_what_none_does(settings: Settings) -> None:
    dataset = wd.dataset("a/b", settings=settings)
    before = answers(dataset)
    with dataset.edit() as edit:
        edit.append("main", make_rows(60, 5))
    for name in KINDS:
        wd.dataset("a/b@main", settings=settings).update_index(name)
    newest = wd.dataset("a/b@main", settings=settings)
    old_blobs = {blob.hash for blob in wd.dataset("a/b@v1", settings=settings).blobs()}
    wd.gc(keep="labels, last 1", dry_run=False, wait_s=0, settings=settings)
    assert kinds(wd.dataset("a/b@main", settings=settings)) == {name: (kind, 65) for name, kind in KINDS.items()}
    assert not wd.verify(newest).problems
    answers(wd.dataset("a/b@main", settings=settings))
    kept = wd.dataset("a/b@v1", settings=settings)
    assert not wd.verify(kept).problems
    assert answers(kept) == before
    for name in KINDS:
        wd.dataset("a/b@main", settings=settings).drop_index(name)
    wd.remove("a/b@v1", settings=settings)
    assert wd.gc(keep="last 1", dry_run=False, wait_s=0, settings=settings).report.deleted_count
    bare = wd.dataset("a/b@main", settings=settings)
    assert not wd.verify(bare).problems
    writer = dataset.session.writer
    stored = {info.key.rpartition("/")[2] for info in writer.list_objects("blobs")}
    only_indexes = old_blobs - {blob.hash for blob in bare.blobs()}
    assert only_indexes
    assert not stored & only_indexes


def test_a_restored_version_has_its_indexes_and_new_rows_are_scanned(settings: Settings) -> None:
    dataset = wd.dataset("a/b", settings=settings)
    before = answers(dataset)
    with dataset.edit() as edit:
        edit.append("main", make_rows(60, 5))
        edit.delete("main", "n < 30")
        edit.drop_column("main", "note")
    changed = wd.dataset("a/b@main", settings=settings)
    assert "main.note" not in kinds(changed)
    restored = changed.restore("v1")
    assert answers(wd.dataset("a/b@main", settings=settings)) == before
    assert kinds(wd.dataset("a/b@main", settings=settings)) == EVERY
    wd.dataset("a/b@main", settings=settings).restore("v0")
    assert kinds(wd.dataset("a/b@main", settings=settings)) == {}
    wd.dataset("a/b@main", settings=settings).restore(restored.version)
    with wd.dataset("a/b@main", settings=settings).edit() as edit:
        edit.append("main", make_rows(70, 5))
        edit.update("main", "n = 7", {"label": "b"})
    listed = wd.dataset("a/b@main", settings=settings)
    answers(listed)
    assert 72 in listed.table().filter("n >= 70").to_arrow()["n"].to_pylist()
    ids = listed.table().sample_ids()
    assert len(np.unique(ids)) == len(ids)


def test_a_warmed_dataset_answers_by_its_indexes_without_the_store(
    s3_server: S3Endpoint, s3_url: str, tmp_path: Path
) -> None:
    remote = replace(s3_server.settings(), store_url=s3_url, cache_dir=tmp_path / "cache")
    build(remote)
    before = answers(wd.dataset("a/b", settings=replace(remote, cache_dir=tmp_path / "cold")))
    wd.dataset("a/b", settings=remote).warm()
    warmed = wd.dataset("a/b", mode="local", settings=remote)
    assert answers(warmed) == before
    assert kinds(warmed) == EVERY
    wd.copy("a/b", (tmp_path / "disk").as_uri(), settings=remote)
    on_disk = Settings(store_url=(tmp_path / "disk").as_uri(), cache_dir=tmp_path / "cache3")
    assert answers(wd.dataset("a/b", settings=on_disk)) == before
