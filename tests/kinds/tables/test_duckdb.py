"""If this fails, relations over published tables cannot be joined, or differ from what a filter sees."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, date, datetime
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pytest

import warpdata as wd
from warpdata.query import connect_open
from warpdata.settings import load_settings
from warpdata.testing import S3Endpoint

PEOPLE = pa.table({"id": range(6), "city": ["oslo", "rome"] * 3})
VISITS = pa.table({"id": [1, 1, 4], "day": [date(2024, 1, n) for n in (1, 2, 3)]})


def publish(name: str, store: str | None = None, **tables: pa.Table) -> wd.Dataset:
    builder = wd.DatasetBuilder(name, store)
    for title, rows in tables.items():
        builder.add_table(title, rows)
    builder.publish()
    return wd.dataset(name, store=store)


def test_relations_of_one_dataset_can_be_joined() -> None:
    dataset = publish("a/b", people=PEOPLE, visits=VISITS)
    people, visits = dataset.table("people").duckdb(), dataset.table("visits").filter("id < 3").duckdb()
    assert people.join(visits, "id").project("city").fetchall() == [("rome",), ("rome",)]
    assert people.query("p", "SELECT count(*) FROM p JOIN visits USING (id)").fetchall() == [(2,)]
    assert people.union(people).count("id").fetchall() == [(12,)]


def test_relations_of_several_datasets_and_stores_can_be_joined(tmp_path: Path) -> None:
    one = publish("a/people", main=PEOPLE)
    other = publish("a/visits", (tmp_path / "other").as_uri(), main=VISITS)
    joined = one.table().duckdb().join(other.table().duckdb(), "id")
    assert joined.count("id").fetchall() == [(3,)]


@pytest.mark.s3
def test_relations_of_a_bucket_and_a_directory_can_be_joined(
    s3_url: str, s3_server: S3Endpoint, tmp_path: Path
) -> None:
    settings = s3_server.settings(cache_dir=tmp_path / "cache")
    wd.DatasetBuilder("a/people", s3_url, settings=settings).add_table("main", PEOPLE).publish()
    remote, local = wd.dataset("a/people", store=s3_url, settings=settings), publish("a/visits", main=VISITS)
    joined = remote.table().duckdb().join(local.table().duckdb(), "id").order("day")
    assert [row[1] for row in joined.fetchall()] == ["rome", "rome", "oslo"]


def test_a_failure_beside_an_unfinished_result_affects_no_other_relation(tmp_path: Path) -> None:
    """A result that was not read to its end keeps a transaction open, which a failure then aborts."""
    large = pa.table({"n": range(3_000_000)})
    table = publish("a/large", main=large).table()
    assert table.duckdb().fetchone() == (0,)
    with pytest.raises(duckdb.Error):
        connect_open(tmp_path.as_uri(), load_settings()).read_parquet(str(tmp_path / "none.parquet"))
    assert table.duckdb().count("n").fetchall() == [(3_000_000,)]


def test_threads_have_connections_of_their_own() -> None:
    """A DuckDB connection runs one query at a time. Relations of a thread must not wait for another thread's."""
    dataset = publish("a/b", people=PEOPLE, visits=VISITS)

    def count(_: int) -> int:
        joined = dataset.table("people").duckdb().join(dataset.table("visits").duckdb(), "id")
        return len(joined.fetchall())

    with ThreadPoolExecutor(4) as threads:
        assert set(threads.map(count, range(16))) == {3}


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:This process")
def test_a_forked_child_has_a_database_of_its_own() -> None:
    table = publish("a/b", people=PEOPLE).table()
    assert len(table.duckdb().fetchall()) == 6
    child = os.fork()
    if child == 0:
        os._exit(0 if len(table.duckdb().fetchall()) == 6 else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@pytest.mark.parametrize(
    ("column", "expression"),
    [
        (pa.array(np.eye(4, 16).tolist(), pa.list_(pa.float32(), 16)), "array_distance(c, c) = 0 AND c[2] = 1"),
        (pa.array(np.eye(4, 3).tolist(), pa.list_(pa.float64(), 3)), "c = [0, 1, 0]::DOUBLE[3]"),
        (pa.array([[[1, 2]], [[3, 4]], None, [[1, 2]]], pa.list_(pa.list_(pa.int8(), 2), 1)), "c[1][1] = 1"),
        (pa.array([{"v": [1.0, n]} for n in range(4)], pa.struct([("v", pa.list_(pa.float32(), 2))])), "c.v[2] > 1"),
        (pa.array([1, 2, 3, 250], pa.uint8()), "c > 200"),
        (
            pa.array([datetime(2024, 1, n, tzinfo=UTC) for n in range(1, 5)], pa.timestamp("ns", "UTC")),
            "c > '2024-01-02'",
        ),
        (pa.array(["a", "b", "a", None]).dictionary_encode(), "c = 'a'"),
    ],
    ids=["FLOAT[16]", "DOUBLE[3]", "nested", "struct", "uint8", "nanoseconds", "dictionary"],
)
def test_filters_and_relations_agree(column: pa.Array, expression: str) -> None:
    table = publish("a/b", main=pa.table({"id": range(4), "c": column})).table()
    kept = table.filter(expression)
    expected = kept.to_arrow()["id"].to_pylist()
    assert 0 < len(expected) < 4
    assert [row[0] for row in kept.duckdb().project("id").order("id").fetchall()] == expected
    assert [row[0] for row in table.duckdb().filter(expression).project("id").order("id").fetchall()] == expected


def test_columns_keep_their_order_and_odd_names() -> None:
    rows = pa.table({'a "b"': [1], "select": pa.array([[1.0, 2.0]], pa.list_(pa.float32(), 2)), "ü": ["x"]})
    relation = publish("a/b", main=rows).table().duckdb()
    assert relation.columns == rows.schema.names
    assert relation.fetchall() == [(1, (1.0, 2.0), "x")]
