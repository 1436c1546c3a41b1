"""Bloom filters and page indexes of files. If this failed, a filter would lose rows, or read far too many."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import warpdata as wd
from warpdata.formats.parquet import ShardFile, group_pruner
from warpdata.formats.parquet.bloom_filter import encode_value, parse_bloom_filter
from warpdata.formats.parquet.page_index import parse_column_index
from warpdata.query import Evaluator
from warpdata.testing import S3Endpoint

ROWS = 40_000
BLOOMS = ["number", "small", "text", "real"]


def _rows(seed: int = 0) -> pa.Table:
    rng = np.random.default_rng(seed)
    numbers = rng.integers(0, 10**9, ROWS)
    real = np.round(rng.normal(size=ROWS), 3)
    real[rng.random(ROWS) < 0.01] = np.nan
    return pa.table(
        {
            "number": pa.array(numbers, mask=rng.random(ROWS) < 0.05),
            "small": pa.array(rng.integers(0, 200, ROWS), pa.uint8()),
            "sorted": np.sort(rng.integers(0, 10**6, ROWS)),
            "text": [f"text {number % 5000}" for number in numbers.tolist()],
            "real": real,
            "steps": pa.array(np.arange(ROWS) // 100, pa.timestamp("us")),
            "part": pa.array([None if at < ROWS // 2 else at for at in range(ROWS)], pa.int64()),
        }
    )


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> tuple[pa.Table, wd.Table]:
    """A table of one file that another writer could have made, with all indexes of Parquet."""
    root = tmp_path_factory.mktemp("pruning")
    rows = _rows()
    path = root / "rows.parquet"
    blooms = dict.fromkeys(BLOOMS, True)
    pq.write_table(
        rows, path, row_group_size=20_000, write_page_index=True, data_page_size=4096, bloom_filter_options=blooms
    )
    wd.DatasetBuilder("acme/pruned", (root / "store").as_uri()).add_table("main", path).publish()
    return rows, wd.dataset("acme/pruned", store=(root / "store").as_uri()).table()


VALUES = st.integers(0, 5000)
CONDITIONS = st.one_of(
    st.integers(0, ROWS - 1).map(lambda at: ("number", at)),
    VALUES.map(lambda value: f"number = {value}"),
    st.integers(-5, 300).map(lambda value: f"small = {value}"),
    VALUES.map(lambda value: f"text = 'text {value}'"),
    st.lists(VALUES, min_size=1, max_size=4).map(
        lambda found: f"text IN ({', '.join(repr(f'text {value}') for value in found)})"
    ),
    st.floats(-3, 3).map(lambda value: f"real = {value:.3f}"),
    st.sampled_from(["real = 0.0", "real = -0.0", "real > 3.5", "part IS NULL", "part IS NOT NULL"]),
    st.tuples(st.integers(0, 10**6), st.integers(0, 20_000)).map(
        lambda pair: f"sorted >= {pair[0]} AND sorted < {pair[0] + pair[1]}"
    ),
    st.integers(0, ROWS).map(lambda value: f"part BETWEEN {value} AND {value + 50}"),
    st.integers(0, 400).map(lambda value: f"steps = TIMESTAMP '1970-01-01 00:00:00.{value:06}'"),
)


@settings(max_examples=60, deadline=None)
@given(parts=st.lists(CONDITIONS, min_size=1, max_size=3), joint=st.sampled_from([" AND ", " OR "]))
def test_pruning_changes_no_answer(written: tuple[pa.Table, wd.Table], parts: list[Any], joint: str) -> None:
    rows, table = written
    texts = [part if isinstance(part, str) else f"number = {rows['number'][part[1]].as_py() or 1}" for part in parts]
    chosen = table.filter(joint.join(f"({text})" for text in texts))
    mask = Evaluator(chosen.filters[0]).mask(rows)
    assert chosen.row_numbers().tolist() == np.flatnonzero(mask).tolist()
    found = chosen.select(["sorted", "text"]).to_arrow(allow_large=True)
    assert found.equals(rows.select(["sorted", "text"]).filter(pa.array(mask)).combine_chunks().cast(found.schema))


def test_rows_that_a_bloom_filter_rules_out_are_not_decoded(
    written: tuple[pa.Table, wd.Table], monkeypatch: pytest.MonkeyPatch
) -> None:
    rows, table = written
    missing = next(value for value in range(10**6) if not pc.any(pc.equal(rows["number"], value)).as_py())

    def fail(*_: Any) -> Any:
        raise AssertionError("a row group was decoded")

    monkeypatch.setattr(ShardFile, "decode", fail)
    assert table.filter(f"number = {missing}").count() == 0
    assert table.filter("text = 'no such text, but between others'").count() == 0


def test_only_pages_with_a_match_are_decoded(
    written: tuple[pa.Table, wd.Table], monkeypatch: pytest.MonkeyPatch
) -> None:
    rows, table = written
    taken: list[int] = []
    take = ShardFile.take_rows

    def record(self: ShardFile, wanted: Any, columns: Any) -> Any:
        taken.append(sum(len(part.rows) for part in wanted))
        return take(self, wanted, columns)

    monkeypatch.setattr(ShardFile, "take_rows", record)
    value = rows["sorted"][ROWS // 3].as_py()
    assert table.filter(f"sorted BETWEEN {value} AND {value + 100}").count() >= 1
    assert 0 < sum(taken) < 5000


def test_pages_with_checksums_are_read_and_verified(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bloom filters and page indexes have no checksum. Damage in them must not hide rows that are verified."""
    rows, path = _rows(2), tmp_path / "rows.parquet"
    options: Any = {"bloom_filter_options": dict.fromkeys(BLOOMS, True), "write_page_index": True}
    pq.write_table(rows, path, row_group_size=20_000, data_page_size=4096, write_page_checksum=True, **options)
    wd.DatasetBuilder("acme/pruned", (tmp_path / "store").as_uri()).add_table("main", path).publish()
    table = wd.dataset("acme/pruned", store=(tmp_path / "store").as_uri()).table()
    used: list[object] = []
    monkeypatch.setattr(group_pruner, "parse_bloom_filter", used.append)
    monkeypatch.setattr(group_pruner, "find_candidates", lambda *given: used.append(given))
    low = rows["sorted"][100].as_py()
    for text in (f"number = {rows['number'].drop_null()[7]}", f"sorted BETWEEN {low} AND {low + 500}"):
        assert table.filter(text).count() > 0
    assert not used


