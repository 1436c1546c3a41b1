"""If this fails, indexing a table gives other rows than reading it whole, or a notebook cell fails or floods."""

from __future__ import annotations

import io
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import warpdata as wd
from tests.faults.scenes import link, memory
from warpdata.datasets import open_dataset
from warpdata.errors import BadInputError, ColumnNotFoundError
from warpdata.kinds.tables import Table
from warpdata.repository.catalog import parse_address

ROWS = 40
_INDEX = st.one_of(st.none(), st.integers(-60, 60))


def make(name: str, rows: pa.Table, files: dict[str, bytes] | None = None) -> Table:
    session = link(memory(name))
    builder = wd.DatasetBuilder("a/b", session).add_table("main", rows)
    if files is not None:
        builder.add_artifact("raw", files).bind("main", "image", "raw", "image")
    builder.publish()
    return open_dataset(session, parse_address("a/b")).table()


@pytest.fixture(scope="module")
def table() -> Table:
    return make("row-access", pa.table({"n": range(ROWS), "text": [f"t{n % 7}" for n in range(ROWS)]}))


@given(start=_INDEX, stop=_INDEX, step=st.one_of(st.none(), st.integers(1, 5), st.integers(-5, -1)))
def test_slices_are_those_of_a_list(table: Table, start: int | None, stop: int | None, step: int | None) -> None:
    part = slice(start, stop, step)
    assert table[part].to_pylist() == table.to_arrow().to_pylist()[part]
    kept = table.filter("n >= 10")
    assert kept[part]["n"].to_pylist() == list(range(10, ROWS))[part]


@given(at=st.integers(-60, 60))
def test_rows_are_those_of_a_list(table: Table, at: int) -> None:
    for view, expected in ((table, range(ROWS)), (table.filter("n % 2 = 1"), range(1, ROWS, 2))):
        if -len(expected) <= at < len(expected):
            assert view[at]["n"] == expected[at]
        else:
            with pytest.raises(IndexError):
                view[at]


def test_length_iteration_columns_and_truth(table: Table) -> None:
    assert (len(table), len(table.filter("n < 5"))) == (ROWS, 5)
    assert [row["n"] for row in table] == list(range(ROWS))
    assert list(table.filter("n < 2")) == [{"n": 0, "text": "t0"}, {"n": 1, "text": "t1"}]
    assert table["text"][3] == {"text": "t3"}
    assert table[["text", "n"]].schema().names == ["text", "n"]
    assert bool(table.filter("n < 0"))
    with pytest.raises(ColumnNotFoundError):
        table["nope"]


@pytest.mark.parametrize("key", [1.5, None, True, (1, 2)])
def test_other_keys_are_refused(table: Table, key: Any) -> None:
    with pytest.raises(BadInputError):
        table[key]


def test_html_shows_small_images_and_never_fails() -> None:
    images = pytest.importorskip("PIL.Image", reason="the extra warpdata[image] is not installed")
    out = io.BytesIO()
    images.effect_noise((900, 700), 60).convert("RGB").save(out, "PNG")
    files = {f"{n}.png": out.getvalue() for n in range(9)} | {"1.png": b"broken", "2.png": b""}
    rows = pa.table({"n": range(9), "image": [*list(files)[:8], None]})
    html = make("row-html", rows, files)._repr_html_()
    assert html.count('<img src="data:image/png;base64,') == 3
    assert "1.png" in html
    assert "ref&lt;image&gt;" in html
    assert len(html) < 200_000
