"""If this fails, filtering a stored table gives other rows than DuckDB gives for the same data."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import warpdata as wd
from tests.query.expressions import EXPRESSIONS, expected_rows


@given(
    rows=st.lists(st.integers(0, 50), min_size=1, max_size=200),
    expression=EXPRESSIONS,
    part_bytes=st.sampled_from([1, 300, 10**6]),
)
def test_a_published_table_filters_like_duckdb(
    tmp_path_factory: pytest.TempPathFactory, rows: list[int], expression: str, part_bytes: int
) -> None:
    """The result does not depend on how many of the other columns are decoded at a time."""
    folder = tmp_path_factory.mktemp("filter")
    table = pa.table(
        {
            "i": pa.array(sorted(rows), pa.int64()),
            "b": pa.array([n % 100 for n in rows], pa.int8()),
            "u": pa.array([n % 4 for n in rows], pa.uint32()),
            "f": pa.array([float("nan") if n % 7 == 0 else n / 2 for n in rows]),
            "h": pa.array([float("nan") if n % 3 == 0 else n / 4 for n in rows]),
            "g": pa.array([n / 2 for n in rows], pa.float32()),
            "s": pa.array([None if n % 5 == 0 else "ab"[n % 2] for n in rows]),
            "t": pa.array([n % 3 == 0 for n in rows]),
            "d": pa.array(sorted(n % 3 - 1 for n in rows), pa.int32()).cast(pa.date32()),
            "m": pa.array(sorted((n - 25) * 3_600_000_000 for n in rows), pa.int64()).cast(pa.timestamp("us")),
        }
    )
    path = folder / "part.parquet"
    pq.write_table(table, path, row_group_size=16)
    store = f"memory://{folder.name}"
    wd.DatasetBuilder("a/b", store).add_table("main", path).publish()
    found = wd.dataset("a/b", store=store).table().filter(expression)
    expected = table.take(pa.array(expected_rows(table, expression), pa.int64()))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("warpdata.kinds.tables.row_group_scan._PART_BYTES_PER_CORE", part_bytes)
        assert _comparable(found.to_arrow()) == _comparable(expected)
        assert found.count() == expected.num_rows


def _comparable(table: pa.Table) -> list[str]:
    return [repr(row) for row in table.to_pylist()]
