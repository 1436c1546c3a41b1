"""If this fails, the filter reference promises another treatment of NULL or NaN than people get, or other spellings."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Any

import pyarrow as pa
import pytest

import warpdata as wd
from tests.docs.pages import ROOT, sections

PAGE = ROOT / "docs" / "reference" / "filters.md"
VALUES = {"x = 5": 5.0, "x = 1": 1.0, "x is NULL": None, "x is NaN": float("nan")}


def rows_of(section: str) -> list[tuple[str, str, bool]]:
    """Every cell of the section's first table: the expression, the value's name, and whether it is kept."""
    lines = [line for line in sections(PAGE)[section].splitlines() if line.startswith("|")]
    head, _, *body = [[cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip("|"))] for line in lines]
    return [
        (cells[0].strip("`"), name, cell == "kept")
        for cells in body
        for name, cell in zip(head[1:], cells[1:], strict=True)
    ]


@pytest.mark.parametrize(("expression", "name", "kept"), [*rows_of("NULL"), *rows_of("NaN")])
def test_the_tables_of_the_reference_are_true(expression: str, name: str, kept: bool) -> None:
    rows = pa.table({"x": pa.array([VALUES[name]], pa.float64())})
    wd.DatasetBuilder("docs/filters").add_table("main", rows).publish()
    table = wd.dataset("docs/filters").table()
    assert table.filter(expression).count() == int(kept)


A, B = datetime(2025, 1, 1), datetime(2025, 2, 1)
VECTOR = [1.0, 0.5]
ROWS = pa.table(
    {
        "fare": [20.0, 21.0, None, 30.0] * 60,
        "city": ["Oslo", "Bergen", None] * 80,
        "paid": [True, False, True, None] * 60,
        "label": ["cat", "dog", "bird", None, "fish"] * 48,
        "tags": pa.array([["night"], ["day", "night"], [], None, ["nightly"]] * 48, pa.list_(pa.string())),
        "ts": [A, B, datetime(2025, 1, 31, 23), datetime(2024, 12, 31), None] * 48,
        "name": ["ada", "Ada", None, "ba", "a%"] * 48,
        "pickup": [{"zone": 3}, {"zone": 4}, {"zone": 9}, {"zone": 10}, {"zone": None}, None] * 40,
        "emb": pa.array([[n % 7 - 3.0, n % 11] for n in range(240)], pa.list_(pa.float32(), 2)),
        "other": range(240),
    }
)


def spellings() -> list[tuple[str, ...]]:
    """The rows of the table of spellings. A dash or nothing stands for a spelling that does not exist."""
    lines = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("|")]
    _, _, *body = lines[: lines.index(next(line for line in lines if line.startswith("| expression")))]
    cells = [[cell.strip().strip("`") for cell in re.split(r"(?<!\\)\|", line.strip("|"))] for line in body]
    return [tuple(cell.replace("\\|", "|") for cell in row) for row in cells]


@pytest.mark.parametrize("spellings", spellings(), ids=lambda row: row[1])
def test_the_spellings_of_a_line_keep_the_same_rows(spellings: tuple[str, ...]) -> None:
    wd.DatasetBuilder("docs/spellings").add_table("main", ROWS).publish()
    table = wd.dataset("docs/spellings").table()
    names = {"col": wd.col, "F": wd.Filter, "a": A, "b": B, "vector": VECTOR}
    text, *made = spellings
    sample_count = "5000", "50"  # the page samples from a larger table
    filters: list[Any] = [eval(each.replace(*sample_count), names) for each in made if each]  # noqa: S307
    kept = [table.filter(each).row_numbers().tolist() for each in filters]
    if text != "–":
        kept.append(table.filter(text).row_numbers().tolist())
    assert len(kept) > 1
    assert all(rows == kept[0] for rows in kept)
    assert 0 < len(kept[0]) < ROWS.num_rows


def test_the_examples_are_filters() -> None:
    schema = {
        "fare": [21.0],
        "city": ["Oslo"],
        "paid": [True],
        "started": ["2025-01-02"],
        "name": ["Ada"],
        "pickup": [{"zone": 12}],
        "tags": [["night"]],
    }
    wd.DatasetBuilder("docs/filters").add_table("main", schema).publish()
    table = wd.dataset("docs/filters").table()
    text = PAGE.read_text(encoding="utf-8").split("```text\n")[1].split("```")[0]
    for line in text.strip().splitlines():
        assert table.filter(line).count() == 1, line
