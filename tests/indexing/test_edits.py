"""If this fails, a change of a dataset leaves an index that is wrong, lost, or of no use without need."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import warpdata as wd
from tests.indexing.scenes import check_equal, connect, head, random_rows, without_indexes
from warpdata.datasets import Dataset, open_dataset
from warpdata.errors import AlreadyExistsError, BadInputError, ColumnNotFoundError, NotFoundError, SchemaMismatchError
from warpdata.indexing import IndexStatus
from warpdata.repository.catalog import parse_address
from warpdata.session import Session


@pytest.fixture(autouse=True)
def always_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("warpdata.query.planner._MAX_SCAN_SHARE", 1e9)
    monkeypatch.setattr("warpdata.kinds.tables.row_indexes._SELECTIVE_SHARE", 1.0)


@pytest.fixture
def session() -> Session:
    """A table of 60 rows in two files, with two indexes."""
    session = connect()
    wd.DatasetBuilder("a/b", session).add_table("main", random_rows(random.Random(1), 0, 40)).publish()
    wd.DatasetBuilder("a/b", session).append_table("main", random_rows(random.Random(2), 40, 20)).publish()
    head(session).create_index("main", "i", kind="btree").create_index("main", "s")
    return session


def status(dataset: Dataset, name: str) -> IndexStatus:
    return next(found for found in dataset.indexes() if found.name == name)


def check(session: Session, *more: str) -> Dataset:
    dataset = head(session)
    for text in ("i = 3", "i > 5 AND s = 'a'", "NOT (i <= 3) OR s IS NULL", *more):
        check_equal(dataset.table(), text)
    return dataset


def test_rows_that_are_appended_are_scanned_until_the_update(session: Session) -> None:
    wd.DatasetBuilder("a/b", session).append_table("main", random_rows(random.Random(3), 60, 30)).publish()
    dataset = check(session)
    assert (status(dataset, "main.i").covered_rows, status(dataset, "main.i").rows) == (60, 90)
    assert 0 < dataset.table().filter("i = 3").explain().undecided_rows <= 30
    updated = dataset.update_index("main.i")
    assert status(updated, "main.i").covered_rows == 90
    assert status(updated, "main.i").segments == 2
    assert updated.table().filter("i = 3").explain().undecided_rows == 0
    assert updated.update_index("main.i").version == updated.version
    check(session)


def test_deleted_and_updated_rows(session: Session) -> None:
    with head(session).edit() as edit:
        edit.delete("main", "n % 3 = 0")
        edit.update("main", "n % 3 = 1", {"i": 3})
    dataset = check(session)
    assert status(dataset, "main.i").covered_rows == 20
    with head(session).edit() as edit:
        edit.upsert("main", random_rows(random.Random(4), 55, 10), on="n")
    check(session)


def test_an_index_follows_its_column_to_another_name(session: Session) -> None:
    with head(session).edit() as edit:
        edit.rename_column("main", "i", "number")
        edit.rename_column("main", "s", "i")
    dataset = head(session)
    assert {(found.name, found.column) for found in dataset.indexes()} == {("main.i", "number"), ("main.s", "i")}
    assert status(dataset, "main.i").covered_rows == 60
    check_equal(dataset.table(), "number = 3 AND i = 'a'")
    assert dataset.table().filter("number = 3").explain().undecided_rows == 0
    dataset = dataset.update_index("main.i", rebuild=True)
    check_equal(dataset.table(), "number = 3 AND i = 'a'")


def test_a_dropped_column_takes_its_index_along_and_a_cast_leaves_nothing_covered(session: Session) -> None:
    with head(session).edit() as edit:
        edit.drop_column("main", "s")
        edit.cast("main", "i", "int64")
    dataset = head(session)
    assert [found.name for found in dataset.indexes()] == ["main.i"]
    assert (status(dataset, "main.i").covered_rows, status(dataset, "main.i").stale_sources) == (0, 2)
    check_equal(dataset.table(), "i = 3")
    dataset = dataset.update_index("main.i")
    assert (status(dataset, "main.i").covered_rows, status(dataset, "main.i").stale_sources) == (60, 0)
    check_equal(dataset.table(), "i = 3")


def test_a_new_column_under_an_old_name_is_not_the_old_one(session: Session) -> None:
    with head(session).edit() as edit:
        edit.rename_column("main", "i", "old")
        edit.add_column("main", "i", wd.expr("old + 1"))
    dataset = check(session)
    assert status(dataset, "main.i").column == "old"
    dataset = dataset.create_index("main", "i", name="new")
    assert status(dataset, "new").covered_rows == 60
    check(session, "old = 2 AND i = 3")


def test_compacted_files_are_scanned_and_old_versions_keep_their_index(session: Session) -> None:
    before = head(session)
    before.compact(max_deleted=0.0)
    dataset = check(session)
    assert status(dataset, "main.i").covered_rows == 0
    assert status(before, "main.i").covered_rows == 60
    dataset = dataset.update_index("main.i")
    assert status(dataset, "main.i").covered_rows == 60
    restored = dataset.restore(before.version)
    assert restored.changed
    assert status(check(session), "main.i").covered_rows == 60


def test_branches_share_segments_and_a_merge_keeps_those_of_both(session: Session) -> None:
    dev = head(session).branch("dev")
    wd.DatasetBuilder("a/b", session).append_table("main", random_rows(random.Random(5), 100, 10)).publish()
    with dev.edit() as edit:
        edit.append("main", random_rows(random.Random(6), 200, 10))
    head(session).update_index("main.i")
    head(session, "dev").update_index("main.i")
    merged = head(session).merge("dev")
    found = status(merged, "main.i")
    assert found.segments >= 3
    assert found.covered_rows >= 70
    check(session)
    assert not wd.verify(merged).problems


def test_an_index_never_ends_a_merge(session: Session) -> None:
    dev = head(session).branch("dev")
    with dev.edit() as edit:
        edit.append("main", random_rows(random.Random(6), 200, 10))
    head(session, "dev").update_index("main.i")
    head(session).drop_index("main.i").create_index("main", "f", name="other")
    head(session, "dev").create_index("main", "d", name="other")
    merged = head(session).merge("dev")
    assert {(found.name, found.column) for found in merged.indexes()} == {("main.s", "s"), ("other", "f")}
    check(session)


def test_a_build_is_added_to_a_branch_that_has_moved(session: Session) -> None:
    seen = head(session)
    wd.DatasetBuilder("a/b", session).append_table("main", random_rows(random.Random(7), 60, 10)).publish()
    built = seen.create_index("main", "f")
    assert built.table().count() == 70
    assert status(built, "main.f").covered_rows == 60
    check_equal(built.table(), "f > 1")


def test_a_publish_names_indexes_that_it_would_remove_and_keep_leaves_them(session: Session) -> None:
    rows = random_rows(random.Random(8), 0, 30)
    with pytest.raises(BadInputError, match=r"would remove from a/b: index 'main.i', index 'main.s'"):
        wd.DatasetBuilder("a/b", session).add_table("main", rows).publish()
    wd.DatasetBuilder("a/b", session).add_table("main", rows).publish(keep=True)
    dataset = check(session)
    assert status(dataset, "main.i").covered_rows == 0
    wd.DatasetBuilder("a/b", session).add_table("main", rows).publish(replace=True)
    assert not head(session).indexes()


def test_an_index_of_a_table_or_column_that_is_gone_has_no_effect(session: Session) -> None:
    wd.DatasetBuilder("a/b", session).add_table("main", pa.table({"other": [1, 2]})).publish(keep=True)
    dataset = head(session)
    assert dataset.table().filter("other = 1").count() == 1
    assert status(dataset, "main.i").covered_rows == 0
    wd.DatasetBuilder("a/b", session).add_table("second", pa.table({"x": [1]})).publish(replace=True)


def test_copies_collections_and_diffs_have_indexes(session: Session, tmp_path: Path) -> None:
    wd.DatasetBuilder("a/b", session).append_table("main", random_rows(random.Random(9), 60, 5)).publish()
    before = head(session)
    after = before.update_index("main.i")
    change = next(change for change in after.diff(before).changes if change.section == "indexes")
    assert (change.name, change.change, change.shards_added) == ("main.i", "changed", 1)
    assert {payload.index for payload in after.manifest.indexes.values()} <= set(after.blobs())
    assert after.warm(indexes=["main.i"]).blobs == 3
    assert not wd.verify(after).problems
    assert [entry.name for entry in after.info().indexes] == ["main.i", "main.s"]
    dropped = after.drop_index("main.s")
    assert [found.name for found in dropped.indexes()] == ["main.i"]
    assert len(after.indexes()) == 2


def test_many_small_segments_are_joined(session: Session) -> None:
    for step in range(9):
        wd.DatasetBuilder("a/b", session).append_table(
            "main", random_rows(random.Random(step), 100 + step, 1)
        ).publish()
        head(session).update_index("main.i")
    assert status(check(session), "main.i").segments < 8


def test_columns_and_names_that_cannot_be(session: Session) -> None:
    dataset = head(session)
    with pytest.raises(AlreadyExistsError, match=r"already has an index 'main.i'"):
        dataset.create_index("main", "i")
    with pytest.raises(ColumnNotFoundError, match="no column 'label'"):
        dataset.create_index("main", "label")
    with pytest.raises(BadInputError, match="'hash' is not a kind"):
        dataset.create_index("main", "f", kind="hash")
    with pytest.raises(SchemaMismatchError, match="a list"):
        dataset.create_index("main", "tags", kind="btree")
    with pytest.raises(BadInputError, match="not a valid name"):
        dataset.create_index("main", "f", name="a b")
    for change in (dataset.drop_index, dataset.update_index):
        with pytest.raises(NotFoundError, match=r"no index 'main.x'"):
            change("main.x")
    nested = wd.DatasetBuilder("a/nested", session).add_table("main", pa.table({"at": [{"x": 1}]}))
    nested.publish()
    with pytest.raises(SchemaMismatchError, match="whose values cannot be indexed"):
        open_dataset(session, parse_address("a/nested")).create_index("main", "at")


@pytest.mark.parametrize(
    ("column", "kind"), [("n", "btree"), ("s", "bitmap"), ("tags", "bitmap"), ("ok", "bitmap"), ("f", "bitmap")]
)
def test_the_values_choose_the_kind(column: str, kind: str) -> None:
    session = connect()
    wd.DatasetBuilder("a/b", session).add_table("main", random_rows(random.Random(1), 0, 1500)).publish()
    assert status(head(session).create_index("main", column), f"main.{column}").kind == kind


def test_a_selective_answer_reads_less_and_a_large_one_is_left_to_the_scan(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    session = connect()
    numbers = np.arange(500_000)
    rows = pa.table({"n": numbers, "s": np.where(numbers % 1000 == 0, "rare", "often")})
    wd.DatasetBuilder("a/b", session).add_table("main", rows).publish()
    table = head(session).create_index("main", "s").create_index("main", "n").table()
    assert table.filter("s = 'rare'")._narrow(None)[1] is None
    assert table.filter("s = 'often'")._narrow(None)[1] is not None
    assert table.filter("n > 10").explain().certain_rows == 499_989  # the opposite is looked up
    assert table.filter("n % 2 = 0").explain().certain_rows == 0
    wide = table.filter("n > 100000 AND n < 400000").explain()
    assert [leaf.reason for leaf in wide.leaves] == ["a scan is faster than index main.n"]
    narrow = table.filter("n BETWEEN 250000 AND 250010 AND s = 'rare'").explain()
    assert (narrow.certain_rows, narrow.undecided_rows) == (1, 0)
    assert narrow.leaves[0].condition == "n >= 250000 AND n <= 250010"
    assert without_indexes(table).filter("s = 'often'").count() == table.filter("s = 'often'").count()


@pytest.mark.parametrize("kind", ["bitmap", "btree"])
def test_a_table_without_rows_has_an_index_without_rows(kind: str) -> None:
    session = connect()
    wd.DatasetBuilder("a/b", session).add_table("main", random_rows(random.Random(1), 0, 0)).publish()
    dataset = head(session).create_index("main", "i", kind=kind)
    assert dataset.table().filter("i = 3").count() == 0
    wd.DatasetBuilder("a/b", session).append_table("main", random_rows(random.Random(1), 0, 30)).publish()
    head(session).update_index("main.i")
    check_equal(head(session).table(), "i = 3 OR i IS NULL")
