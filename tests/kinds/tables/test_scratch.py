"""If this fails, filters decode into memory that wanders between cores, or keep it, or use what nobody chose."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import warpdata as wd
from warpdata.formats.parquet.scratch import scratch_pool

_MINE = pa.proxy_memory_pool(pa.system_memory_pool())


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> wd.Table:
    """Its scratch memory is `_MINE`. It has more row groups than there are cores, so that only our threads decode."""
    rows = pa.table({"n": np.arange(50_000), "word": [f"w{n % 7}" for n in range(50_000)], "x": np.arange(5e4) / 3})
    path = tmp_path / "rows.parquet"
    pq.write_table(rows, path, row_group_size=250)
    wd.DatasetBuilder("a/b", tmp_path.as_uri()).add_table("main", path).publish()
    monkeypatch.setattr("warpdata.formats.parquet.shard.scratch_pool", lambda: _MINE)
    return wd.dataset("a/b", store=tmp_path.as_uri()).table()


def test_what_a_filter_throws_away_lies_in_scratch_memory_and_what_it_keeps_does_not(table: wd.Table) -> None:
    before = _MINE.total_bytes_allocated()
    kept = table.filter("word = 'w3' AND n > 100").to_arrow()
    assert _MINE.total_bytes_allocated() - before > 50_000 * 8 * 2
    assert _MINE.bytes_allocated() == 0
    assert kept["n"].to_pylist() == [n for n in range(101, 50_000) if n % 7 == 3]
    before = _MINE.total_bytes_allocated()
    assert table.filter("n % 2 = 0").count() == 25_000
    assert _MINE.total_bytes_allocated() - before > 50_000 * 8


def test_rows_that_are_all_wanted_are_not_scratch(table: wd.Table) -> None:
    before = _MINE.total_bytes_allocated()
    assert table.to_arrow().num_rows == 50_000
    assert table.head(5).num_rows == 5
    assert _MINE.total_bytes_allocated() == before


def test_who_chose_an_allocator_gets_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    default = pa.default_memory_pool()
    try:
        for name in pa.supported_memory_backends():
            pa.set_memory_pool(getattr(pa, f"{name}_memory_pool")())
            pool = scratch_pool()
            assert (pool and pool.backend_name) == ("jemalloc" if name == "mimalloc" else None)
        pa.set_memory_pool(pa.mimalloc_memory_pool())
        monkeypatch.setattr(pa, "supported_memory_backends", lambda: ["mimalloc", "system"])
        assert scratch_pool() is None
    finally:
        pa.set_memory_pool(default)
