"""If this fails, rows asked for by number are other rows, or a filter counts them wrong."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import warpdata as wd
from warpdata.errors import BadInputError


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> wd.Table:
    """Three shards of several row groups each; a value, a text with few distinct ones, and nulls."""
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
def test_rows_by_number_are_those_rows(table: wd.Table, rows: set[int]) -> None:
    wanted = sorted(rows)
    expected = table.to_arrow().take(pa.array(wanted, pa.int64()))
    assert table.take(wanted).equals(expected)
    assert table.select(["city"]).take(wanted)["city"].equals(expected["city"])


@pytest.mark.parametrize(
    "condition", ["x > 100", "x IS NULL", "city = 'lima' AND id < 150", "id % 13 = 5", "id < 0", "city LIKE '%o%'"]
)
def test_a_filter_keeps_the_rows_it_numbers(table: wd.Table, condition: str) -> None:
    kept = table.filter(condition)
    numbers = kept.row_numbers()
    assert numbers.dtype == np.int64
    assert table.take(numbers).equals(kept.to_arrow())
    assert table.row_numbers().tolist() == list(range(200))


def test_rows_that_are_not_there_or_not_in_order_are_refused(table: wd.Table) -> None:
    with pytest.raises(BadInputError, match="no row 200"):
        table.take([3, 200])
    with pytest.raises(BadInputError, match="must ascend"):
        table.take([3, 3])