@pytest.mark.parametrize("part", ["bloom_filter", "column_index", "offset_index"])
def test_a_damaged_part_loses_no_row(tmp_path: Path, part: str) -> None:
    """Random bytes in place of a part: it is ignored, or the rows are found otherwise."""
    rows = _rows(1)
    path = tmp_path / "rows.parquet"
    blooms = dict.fromkeys(BLOOMS, True)
    pq.write_table(rows, path, write_page_index=True, data_page_size=4096, bloom_filter_options=blooms)
    data = bytearray(path.read_bytes())
    wd.DatasetBuilder("acme/pruned", (tmp_path / "clean").as_uri()).add_table("main", path).publish()
    table = wd.dataset("acme/pruned", store=(tmp_path / "clean").as_uri()).table()
    first = table._first_shard()
    assert isinstance(first, ShardFile)
    rng = np.random.default_rng(3)
    for chunk in first.layout.footer.chunks[0]:
        span = getattr(chunk, part)
        if span is not None:
            data[span.start : span.start + 12] = rng.bytes(12)
    path.write_bytes(data)
    group_pruner._pages.clear()
    group_pruner._blooms.clear()
    wd.DatasetBuilder("acme/pruned", (tmp_path / "damaged").as_uri()).add_table("main", path).publish()
    damaged = wd.dataset("acme/pruned", store=(tmp_path / "damaged").as_uri()).table()
    low = rows["sorted"][100].as_py()
    for text in (f"number = {rows['number'].drop_null()[7]}", f"sorted BETWEEN {low} AND {low + 500}"):
        assert damaged.filter(text).count() == table.filter(text).count() > 0


def test_values_of_other_types_are_not_looked_up() -> None:
    assert encode_value(True, pa.bool_(), 0) is None
    assert encode_value(300, pa.int8(), 1) == [struct.pack("<i", 300)]
    assert encode_value(-1, pa.uint32(), 1) == []
    assert encode_value(2**40, pa.int32(), 1) == []
    assert encode_value(1e300, pa.float32(), 4) == []
    assert encode_value(0.0, pa.float64(), 5) == [struct.pack("<d", 0.0), struct.pack("<d", -0.0)]
    assert encode_value("é", pa.string(), 6) == ["é".encode()]
    assert encode_value("x", pa.binary(), 6) is None


@settings(max_examples=200, deadline=None)
@given(data=st.binary(max_size=200))
def test_noise_is_no_index(data: bytes) -> None:
    parse_bloom_filter(data)
    parse_column_index(data)


def test_a_remote_file_is_fetched_in_part(s3_server: S3Endpoint, s3_url: str, tmp_path: Path) -> None:
    rows = pa.table({"sorted": np.arange(400_000) * 7919, "text": [f"{at * 7919 % 400_009}" for at in range(400_000)]})
    path = tmp_path / "rows.parquet"
    options: Any = {"bloom_filter_options": {"text": True}, "write_page_index": True}
    pq.write_table(rows, path, compression="none", data_page_size=8192, use_dictionary=False, **options)
    config = s3_server.settings(cache_dir=tmp_path / "cache", mode="remote")
    wd.DatasetBuilder("acme/pruned", s3_url, settings=config).add_table("main", path).publish()
    opened = wd.dataset("acme/pruned", store=s3_url, settings=config)
    table = opened.table()
    table.schema()
    before = opened.io_stats.bytes_fetched
    assert table.filter(f"sorted BETWEEN {7919 * 1000} AND {7919 * 1099}").to_arrow()["sorted"].to_pylist() == [
        at * 7919 for at in range(1000, 1100)
    ]
    assert table.filter("text = 'none of these'").count() == 0
    assert opened.io_stats.bytes_fetched - before < path.stat().st_size / 4
