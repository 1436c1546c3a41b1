"""If this fails, one text that is not UTF-8 disables all filters of a process, or raises an untyped error."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import warpdata as wd
from warpdata.errors import BadInputError, CorruptError, InvalidSourceError
from warpdata.query import Evaluator, parse_filter

ROWS = 40
BAD = 30


def texts(arrow_type: pa.DataType) -> pa.Array:
    """Return texts of which one is not UTF-8. Arrow does not notice."""
    data = [b"\xff\xfe" if n == BAD else f"w{n}".encode() for n in range(ROWS)]
    return pa.array(data, pa.binary()).view(pa.string()).cast(arrow_type)


def invalid_table(**options: Any) -> pa.Table:
    plain = texts(pa.string())
    return pa.table(
        {
            "n": range(ROWS),
            "s": plain,
            "nested": pa.ListArray.from_arrays(pa.array(range(ROWS + 1), pa.int32()), plain),
            "good": [f"ü{n}" for n in range(ROWS)],
        }
    )


@pytest.fixture
def table(tmp_path: Path) -> wd.Table:
    """Publish a file of another writer, which is stored byte for byte."""
    pq.write_table(invalid_table(), tmp_path / "t.parquet", row_group_size=10)
    wd.DatasetBuilder("a/b").add_table("main", tmp_path / "t.parquet").publish()
    return wd.dataset("a/b").table()


@pytest.mark.parametrize(
    "read",
    [
        lambda table: table.filter("lower(s) = 'w3'").count(),
        lambda table: table.filter("s = 'w3'").count(),
        lambda table: table.filter("n = 30").head(),
        lambda table: table.head(35),
        lambda table: list(table.batch_dicts()),
        lambda table: list(table.batches(columns="s")),
        lambda table: table.take([BAD]),
        lambda table: table.select(["n", "nested"]).to_arrow(),
        lambda table: table.pandas(),
        lambda table: table.polars(),
        lambda table: pa.table(table.select("n")) and table.to_arrow(),
    ],
)
def test_invalid_text_is_a_typed_error(table: wd.Table, read: Callable[[wd.Table], object]) -> None:
    (shard,) = table.entry.shards.shards
    for _ in range(2):
        with pytest.raises(
            CorruptError, match=rf"column '(s|nested)' has invalid text in row group 3 of shard {shard.hash}"
        ):
            read(table)


def test_other_columns_and_row_groups_can_be_read(table: wd.Table) -> None:
    with pytest.raises(CorruptError):
        table.filter("lower(s) = 'w3'").count()
    assert table.select(["n", "good"]).to_arrow().num_rows == ROWS
    assert table.filter("lower(good) = 'ü3'").select("n").to_arrow()["n"].to_pylist() == [3]
    assert table.filter("n < 10").head(10).num_rows == 10
    assert table.take([3])["s"].to_pylist() == ["w3"]


@pytest.mark.parametrize("arrow_type", [pa.string(), pa.large_string(), pa.dictionary(pa.int32(), pa.string())])
def test_rows_with_invalid_text_are_not_published(arrow_type: pa.DataType) -> None:
    column = texts(pa.string()).dictionary_encode() if pa.types.is_dictionary(arrow_type) else texts(arrow_type)
    for rows in (pa.table({"s": column}), pa.table({"s": pa.array([{"t": 1}] * ROWS), "u": column})):
        with pytest.raises(InvalidSourceError, match=r"column '[su]' has text that is not UTF-8"):
            wd.DatasetBuilder("a/b").add_table("main", rows).plan()


def test_the_engine_is_renewed_after_a_fatal_error() -> None:
    """A filter of another thread runs while one invalidates the engine, again and again."""
    invalid = pa.table({"s": texts(pa.string())})
    valid = pa.table({"s": [f"W{n}" for n in range(5000)]})
    schema = pa.schema([("s", pa.string())])
    kept = Evaluator(parse_filter("lower(s) = 'w77'", schema))
    broken = Evaluator(parse_filter("upper(s) = 'W3'", schema))

    def run(number: int) -> int:
        if number % 5 == 0:
            with pytest.raises(BadInputError, match="fails on a row"):
                broken.mask(invalid)
            return 1
        return int(kept.mask(valid).sum())

    with ThreadPoolExecutor(4) as threads:
        assert set(threads.map(run, range(60))) == {1}
    assert parse_filter("s > 'a'", schema).columns == ("s",)
