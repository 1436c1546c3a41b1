"""If this fails, the filter reference promises another treatment of NULL or NaN than people get."""

from __future__ import annotations

import re

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
