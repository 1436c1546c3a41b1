"""If this fails, publishing, comparing or warming an edited table loses rows, resurrects deleted ones, or miscounts."""

from __future__ import annotations

import itertools
from pathlib import Path

import pyarrow as pa

import warpdata as wd
from tests.cli.scenes import ask, run
from tests.kinds.tables.edited import ExtraColumns, StoredShard, publish_edited
from warpdata.repository.manifest import SchemaChange

_stores = itertools.count()
ROWS = 60


def _edited(store: str, gone: set[int]) -> wd.Dataset:
    """A version with deleted rows (in a blob), ids that move, a column file and a rename."""
    rows = pa.table({"n": range(ROWS), "old": [f"t{n % 4}" for n in range(ROWS)]})
    extra = pa.table({"m": [n * 10 for n in range(ROWS)]})
    ids = [*range(ROWS - 1, -1, -1)]
    shard = StoredShard(rows, sorted(gone), ids, files=[ExtraColumns(extra, 1)])
    changes = [SchemaChange("old", "word")]
    return publish_edited(store, [shard], changes=changes, columns=["m", "n", "word"], next_id=100)


def _store() -> str:
    return f"memory://publish-edited-{next(_stores)}"


def test_an_edited_table_is_published_with_its_ids_and_deletes() -> None:
    dataset = _edited(_store(), set(range(0, ROWS, 3)))
    table, store = dataset.table(), dataset.session.writer.url
    for target in (store, _store()):  # the same store, which sends nothing, and another one
        wd.DatasetBuilder("a/copy", target).add_table("main", table).publish()
        copy = wd.dataset("a/copy", store=target).table()
        assert copy.to_arrow().equals(table.to_arrow())
        assert copy.sample_ids().tolist() == table.sample_ids().tolist()
        assert copy.entry == table.entry
        wd.DatasetBuilder("a/part", target).add_table("main", table.filter("n > 30").select(["n"])).publish()
        part = wd.dataset("a/part", store=target).table()
        assert part.to_arrow()["n"].to_pylist() == [n for n in range(31, ROWS) if n % 3]
        assert part.entry.manifest_format == 1


def test_rows_are_appended_to_an_edited_table() -> None:
    dataset = _edited(_store(), {1, 2})
    store, before = dataset.session.writer.url, dataset.table().to_arrow().to_pylist()
    more = pa.table({"word": ["x", "y"], "n": [1000, 1001], "m": [5, 6]})
    wd.DatasetBuilder("a/b", store).append_table("main", more).publish()
    wd.DatasetBuilder("a/b", store).append_table("main", dataset.table()).publish()
    grown = wd.dataset("a/b", store=store).table()
    assert grown.to_arrow().to_pylist() == [*before, *more.to_pylist(), *before]
    ids = grown.sample_ids().tolist()
    assert len(set(ids)) == len(ids)
    assert ids[len(before) :] == list(range(100, 102 + len(before)))
    assert grown.entry.next_id == 102 + len(before)


def test_a_diff_counts_the_rows_that_went() -> None:
    store = _store()
    old = _edited(store, set(range(20)))
    new = _edited(store, set(range(25)))
    (change,) = new.diff(old).changes
    assert (change.rows_added, change.rows_removed, change.shards_added, change.shards_removed) == (0, 5, 0, 0)
    assert 0 < change.bytes_added < 100
    assert old.diff(new).changes[0].rows_added == 5


def test_verify_warm_and_inspect_know_all_blobs(tmp_path: Path) -> None:
    store = (tmp_path / "store").as_uri()
    dataset = _edited(store, set(range(20)))
    (shard,) = dataset.manifest.tables["main"].shards.shards
    assert len(list(shard.blobs())) == 4
    assert {blob.hash for blob in shard.blobs()} <= {blob.hash for blob in dataset.blobs()}
    document = ask("inspect", "a/b", "--store", store)
    assert document["entries"][0]["rows"] == 40
    assert document["entries"][0]["deleted_rows"] == 20
    assert document["entries"][0]["shards"][0]["deleted_count"] == 20
    text = run("inspect", "a/b", "--store", store).stdout
    assert "40 rows, 20 deleted" in text
    assert dataset.info().tables[0].deleted_rows == 20
