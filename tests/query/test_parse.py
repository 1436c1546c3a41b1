"""If this fails, a filter accepts more than one expression over one row, or rejects it with a poor message."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given

from tests.query.expressions import EXPRESSIONS, SCHEMA
from warpdata.errors import BadInputError, ColumnNotFoundError
from warpdata.query import parse, parse_filter


@pytest.mark.parametrize(
    ("expression", "part"),
    [
        ("i >", "syntax error"),
        ("i = 1; DROP TABLE x", "not an SQL expression"),
        ("i = 1) OR (1 = 1", "syntax error"),
        ("i, f", "more than one"),
        ("i AS j", "more than one"),
        ("1 FROM read_csv('x')", "more than one"),
        ("i IN (SELECT 1)", "subquery"),
        ("i = ?", "parameter"),
        ("i + 1", "must be BOOLEAN"),
        ("nosuchfunction(i)", "does not fit"),
        ("row_number() OVER () = 1", "window"),
        ("sum(i) > 3", "one row at a time"),
        ("count(*) > 1", "one row at a time"),
        ("unnest([i, 1]) = 1", "one row at a time"),
        ("", "not an SQL expression"),
        ("s = '\0'", "does not allow"),
        ("s = '\ud800'", "does not allow"),
        ("s = 'it''s", "not an SQL expression"),
    ],
)
def test_only_one_expression_over_one_row_is_accepted(expression: str, part: str) -> None:
    with pytest.raises(BadInputError, match=part):
        parse_filter(expression, SCHEMA)


def test_an_unknown_column_gets_a_suggestion() -> None:
    schema = pa.schema([("fare", pa.float64()), ("distance", pa.float64())])
    with pytest.raises(ColumnNotFoundError, match="distance") as raised:
        parse_filter("distanse > 2", schema)
    assert raised.value.hint == "Did you mean distance?"


def test_schema_metadata_does_not_matter() -> None:
    """Files of pandas have metadata. Some versions of Arrow cannot hash a schema with metadata."""
    annotated = pa.schema([pa.field("n", pa.int64(), metadata={"unit": "m"})], {"pandas": "{}"})
    assert parse_filter("n > 5", annotated) == parse_filter("n > 5", pa.schema([("n", pa.int64())]))


def test_a_filter_cannot_read_files(tmp_path: Path) -> None:
    secret = tmp_path / "secret.txt"
    secret.write_text("hidden")
    for expression in (f"s IN (SELECT content FROM read_text('{secret}'))", f"s = (FROM read_text('{secret}'))"):
        with pytest.raises(BadInputError):
            parse_filter(expression, SCHEMA)


@given(text=EXPRESSIONS)
def test_a_filter_whose_types_are_not_checked_passes_the_check(text: str) -> None:
    found = parse_filter(text, SCHEMA)
    if parse._is_plain(found.predicate):
        parse._check_types(found, SCHEMA, is_boolean=True)


def test_most_filters_need_no_check(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parse, "_check_types", lambda *_, **__: pytest.fail("checked"))
    parse_filter("s = 'not asked before' AND i BETWEEN 3 AND 4 OR NOT f IN (1.5, 2.5) AND d < '1970-01-01'", SCHEMA)
