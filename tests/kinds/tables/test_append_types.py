"""If this fails, appended rows lose values, are refused without need, or cannot be read with the rest."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import warpdata as wd
from warpdata.errors import SchemaMismatchError
from warpdata.formats.parquet import can_widen

TYPES = [
    *(pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()),
    *(pa.float16(), pa.float32(), pa.float64(), pa.string(), pa.large_string(), pa.binary(), pa.large_binary()),
    *(pa.bool_(), pa.date32(), pa.timestamp("ms"), pa.timestamp("us"), pa.null(), pa.decimal128(5, 2)),
    *(pa.list_(pa.int8()), pa.list_(pa.int64()), pa.large_list(pa.int64()), pa.list_(pa.int8(), 2)),
    *(pa.list_(pa.float64(), 2), pa.dictionary(pa.int32(), pa.string())),
]


def extremes(arrow_type: pa.DataType) -> list[Any]:
    """Return values at the ends of a type's range."""
    if pa.types.is_integer(arrow_type):
        bits, signed = arrow_type.bit_width, pa.types.is_signed_integer(arrow_type)
        low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if signed else (0, 2**bits - 1)
        return [low, low + 1, high - 1, high]
    if pa.types.is_floating(arrow_type):
        kind = np.dtype(f"f{arrow_type.bit_width // 8}").type
        return [float(np.finfo(kind).max), float(np.finfo(kind).smallest_subnormal), -0.0, 1.5]
    if pa.types.is_list(arrow_type) or pa.types.is_large_list(arrow_type) or pa.types.is_fixed_size_list(arrow_type):
        return [extremes(arrow_type.value_type)[:2], extremes(arrow_type.value_type)[-2:]]
    return ["a", "ü"] if arrow_type in (pa.string(), pa.large_string()) else [None]


@given(st.sampled_from(TYPES), st.sampled_from(TYPES))
def test_widening_loses_no_value(narrow: pa.DataType, wide: pa.DataType) -> None:
    assert can_widen(narrow, narrow)
    if not can_widen(narrow, wide):
        return
    values = pa.array(extremes(narrow), narrow) if not pa.types.is_dictionary(narrow) else pa.array(["a"], narrow)
    assert values.cast(wide).to_pylist() == values.to_pylist()


@pytest.mark.parametrize(
    ("stored", "appended"),
    [
        (pa.int64(), pa.int32()),
        (pa.int64(), pa.uint32()),
        (pa.float64(), pa.int32()),
        (pa.float64(), pa.float32()),
        (pa.large_string(), pa.string()),
        (pa.string(), pa.dictionary(pa.int8(), pa.string())),
        (pa.list_(pa.int64()), pa.list_(pa.int8())),
        (pa.int64(), pa.null()),
    ],
    ids=str,
)
def test_narrower_rows_are_appended_and_widened(stored: pa.DataType, appended: pa.DataType, tmp_path: Path) -> None:
    def rows(arrow_type: pa.DataType, ids: range) -> pa.Table:
        plain = arrow_type.value_type if pa.types.is_dictionary(arrow_type) else arrow_type
        is_text = plain in (pa.string(), pa.large_string())
        is_list = pa.types.is_list(plain)
        cells = [f"w{n % 3}" if is_text else [n] if is_list else n for n in ids]
        column = pa.nulls(len(ids)) if pa.types.is_null(plain) else pa.array(cells, plain)
        return pa.table({"id": ids, "c": column.cast(arrow_type)})

    first, second = rows(stored, range(40)), rows(appended, range(40, 80))
    wd.DatasetBuilder("a/b").add_table("main", first).publish()
    pq.write_table(second, tmp_path / "more.parquet", row_group_size=7)
    wd.DatasetBuilder("a/b").append_table("main", tmp_path / "more.parquet").publish()
    table = wd.dataset("a/b").table()
    expected = pa.concat_tables([first, second.cast(first.schema)])
    assert table.schema() == first.schema
    assert table.to_arrow().equals(expected)
    assert table.take([79, 3, 41]).equals(expected.take([79, 3, 41]))
    assert table.head(50).equals(expected.slice(0, 50))
    assert table.filter("id >= 38 AND c IS NOT NULL").count() == len(expected.slice(38)["c"].drop_null())
    assert table.duckdb().order("id").project("id").fetchall() == [(n,) for n in range(80)]
    streamed = pa.Table.from_batches(list(wd.dataset("a/b").stream(collate="arrow", batch_size=16)))
    assert streamed["c"].to_pylist() == expected["c"].to_pylist()


def test_a_filter_computes_in_the_tables_type() -> None:
    """In 32 bits the product would overflow."""
    wd.DatasetBuilder("a/b").add_table("main", pa.table({"n": pa.array([1], pa.int64())})).publish()
    wd.DatasetBuilder("a/b").append_table("main", pa.table({"n": pa.array([2_000_000], pa.int32())})).publish()
    table = wd.dataset("a/b").table()
    for expression in ("n * n = 4000000000000", "abs(n) * n > 5", "n > 1999999 AND n < 3000000000"):
        assert table.filter(expression).to_arrow()["n"].to_pylist() == [2_000_000], expression
    assert table.filter("n < 5").row_numbers().tolist() == [0]


@pytest.mark.parametrize(
    ("stored", "appended"),
    [(pa.int32(), pa.int64()), (pa.float32(), pa.int32()), (pa.uint64(), pa.int8()), (pa.string(), pa.int64())],
    ids=str,
)
def test_rows_that_might_lose_values_are_refused_by_column(stored: pa.DataType, appended: pa.DataType) -> None:
    def rows(arrow_type: pa.DataType) -> pa.Table:
        return pa.table({"id": [1], "c": pa.array([1]).cast(arrow_type)})

    wd.DatasetBuilder("a/b").add_table("main", rows(stored)).publish()
    with pytest.raises(SchemaMismatchError, match=rf"column 'c' is {stored} in table 'main', but {appended}"):
        wd.DatasetBuilder("a/b").append_table("main", rows(appended)).publish()
    assert wd.dataset("a/b").table().count() == 1
