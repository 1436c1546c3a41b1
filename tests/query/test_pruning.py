"""If this fails, statistics rule out a row group that has matching rows, or rule out none."""

from __future__ import annotations

from datetime import date, datetime

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.query.expressions import EXPRESSIONS, ROWS, SCHEMA, expected_rows
from warpdata.query import Bounds, can_match, parse_filter


@given(ROWS, EXPRESSIONS)
@example([{"i": 1, "b": 1, "f": float("nan"), "s": "a", "t": True}, {"f": 1.0}], "f > 1.5")
@example([{"i": 1, "b": 1, "f": float("nan"), "s": "a", "t": True}, {"f": 1.0}], "f != 1.0")
@example([{"i": None, "b": None, "f": None, "s": None, "t": None}], "NOT (i = 1 OR s IS NOT NULL)")
def test_pruning_never_drops_a_row_that_matches(rows: list[dict[str, object]], expression: str) -> None:
    table = pa.Table.from_pylist(rows, SCHEMA)
    bounds = {}
    for name in SCHEMA.names:
        values_or_nan = [v for v in table[name].to_pylist() if v is not None]
        values = [v for v in values_or_nan if v == v]  # statistics ignore NaN
        bounds[name] = Bounds(
            minimum=min(values, default=None),
            maximum=max(values, default=None),
            null_count=table[name].null_count,
            row_count=table.num_rows,
            may_have_nan=len(values) < len(values_or_nan),
        )
    if not can_match(parse_filter(expression, SCHEMA).predicate, bounds):
        assert expected_rows(table, expression) == []


@given(st.lists(st.integers(0, 1000), min_size=1, max_size=60), st.integers(0, 1000))
def test_pruning_is_exact_for_integers(values: list[int], wanted: int) -> None:
    bounds = {"i": Bounds(min(values), max(values), 0, len(values), may_have_nan=False)}
    predicate = parse_filter(f"i = {wanted}", SCHEMA).predicate
    assert can_match(predicate, bounds) == (min(values) <= wanted <= max(values))


@pytest.mark.parametrize(
    ("expression", "prunes"),
    [
        ("m < '1970-01-01'", True),
        ("m >= TIMESTAMP '1970-01-03'", True),
        ("m >= '1970-01-01 12:00'", False),
        ("d = DATE '1970-01-05'", True),
        ("NOT t", True),
        ("t", False),
        ("i NOT IN (5)", True),
        ("i NOT IN (6)", False),
    ],
)
def test_pruning_handles_dates_times_and_booleans(expression: str, prunes: bool) -> None:
    bounds = {
        "m": Bounds(datetime(1970, 1, 1), datetime(1970, 1, 2), 0, 9, may_have_nan=False),
        "d": Bounds(date(1970, 1, 1), date(1970, 1, 2), 0, 9, may_have_nan=False),
        "t": Bounds(True, True, 0, 9, may_have_nan=False),
        "i": Bounds(5, 5, 0, 9, may_have_nan=False),
    }
    assert can_match(parse_filter(expression, SCHEMA).predicate, bounds) != prunes
