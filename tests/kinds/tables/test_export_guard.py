"""If this fails, an export takes more memory than its guard allows, or the guard refuses what would fit."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import warpdata as wd
from warpdata.errors import BadInputError, ErrorKind
from warpdata.kinds.tables import Table
from warpdata.kinds.tables import row_access as module

ROWS = 4000
TEXT = "x" * 2000
LIMIT = ROWS * len(TEXT) // 2


@pytest.fixture
def repeated(tmp_path: Path) -> Table:
    """A table of two texts: a few kilobytes in the store, megabytes in memory."""
    texts = [TEXT, TEXT[:-1]] * (ROWS // 2)
    rows = pa.table({"id": np.arange(ROWS), "text": texts})
    pq.write_table(rows, tmp_path / "rows.parquet", row_group_size=500)
    wd.DatasetBuilder("a/b").add_table("main", tmp_path / "rows.parquet").publish()
    table = wd.dataset("a/b").table()
    assert table.entry.shards.data_bytes < LIMIT / 20
    return table


def test_the_guard_measures_decoded_rows(repeated: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MAX_EXPORT_BYTES", LIMIT)
    for table in (repeated, repeated.filter("id >= 0"), repeated.select(["text"])):
        for export in (table.to_arrow, table.pandas, table.polars):
            with pytest.raises(BadInputError, match=r"at least .* bytes; the limit is") as raised:
                export()
            assert raised.value.kind is ErrorKind.LARGE_EXPORT
        assert table.to_arrow(allow_large=True).num_rows == ROWS
        assert table.to_arrow(limit=ROWS).num_rows == ROWS


def test_equal_texts_in_one_row_group_are_refused_before_they_are_decoded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pq.write_table(pa.table({"text": [TEXT] * ROWS}), tmp_path / "rows.parquet")
    wd.DatasetBuilder("a/b").add_table("main", tmp_path / "rows.parquet").publish()
    monkeypatch.setattr(module, "_MAX_EXPORT_BYTES", LIMIT)
    monkeypatch.setattr(Table, "row_groups", lambda *_, **__: pytest.fail("rows were read"))
    with pytest.raises(BadInputError, match="about 4,000 rows in 8,000,000 bytes"):
        wd.dataset("a/b").table().to_arrow()


def test_the_guard_stops_as_soon_as_the_limit_is_passed(repeated: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MAX_EXPORT_BYTES", LIMIT)
    with pytest.raises(BadInputError) as raised:
        repeated.to_arrow()
    rows = int(raised.value.message.split("at least ")[1].split(" rows")[0].replace(",", ""))
    assert rows <= ROWS // 2 + 500, "one row group more than fits"


def test_filtered_and_selected_rows_that_fit_are_exported(repeated: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MAX_EXPORT_BYTES", LIMIT)
    assert repeated.filter("id < 100").to_arrow().num_rows == 100
    assert repeated.select(["id"]).to_arrow().num_rows == ROWS


def test_a_small_selection_of_a_large_table_is_exported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The stored size of the whole table says nothing about some of its columns."""
    noise = [np.random.default_rng(n).bytes(2000) for n in range(500)]
    wd.DatasetBuilder("a/b").add_table("main", {"id": range(500), "noise": noise}).publish()
    table = wd.dataset("a/b").table()
    monkeypatch.setattr(module, "_MAX_EXPORT_BYTES", 100_000)
    assert table.entry.shards.data_bytes > 900_000
    assert table.select(["id"]).to_arrow().num_rows == 500


def test_an_export_that_is_known_to_be_large_reads_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    noise = [np.random.default_rng(n).bytes(2000) for n in range(500)]
    wd.DatasetBuilder("a/b").add_table("main", {"id": range(500), "noise": noise}).publish()
    table = wd.dataset("a/b").table()
    monkeypatch.setattr(module, "_MAX_EXPORT_BYTES", 100_000)
    monkeypatch.setattr(Table, "row_groups", lambda *_, **__: pytest.fail("rows were read"))
    with pytest.raises(BadInputError, match="about 500 rows in 1,0"):
        table.to_arrow()
