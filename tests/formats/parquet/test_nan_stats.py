"""If this fails, a filter loses rows with NaN, or reads columns that the footer rules out.

DuckDB over the plain table in memory is the reference. Over Parquet files, DuckDB loses the rows too.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import duckdb
import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import warpdata as wd
from warpdata.errors import InvalidSourceError
from warpdata.formats.parquet import WriteOptions, describe_all, write_parquet
from warpdata.formats.parquet.nan_stats import columns_without_nan
from warpdata.formats.parquet.shard import ShardFile, open_shard
from warpdata.kinds.tables import Table
from warpdata.repository.manifest import iter_shards

KEY = b"warpdata:no_nan"
VALUES = st.lists(
    st.none() | st.sampled_from([-1.5, -0.0, 0.0, 1.0, 1.5, 2.0, math.inf, -math.inf]) | st.just(math.nan),
    max_size=9,
)
CONSTANTS = st.sampled_from(["-1.5", "0", "1", "1.5", "2", "3"])


def written(table: pa.Table, folder: Path) -> list[Path]:
    """Write row groups of two rows, and two row groups to a file."""
    return list(write_parquet(table.to_batches(), table.schema, folder, "t", WriteOptions(40, 80)))


def published(source: object, store: str) -> Table:
    wd.DatasetBuilder("a/b", store).add_table("main", source).publish()
    return wd.dataset("a/b", store=store).table()


@settings(max_examples=50)
@given(VALUES, VALUES, st.sampled_from(["=", "!=", "<", "<=", ">", ">="]), CONSTANTS)
@example([1.0, 2.0, math.nan, 0.0], [], ">", "3")
@example([1.0, 1.0], [math.nan], "!=", "1")
@example([1.0, 1.0, None, 1.0], [1.0], "!=", "1")
def test_written_files_filter_like_duckdb(
    tmp_path_factory: pytest.TempPathFactory,
    doubles: list[float | None],
    singles: list[float | None],
    op: str,
    value: str,
) -> None:
    folder = tmp_path_factory.mktemp("nan")
    size = max(len(doubles), len(singles))
    filled = [[*column, *[1.0] * (size - len(column))] for column in (doubles, singles)]
    table = pa.table({"n": range(size), "x": pa.array(filled[0], pa.float64()), "y": pa.array(filled[1], pa.float32())})
    found = published(written(table, folder), f"memory://{folder.name}")
    with duckdb.connect() as reference:
        reference.register("plain", table)
        for expression in (f"x {op} {value}", f"NOT (y {op} {value})"):
            query = f"SELECT n, ({expression}) IS TRUE FROM plain ORDER BY n"
            expected = [n for n, is_true in reference.execute(query).fetchall() if is_true]
            assert found.filter(expression).to_arrow()["n"].to_pylist() == expected, expression


def test_columns_without_nan_are_pruned_by_statistics(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = pa.table({"x": [0.5, 1.0], "y": [0.5, math.nan], "z": pa.array([0.5, None], pa.float32())})
    own = published(table, f"memory://{tmp_path.name}/own")
    pq.write_table(table, tmp_path / "foreign.parquet")
    foreign = published(tmp_path / "foreign.parquet", f"memory://{tmp_path.name}/foreign")
    read: list[str] = []
    decode = ShardFile.decode

    def record(self: ShardFile, group: int, columns: list[str], *rest: Any, **options: Any) -> pa.Table:
        read.extend(columns)
        return decode(self, group, columns, *rest, **options)

    monkeypatch.setattr(ShardFile, "decode", record)
    assert [own.filter(f"{name} > 2").count() for name in "xyz"] == [0, 1, 0]
    assert read == ["y"]
    assert [foreign.filter(f"{name} > 2").count() for name in "xyz"] == [0, 1, 0]
    assert read == ["y", "x", "y", "z"]


def test_nan_metadata_of_an_unverified_footer_is_ignored(tmp_path: Path) -> None:
    table = published(pa.table({"x": [1.0]}), f"memory://{tmp_path.name}")
    (shard,) = iter_shards(table.entry.shards, table.load_page)
    file = table.shards.open(shard)
    unverified = open_shard(table.shards.reader, msgspec.structs.replace(shard, footer=None))
    assert [each.layout.bounds(0, ["x"])["x"].may_have_nan for each in (file, unverified)] == [False, True]


def test_nan_metadata_is_not_inherited_by_other_rows(tmp_path: Path) -> None:
    (path,) = write_parquet(pa.table({"x": [1.0]}).to_batches(), pa.schema([("x", pa.float64())]), tmp_path, "t")
    assert columns_without_nan(pq.read_metadata(path).metadata) == {"x"}
    inherited = pq.ParquetFile(path).read_row_group(0)
    assert KEY in inherited.schema.metadata
    changed = inherited.set_column(0, "x", [[math.nan]])
    assert changed.schema.metadata == inherited.schema.metadata
    stale = tmp_path / "stale.parquet"
    pq.write_table(changed, stale)
    with pytest.raises(InvalidSourceError, match=r"'x' has no NaN.*\n.*rewrite=True"):
        published(stale, f"memory://{tmp_path.name}")
    for source, rewrite in ((stale, True), (changed, False)):
        wd.DatasetBuilder("a/b", f"memory://{tmp_path.name}").add_table("main", source, rewrite=rewrite).publish()
        table = wd.dataset("a/b", store=f"memory://{tmp_path.name}").table()
        assert KEY not in (table.schema().metadata or {})
        assert KEY not in (table.to_arrow().schema.metadata or {})
        assert table.filter("x > 5").count() == 1
    (described,) = describe_all([path])
    assert described.has_nan_metadata
    assert KEY not in (described.schema.metadata or {})


@pytest.mark.parametrize("value", [b"", b"{", b"x", b"7", b'{"x": 1}', b"[1]", b'["x", null]', b"\xff", b"[" * 100_000])
def test_malformed_nan_metadata_lists_no_column(value: bytes) -> None:
    assert columns_without_nan({KEY: value}) == frozenset()
    assert columns_without_nan({KEY: b'["x"]'}) == {"x"}
    assert columns_without_nan(None) == frozenset()
