"""If this fails, a filter keeps other rows than SQL would.

DuckDB over the plain table is the reference: no kernels, no dictionaries.
"""

from __future__ import annotations

import math
import os

import pyarrow as pa
import pytest
from hypothesis import example, given

from tests.query.expressions import EXPRESSIONS, ROWS, SCHEMA, expected_rows, rows_of
from warpdata.errors import BadInputError
from warpdata.query import Evaluator, parse_filter


@given(ROWS, EXPRESSIONS)
@example([{"i": None, "b": None, "f": float("nan"), "s": None, "t": None}], "1.5 < f")
@example([{"i": None, "b": None, "f": float("nan"), "s": None, "t": None}], "NOT f <= 1.5")
@example([{"s": "a"}, {"s": "b"}, {"s": "b"}], "s = 'b'")
def test_kernels_and_sql_keep_the_same_rows(rows: list[dict[str, object]], expression: str) -> None:
    table = pa.Table.from_pylist(rows, SCHEMA)
    row_filter = parse_filter(expression, SCHEMA)
    needed = table.select(list(row_filter.columns))
    expected = expected_rows(table, expression)
    for use_kernels in (True, False):
        mask = Evaluator(row_filter, use_kernels=use_kernels).mask(needed)
        assert rows_of(mask) == expected
    evaluator = Evaluator(row_filter)
    if evaluator.uses_kernels and "s" in row_filter.columns:
        position = needed.column_names.index("s")
        encoded = needed.set_column(position, "s", needed["s"].dictionary_encode())
        assert rows_of(evaluator.mask(encoded)) == expected
        assert rows_of(evaluator.mask(encoded.slice(1))) == [number - 1 for number in expected if number]


def test_cached_dictionary_results_belong_to_their_filter_and_dictionary() -> None:
    """Dictionaries with equal bytes and other offsets have other values."""
    for expression in ("s = 'ab'", "s = 'a'", "s != 'a'", "s < 'b'", "s LIKE 'a%'", "s LIKE '%c'", "s LIKE '%b%'"):
        evaluator = Evaluator(parse_filter(expression, SCHEMA))
        for words in (["ab", "c"], ["a", "bc"], ["", "abc"], ["abc"], ["ab", "c", "c"]):
            plain = pa.table({"s": [words[code % len(words)] for code in range(7)]})
            encoded = plain.set_column(0, "s", plain["s"].dictionary_encode())
            for _ in range(2):
                assert rows_of(evaluator.mask(encoded)) == expected_rows(plain, expression), (expression, words)


@pytest.mark.parametrize("op", ["=", "!=", "<", "<=", ">", ">="])
@pytest.mark.parametrize("right", ["1.5", "0", "h", "g", "i", "h + 0.5", "i * 1"])
@pytest.mark.parametrize("left", ["f", "i", "g", "f * 1"])
def test_special_values_are_ordered_as_in_sql(left: str, op: str, right: str) -> None:
    odd = [None, -math.inf, -1.0, -0.0, 0.0, 1.0, 1.5, 2.0, math.inf, math.nan]
    whole = [None, -1, 0, 1, 2, 2**53 + 1]
    pairs = [{"f": f, "h": h, "g": h} for f in odd for h in odd] + [
        {"f": f, "i": i, "g": f} for f in odd for i in whole
    ]
    table = pa.Table.from_pylist(pairs, SCHEMA)
    for expression in (f"{left} {op} {right}", f"NOT ({left} {op} {right})", f"{right} {op} {left}"):
        row_filter = parse_filter(expression, SCHEMA)
        mask = Evaluator(row_filter).mask(table.select(list(row_filter.columns)))
        assert rows_of(mask) == expected_rows(table, expression), expression


@pytest.mark.parametrize(
    ("expression", "uses_kernels"),
    [
        ("f + h < -33.5", True),
        ("0.5 * (f - g) >= i", True),
        ("i * i - 1 > 4", True),
        ("b = u", True),
        ("b + 1 > 4", False),
        ("u * u > 4", False),
        ("i / 2 > 4", False),
        ("i + 0.5 > 4", False),
        ("i + 1 > '4'", False),
        ("f + 1e3 > 4", True),
        ("g * 1e3 > 4e0", True),
        ("i + 1e3 > 4", True),
        ("f > 1e3 + 1e3", False),
        ("1e3 > 1e2", False),
        ("1 + 1 = 2", False),
        (" + ".join(["f"] * 60) + " < 3", False),
    ],
)
def test_kernels_evaluate_only_arithmetic_with_the_same_result(expression: str, uses_kernels: bool) -> None:
    assert Evaluator(parse_filter(expression, SCHEMA)).uses_kernels == uses_kernels


@pytest.mark.parametrize("expression", ["i * 2 > 0", "i + 1 > 0", "i - 1 < 0 AND s = 'a'", "i < 5 AND i + i > 0"])
def test_the_sql_engine_evaluates_integers_that_overflow(expression: str) -> None:
    table = pa.Table.from_pylist([{"i": 2**63 - 1, "s": "a"}, {"i": -(2**63), "s": "a"}, {"i": 3, "s": "a"}], SCHEMA)
    row_filter = parse_filter(expression, SCHEMA)
    needed = table.select(list(row_filter.columns))
    answers: list[object] = []
    for use_kernels in (False, True):
        try:
            answers.append(rows_of(Evaluator(row_filter, use_kernels=use_kernels).mask(needed)))
        except BadInputError as error:
            answers.append(str(error))
    assert answers[0] == answers[1]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:This process")
def test_a_forked_child_evaluates_with_an_engine_of_its_own() -> None:
    rows = pa.table({"s": ["a", "bc"]})
    assert rows_of(Evaluator(parse_filter("length(s) > 1", SCHEMA)).mask(rows)) == [1]
    child = os.fork()
    if child == 0:
        mask = Evaluator(parse_filter("length(s) > 0 AND length(s) < 2", SCHEMA)).mask(rows)
        os._exit(0 if rows_of(mask) == [0] else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
