"""If this fails, a table cannot be exported, or refuses bad arguments with a poor message."""

from __future__ import annotations

import subprocess
import sys
from datetime import date, datetime
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.ipc
import pytest

import warpdata as wd
from tests.kinds.tables.scenes import counted, published
from warpdata.errors import BadInputError, ColumnNotFoundError


def test_ten_thousand_columns(tmp_path: Path) -> None:
    wide = pa.table({f"c{n}": [n, n + 1] for n in range(10_000)})
    wd.DatasetBuilder("a/b").add_table("main", wide).publish()
    table = wd.dataset("a/b").table()
    assert len(table.schema()) == 10_000
    assert table.select(["c9999", "c0"]).head(1).to_pylist() == [{"c9999": 9999, "c0": 0}]
    assert table.filter("c5000 = 5001").count() == 1


def test_dict_batches_and_frames(tmp_path: Path) -> None:
    table = published([counted(0, 10)], (tmp_path / "s").as_uri(), tmp_path)
    assert [len(batch["n"]) for batch in table.batch_dicts(4)] == [4, 4, 2]
    assert list(table.pandas(limit=3)["n"]) == [0, 1, 2]
    assert table.polars(limit=3)["n"].to_list() == [0, 1, 2]
    relation = table.filter("n > 6").select(["n"]).duckdb()
    assert relation.fetchall() == [(7,), (8,), (9,)]


def test_a_large_export_needs_allow_large(tmp_path: Path) -> None:
    big = pa.table({"n": np.arange(1_000_001)})
    table = published([big], (tmp_path / "s").as_uri(), tmp_path)
    for export in (table.to_arrow, table.pandas, table.polars):
        with pytest.raises(BadInputError, match="1,000,001 rows"):
            export()
    assert table.to_arrow(allow_large=True).num_rows == 1_000_001


def test_bad_arguments_are_refused(tmp_path: Path) -> None:
    table = published([counted(0, 3)], (tmp_path / "s").as_uri(), tmp_path)
    with pytest.raises(ColumnNotFoundError, match="wrod") as raised:
        table.select(["wrod"])
    assert raised.value.hint == "Did you mean word?"
    for bad in (0, -1, True, 1.5):
        with pytest.raises(BadInputError, match="batch_size"):
            table.batches(bad)  # type: ignore[arg-type]
    with pytest.raises(BadInputError, match="limit"):
        table.to_arrow(limit=-1)
    with pytest.raises(BadInputError, match="auto"):
        list(table.batches(1, shard="all"))


def test_batches_can_be_sent_by_ipc(tmp_path: Path) -> None:
    table = published([counted(0, 9)], (tmp_path / "s").as_uri(), tmp_path)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema()) as stream:
        for batch in table.batches(4):
            stream.write_batch(batch)
    assert pa.ipc.open_stream(sink.getvalue()).read_all().num_rows == 9


_SHORT_QUERIES = """
import sys
import warpdata as wd
table = wd.dataset("a/b", store=sys.argv[1]).table()
def check(operation):
    if "pandas" in sys.modules:
        sys.exit(f"{operation} imports pandas")
check("opening")
table.schema(), table.count(), table.head(5)
check("head")
for where in sys.argv[2:]:
    assert table.filter(where).head(5).num_rows, where
    check(where)
    assert table.select(["n"]).filter(where).count(), where
    check(where + ", counted")
assert sum(batch.num_rows for batch in table.batches(10)) == 100
check("batches")
assert sum(len(batch["n"]) for batch in table.batch_dicts(10)) == 100
check("batch_dicts")
"""


def test_short_queries_do_not_import_pandas(tmp_path: Path) -> None:
    pytest.importorskip("pandas")
    rows = pa.table(
        {
            "n": np.arange(100),
            "x": np.arange(100) / 3,
            "word": pa.array([f"w{n % 7}" for n in range(100)]),
            "flag": pa.array([n % 2 == 0 for n in range(100)]),
            "day": pa.array([date(2024, 1, 1 + n % 20) for n in range(100)]),
            "time": pa.array([datetime(2024, 1, 1 + n % 20, 3) for n in range(100)]),
        }
    )
    store = (tmp_path / "store").as_uri()
    wd.DatasetBuilder("a/b", store).add_table("main", rows).publish()
    filters = [
        "n > 5",
        "x < 7.5",
        "word = 'w3'",
        "word IN ('w1', 'w2')",
        "word LIKE 'w%'",
        "flag",
        "n + x < 20",
        "n IS NOT NULL",
        "day >= '2024-01-05'",
        "time >= TIMESTAMP '2024-01-05 00:00:00'",
        "length(word) = 2",
    ]
    ran = subprocess.run(
        [sys.executable, "-c", _SHORT_QUERIES, store, *filters],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
