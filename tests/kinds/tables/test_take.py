"""If this fails, `take` returns other rows than requested, or a filter numbers rows wrongly."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import warpdata as wd
from warpdata.errors import BadInputError
from warpdata.formats.parquet import ShardFile


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> wd.Table:
    """Publish three shards with several row groups, nulls, and a text with few distinct values."""
    import pyarrow.parquet as pq

    folder, rng, start = tmp_path_factory.mktemp("rows"), np.random.default_rng(0), 0
    for number, count in enumerate((70, 1, 129)):
        ids = np.arange(start, start + count)
        part = pa.table(
            {
                "id": ids,
                "x": pa.array([None if i % 7 == 0 else float(i) for i in ids], pa.float64()),
                "city": rng.choice(["cairo", "lima", "oslo"], count).tolist(),
            }
        )
        pq.write_table(part, folder / f"{number}.parquet", row_group_size=16, write_page_checksum=True)
        start += count
    store = (folder / "store").as_uri()
    wd.DatasetBuilder("a/b", store).add_table("main", str(folder / "*.parquet")).publish()
    return wd.dataset("a/b", store=store).table()


@given(rows=st.sets(st.integers(0, 199), max_size=60))
@settings(max_examples=40)
def test_take_returns_the_rows_with_these_numbers(table: wd.Table, rows: set[int]) -> None:
    wanted = sorted(rows)
    expected = table.to_arrow().take(pa.array(wanted, pa.int64()))
    assert table.take(wanted).equals(expected)
    assert table.select(["city"]).take(wanted)["city"].equals(expected["city"])


@pytest.mark.parametrize(
    "condition", ["x > 100", "x IS NULL", "city = 'lima' AND id < 150", "id % 13 = 5", "id < 0", "city LIKE '%o%'"]
)
def test_row_numbers_are_those_of_the_filtered_rows(table: wd.Table, condition: str) -> None:
    kept = table.filter(condition)
    numbers = kept.row_numbers()
    assert numbers.dtype == np.int64
    assert table.take(numbers).equals(kept.to_arrow())
    assert table.row_numbers().tolist() == list(range(200))


@given(rows=st.lists(st.integers(0, 199), max_size=40))
@settings(max_examples=40)
def test_take_returns_rows_in_the_given_order_with_repetitions(table: wd.Table, rows: list[int]) -> None:
    expected = table.to_arrow().take(pa.array(rows, pa.int64()))
    assert table.take(rows).equals(expected)
    assert table.take(np.array(rows, np.uint16))["id"].to_pylist() == rows


def test_text_views_are_taken_in_any_order(tmp_path: Path) -> None:
    rows = pa.table({"v": pa.array(["a", "bb", None, "dddd"], pa.string_view())})
    wd.DatasetBuilder("a/views").add_table("main", rows).publish()
    taken = wd.dataset("a/views").table().take([3, 0, 2, 3])
    assert taken["v"].to_pylist() == ["dddd", "a", None, "dddd"]
    assert taken.schema.field("v").type == pa.string_view()


@pytest.mark.parametrize("rows", [5, "12", b"12", None, [1.5], [True], ["1"], [[1]], [2**70], [None], {1: 2}, object()])
def test_row_numbers_must_be_integers(table: wd.Table, rows: Any) -> None:
    with pytest.raises(BadInputError, match="row numbers are"):
        table.take(rows)


def test_missing_row_numbers_are_refused(table: wd.Table) -> None:
    for rows in ([3, 200], [200, 3], [-1], [5, -1]):
        with pytest.raises(BadInputError, match=r"no row (200|-1)"):
            table.take(rows)


def test_a_taker_decodes_a_cached_row_group_once(table: wd.Table, monkeypatch: pytest.MonkeyPatch) -> None:
    decoded: list[int] = []
    decode = ShardFile.decode

    def record(self: ShardFile, group: int, *rest: Any, **options: Any) -> pa.Table:
        decoded.append(group)
        return decode(self, group, *rest, **options)

    monkeypatch.setattr(ShardFile, "decode", record)
    for keep_bytes, expected in ((1 << 20, 1), (0, 3)):
        take = table.taker(keep_bytes)
        decoded.clear()
        for row in (1, 2, 3):
            assert take([row])["id"].to_pylist() == [row]
        assert len(decoded) == expected
