"""If this fails, rows cannot be exchanged with other libraries, or an unsuitable object has an unclear error."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pytest

import warpdata as wd
from warpdata.errors import InvalidSourceError

ROWS = pa.table({"id": [1, 2, 3], "name": ["a", None, "c"], "x": [0.5, 1.5, 2.5]})


def published(source: Any) -> wd.Table:
    wd.DatasetBuilder("a/b").add_table("main", source).publish()
    return wd.dataset("a/b").table()


class OnlyStream:
    def __init__(self, rows: pa.Table) -> None:
        self._rows = rows

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self._rows.__arrow_c_stream__(requested_schema)


class OnlyArray:
    def __init__(self, rows: pa.RecordBatch) -> None:
        self._rows = rows

    def __arrow_c_array__(self, requested_schema: object = None) -> Any:
        return self._rows.__arrow_c_array__(requested_schema)


class Iterates:
    def __iter__(self) -> Iterator[pa.RecordBatch]:
        return iter(ROWS.to_batches(max_chunksize=2))


@pytest.mark.parametrize(
    "convert",
    [
        lambda rows: rows,
        lambda rows: rows.to_batches()[0],
        lambda rows: rows.to_reader(max_chunksize=2),
        lambda rows: iter(rows.to_batches(max_chunksize=1)),
        lambda rows: Iterates(),
        lambda rows: [rows.slice(0, 1), rows.slice(1)],
        lambda rows: (OnlyStream(rows.slice(n, 1)) for n in range(3)),
        OnlyStream,
        lambda rows: OnlyArray(rows.to_batches()[0]),
        duckdb.from_arrow,
        pl.from_arrow,
        lambda rows: pl.LazyFrame(pl.from_arrow(rows)),
        lambda rows: rows.to_pandas(),
        lambda rows: rows.to_pydict(),
        lambda rows: rows.to_pylist(),
    ],
)
def test_rows_of_other_libraries_are_published(convert: Callable[[pa.Table], Any]) -> None:
    assert published(convert(ROWS)).to_arrow().to_pylist() == ROWS.to_pylist()


def test_a_hugging_face_dataset_is_published_in_its_order() -> None:
    datasets = pytest.importorskip("datasets")
    shuffled = datasets.Dataset.from_dict(ROWS.to_pydict()).select([2, 0])
    assert published(shuffled).to_arrow().to_pylist() == ROWS.take([2, 0]).to_pylist()
    with pytest.raises(InvalidSourceError, match="splits"):
        published(datasets.DatasetDict({"train": shuffled}))


def test_other_libraries_read_a_table() -> None:
    table = published(ROWS)
    assert pa.table(table).equals(ROWS)
    assert pa.RecordBatchReader.from_stream(table).read_all().equals(ROWS)
    assert pl.DataFrame(table).to_dicts() == ROWS.to_pylist()
    trips = table.filter("id < 3")
    assert duckdb.sql("SELECT sum(id) FROM trips").fetchall() == [(3,)]
    assert trips.count() == 2
    assert pa.table(table.filter("id > 1").select("name")).to_pydict() == {"name": [None, "c"]}


def test_a_stream_is_read_while_it_is_consumed(monkeypatch: pytest.MonkeyPatch) -> None:
    table = published(pa.table({"n": np.arange(10)}))
    asked: list[int] = []
    batches = wd.Table.batches

    def record(self: wd.Table, *arguments: Any) -> Iterator[pa.RecordBatch]:
        for batch in batches(self, 2):
            asked.append(batch.num_rows)
            yield batch

    monkeypatch.setattr(wd.Table, "batches", record)
    reader = pa.RecordBatchReader.from_stream(table)
    assert asked == []
    reader.read_next_batch()
    assert asked == [2]


def test_references_leave_as_they_are_stored() -> None:
    """The type of a reference has the address of a store, which must not travel with exported rows."""
    builder = wd.DatasetBuilder("a/media").add_artifact("raw", {"x.txt": b"x"}).bind("main", "file", "raw")
    builder.add_table("main", pa.table({"file": ["x.txt"]})).publish()
    exported = pa.table(wd.dataset("a/media").table())
    assert exported.schema == pa.schema([("file", pa.string())])
    assert exported["file"].to_pylist() == ["x.txt"]


class Broken:
    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        raise RuntimeError("the stream is broken")


@pytest.mark.parametrize(
    "source",
    [
        5,
        1.5,
        None,
        object(),
        b"bytes",
        {1, 2},
        [5],
        [None],
        (n for n in range(3)),
        Broken(),
        pl.Series([1]),
        iter([]),
        [],
    ],
    ids=lambda source: type(source).__name__,
)
def test_an_object_without_rows_is_refused(source: Any) -> None:
    with pytest.raises(InvalidSourceError, match="main"):
        wd.DatasetBuilder("a/b").add_table("main", source).plan()
