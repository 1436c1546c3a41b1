"""If this fails, an invalid input is published partly, is accepted silently, or has an unclear error."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import warpdata as wd
from tests.faults.scenes import link, memory, numbers, rows
from warpdata.errors import (
    AlreadyExistsError,
    BadInputError,
    InvalidSourceError,
    SchemaMismatchError,
    WarpError,
)
from warpdata.storage import Writer


@pytest.fixture
def store(request: pytest.FixtureRequest) -> Writer:
    return memory(f"inputs-{request.node.name}")


def write(path: Path, table: pa.Table, **options: Any) -> Path:
    pq.write_table(table, path, **options)
    return path


def refuse(store: Writer, source: Any, error: type[WarpError], match: str) -> None:
    """The publish fails with this error, and the store is as empty as before."""
    with pytest.raises(error, match=match):
        wd.DatasetBuilder("a/b", link(store)).add_table("main", source).publish()
    assert list(store.list_objects("")) == []


def test_a_truncated_file_is_named(store: Writer, tmp_path: Path) -> None:
    whole = write(tmp_path / "whole.parquet", rows(0, 1000))
    data = whole.read_bytes()
    for cut in (0, 3, 4, 12, len(data) // 2, len(data) - 1):
        broken = tmp_path / "broken.parquet"
        broken.write_bytes(data[:cut])
        refuse(store, [whole, broken], InvalidSourceError, "broken.parquet")


def test_a_footer_that_lies_about_its_size_is_refused(store: Writer, tmp_path: Path) -> None:
    path = write(tmp_path / "lies.parquet", rows(0))
    data = bytearray(path.read_bytes())
    data[-8:-4] = (2**31).to_bytes(4, "little")
    path.write_bytes(bytes(data))
    refuse(store, path, InvalidSourceError, "lies.parquet")


def test_an_empty_glob_is_an_error(store: Writer, tmp_path: Path) -> None:
    refuse(store, str(tmp_path / "*.parquet"), InvalidSourceError, "no file matches")
    refuse(store, tmp_path, InvalidSourceError, "no file matches")
    refuse(store, tmp_path / "absent.parquet", InvalidSourceError, "does not exist")
    refuse(store, [], InvalidSourceError, "empty list")
    refuse(store, iter([]), InvalidSourceError, "no batch")


def test_a_column_that_changes_type_is_explained_and_can_be_rewritten(store: Writer, tmp_path: Path) -> None:
    paths = [
        write(tmp_path / "1.parquet", pa.table({"n": pa.array([1], pa.int32())})),
        write(tmp_path / "2.parquet", pa.table({"n": pa.array([2], pa.int64())})),
    ]
    refuse(store, paths, SchemaMismatchError, "column 'n' is int32 in .*1.parquet, but int64 in .*2.parquet")
    refuse(
        store, [paths[0], write(tmp_path / "3.parquet", pa.table({"m": [1]}))], SchemaMismatchError, "'n' is missing"
    )
    wd.DatasetBuilder("a/b", link(store)).add_table("main", paths, rewrite=True).publish()
    assert numbers(link(store)) == [1, 2]


def test_two_columns_that_sql_cannot_tell_apart(store: Writer) -> None:
    refuse(store, pa.table({"Name": [1], "name": [2]}), SchemaMismatchError, "'Name' and 'name'")
    twice = pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["x", "x"])
    refuse(store, twice, SchemaMismatchError, "'x' and 'x'")


@pytest.mark.parametrize(
    "name", ["../x", "a/../b", "A/b", "a", "a/b/c", "/a/b", "a/", "", "a/b@", "ä/b", "a/b\n", "a/" + "x" * 200]
)
def test_names_that_leave_their_directory_are_refused(name: str) -> None:
    with pytest.raises(BadInputError):
        wd.DatasetBuilder(name)
    with pytest.raises(BadInputError):
        wd.dataset(name)


@pytest.mark.parametrize("name", ["../x", "", ".hidden", "a b", "ü", "x/y", "x" * 200])
def test_table_names_are_checked(name: str) -> None:
    with pytest.raises(BadInputError):
        wd.DatasetBuilder("a/b").add_table(name, rows(0))


@pytest.mark.parametrize("name", ["../x", "", "-x", "a b", "ü", "x/y", "0" * 64, "x" * 200])
def test_ref_names_are_checked(store: Writer, name: str) -> None:
    builder = wd.DatasetBuilder("a/b", link(store)).add_table("main", rows(0))
    with pytest.raises(BadInputError):
        builder.publish(label=name)
    with pytest.raises(BadInputError):
        builder.publish(branch=name)
    assert list(store.list_objects("")) == []


def test_tables_are_added_once_and_modes_do_not_mix(store: Writer) -> None:
    builder = wd.DatasetBuilder("a/b", link(store)).add_table("main", rows(0))
    with pytest.raises(BadInputError, match="added twice"):
        builder.add_table("main", rows(1))
    with pytest.raises(BadInputError, match="replace=True does not mix with keep=True"):
        builder.publish(replace=True, keep=True)
    with pytest.raises(BadInputError, match="no table"):
        wd.DatasetBuilder("a/b", link(store)).publish()
    builder.publish()
    assert numbers(link(store)) == [0, 1, 2, 3]


@pytest.mark.parametrize("source", [42, None, object(), [1, 2], [rows(0), 3], {"a": [1], "b": [1, 2]}])
def test_what_is_no_table_is_refused(store: Writer, source: Any) -> None:
    refuse(store, source, InvalidSourceError, "table 'main'|cannot")


def test_labels_never_move(store: Writer) -> None:
    wd.DatasetBuilder("a/b", link(store)).add_table("main", rows(0)).publish(label="v1")
    before = len(list(store.list_objects("")))
    with pytest.raises(AlreadyExistsError, match="already names"):
        wd.DatasetBuilder("a/b", link(store, 1)).add_table("main", rows(5)).publish(label="v1")
    assert len(list(store.list_objects(""))) == before
    wd.DatasetBuilder("a/b", link(store, 2)).add_table("main", rows(0)).publish(label="v1")


def test_a_file_that_changes_under_the_publish_is_noticed(store: Writer, tmp_path: Path) -> None:
    path = write(tmp_path / "moving.parquet", rows(0))
    builder = wd.DatasetBuilder("a/b", link(store)).add_table("main", path)
    builder.plan()
    write(path, rows(500))
    with pytest.raises(InvalidSourceError, match="changed while"):
        builder.publish()
    assert not [info for info in store.list_objects("") if info.key.startswith(("blobs/", "datasets/"))]


def test_unicode_columns_and_values_come_back_as_given(store: Writer) -> None:
    table = pa.table({"naïve ☃": ["é", "e\u0301", "\U0001f600"], "n": [1, 2, 3]})
    wd.DatasetBuilder("a/b", link(store)).add_table("main", table).publish(message="größe ☃")
    from warpdata.datasets import open_dataset
    from warpdata.repository.catalog import parse_address

    dataset = open_dataset(link(store), parse_address("a/b"))
    assert dataset.table().to_arrow().to_pylist() == table.to_pylist()
    assert dataset.table().filter("\"naïve ☃\" = 'e\u0301'").to_arrow()["n"].to_pylist() == [2]
    assert dataset.history()[0].message == "größe ☃"
