"""If this fails, a filter keeps other rows with a shortcut than without one, or lets something odd through.

The judge is DuckDB on the plain table, with no statistics, kernels or row groups in between.
"""

from __future__ import annotations

import math
from datetime import date, datetime
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given, reject
from hypothesis import strategies as st
from numpy.typing import NDArray

import warpdata as wd
from warpdata.errors import ColumnNotFoundError, InvalidFilterError
from warpdata.query import Evaluator, can_match, parse_filter
from warpdata.query.expr import Bounds

FLOATS = st.one_of(
    st.none(),
    st.floats(width=64),
    st.sampled_from([0.0, -0.0, 1.5, 2.0, 20.5, float("nan"), float("inf"), -float("inf")]),
)
WORDS = st.one_of(st.none(), st.sampled_from(["", "a", "b", "ba", "é", "e\u0301", "z'z", "\U0001f600"]))
ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "i": st.none() | st.integers(-4, 4) | st.sampled_from([2**63 - 1, -(2**63), 2**53 + 1]),
            "b": st.none() | st.integers(-128, 127),
            "u": st.none() | st.integers(0, 4) | st.sampled_from([2**32 - 1]),
            "f": FLOATS,
            "h": FLOATS,
            "g": st.none() | st.floats(width=32) | st.sampled_from([0.5, 1.5, 16777216.0, float("nan")]),
            "s": WORDS,
            "t": st.none() | st.booleans(),
            "d": st.none() | st.dates(date(1969, 12, 30), date(1970, 1, 3)),
            "m": st.none() | st.datetimes(datetime(1969, 12, 31), datetime(1970, 1, 2)),
        }
    ),
    max_size=40,
)
SCHEMA = pa.schema(
    [
        ("i", pa.int64()),
        ("b", pa.int8()),
        ("u", pa.uint32()),
        ("f", pa.float64()),
        ("h", pa.float64()),
        ("g", pa.float32()),
        ("s", pa.string()),
        ("t", pa.bool_()),
        ("d", pa.date32()),
        ("m", pa.timestamp("us")),
    ]
)


def quoted(word: str) -> str:
    return "'" + word.replace("'", "''") + "'"


OPS = st.sampled_from(["=", "!=", "<>", "<", "<=", ">", ">="])
INTEGERS = st.one_of(st.integers(-5, 5), st.sampled_from([300, 2**31, 2**53 + 1, 2**63 - 1, -(2**63) + 1])).map(str)
DECIMALS = st.sampled_from(["1.5", "-0.0", "20.5", "0.1", "1e3", "2", "123456789012.125"])
PATTERNS = st.sampled_from(["b%", "%a", "%b%", "%é%", "%", "b", "%%", "_a", "b%a", "%\\_%", "é%", "%\U0001f600"])
DAYS = st.sampled_from(["1969-12-31", "1970-01-01", "1970-01-02"])
COMPARISONS = st.one_of(
    st.builds("{} {} {}".format, st.sampled_from(["i", "b", "I"]), OPS, INTEGERS),
    st.builds("f {} {}".format, OPS, DECIMALS | INTEGERS),
    st.builds("{1} {0} f".format, OPS, DECIMALS),
    st.builds("g {} {}".format, OPS, DECIMALS | st.sampled_from(["16777217", "0.5", "16777216"])),
    st.builds("s {} {}".format, OPS, st.sampled_from(["", "a", "b", "é", "z'z"]).map(quoted)),
    st.builds("t {} {}".format, st.sampled_from(["=", "!="]), st.sampled_from(["true", "false"])),
    st.builds("{} IS {}NULL".format, st.sampled_from("ibfst"), st.sampled_from(["", "NOT "])),
    st.builds("i IN ({}, {})".format, INTEGERS, INTEGERS),
    st.builds("f BETWEEN {} AND {}".format, DECIMALS, DECIMALS),
    st.builds("s IN ({})".format, st.sampled_from(["a", "b"]).map(quoted)),
    st.builds("i NOT IN ({}, {})".format, INTEGERS, INTEGERS),
    st.builds("{} {} {}'{}'".format, st.just("d"), OPS, st.sampled_from(["", "DATE "]), DAYS),
    st.builds("{} {} {}'{}'".format, st.just("m"), OPS, st.sampled_from(["", "TIMESTAMP ", "DATE "]), DAYS),
    st.builds("m BETWEEN '{}' AND '{} 12:34:56.789'".format, DAYS, DAYS),
    st.builds("s {}LIKE '{}'".format, st.sampled_from(["", "NOT "]), PATTERNS),
    st.sampled_from(["length(s) > 1", "i % 2 = 0", "f > i", "isnan(f)", "s LIKE 'b%'", "t", "i IS DISTINCT FROM 1"]),
)
COLUMNS = st.sampled_from(["f", "f", "h", "g", "i", "i", "b", "u"])
TERMS = st.recursive(
    COLUMNS | st.sampled_from(["1.5", "-0.0", "0.1", "1e3"]) | st.integers(-5, 5).map(str),
    lambda inner: st.builds("({} {} {})".format, inner, st.sampled_from("+-*"), inner),
    max_leaves=4,
)
ARITHMETIC = st.one_of(
    st.builds("{} {} {}".format, COLUMNS, OPS, COLUMNS),
    st.builds("{} {} {}".format, TERMS, OPS, TERMS).filter(lambda text: set(text) & set("fhgibu")),
    st.builds("{} BETWEEN {} AND {}".format, COLUMNS, TERMS, TERMS),
)
EXPRESSIONS = st.recursive(
    COMPARISONS | ARITHMETIC,
    lambda inner: st.one_of(
        st.builds("({} AND {})".format, inner, inner),
        st.builds("({} OR {})".format, inner, inner),
        st.builds("(NOT {})".format, inner),
    ),
    max_leaves=5,
)


def judged(table: pa.Table, expression: str) -> list[int]:
    """Row numbers for which DuckDB says true. An overflow leaves nothing to compare.

    Asked as a projection: a WHERE over an Arrow table is handed down to Arrow, which orders NaN differently.
    """
    with duckdb.connect() as connection:
        connection.register("plain", table)
        try:
            found = connection.execute(f"SELECT ({expression}) IS TRUE FROM plain").fetchall()
        except (duckdb.OutOfRangeException, duckdb.ConversionException):
            reject()
    return [number for number, (is_true,) in enumerate(found) if is_true]


def kept(mask: NDArray[np.bool_]) -> list[int]:
    assert mask.dtype == np.bool_
    return [int(number) for number in np.flatnonzero(mask)]


@given(ROWS, EXPRESSIONS)
@example([{"i": None, "b": None, "f": float("nan"), "s": None, "t": None}], "1.5 < f")
@example([{"i": None, "b": None, "f": float("nan"), "s": None, "t": None}], "NOT f <= 1.5")
@example([{"s": "a"}, {"s": "b"}, {"s": "b"}], "s = 'b'")
def test_kernels_and_sql_keep_the_same_rows(rows: list[dict[str, object]], expression: str) -> None:
    table = pa.Table.from_pylist(rows, SCHEMA)
    row_filter = parse_filter(expression, SCHEMA)
    needed = table.select(list(row_filter.columns))
    expected = judged(table, expression)
    for use_kernels in (True, False):
        mask = Evaluator(row_filter, use_kernels=use_kernels).mask(needed)
        assert kept(mask) == expected
    evaluator = Evaluator(row_filter)
    if evaluator.uses_kernels and "s" in row_filter.columns:
        position = needed.column_names.index("s")
        encoded = needed.set_column(position, "s", needed["s"].dictionary_encode())
        assert kept(evaluator.mask(encoded)) == expected
        assert kept(evaluator.mask(encoded.slice(1))) == [number - 1 for number in expected if number]


def test_what_a_schema_tells_beside_names_and_types_does_not_matter() -> None:
    """Files of pandas tell a lot. Some versions of Arrow cannot hash a schema that does."""
    told = pa.schema([pa.field("n", pa.int64(), metadata={"unit": "m"})], {"pandas": "{}"})
    assert parse_filter("n > 5", told) == parse_filter("n > 5", pa.schema([("n", pa.int64())]))


def test_what_is_remembered_of_words_is_about_this_filter_and_these_words() -> None:
    """The same bytes cut in another way are other words."""
    for expression in ("s = 'ab'", "s = 'a'", "s != 'a'", "s < 'b'", "s LIKE 'a%'", "s LIKE '%c'", "s LIKE '%b%'"):
        evaluator = Evaluator(parse_filter(expression, SCHEMA))
        for words in (["ab", "c"], ["a", "bc"], ["", "abc"], ["abc"], ["ab", "c", "c"]):
            plain = pa.table({"s": [words[code % len(words)] for code in range(7)]})
            encoded = plain.set_column(0, "s", plain["s"].dictionary_encode())
            for _ in range(2):
                assert kept(evaluator.mask(encoded)) == judged(plain, expression), (expression, words)


@pytest.mark.parametrize("op", ["=", "!=", "<", "<=", ">", ">="])
@pytest.mark.parametrize("right", ["1.5", "0", "h", "g", "i", "h + 0.5", "i * 1"])
@pytest.mark.parametrize("left", ["f", "i", "g", "f * 1"])
def test_every_pair_of_odd_values_is_ordered_as_in_sql(left: str, op: str, right: str) -> None:
    odd = [None, -math.inf, -1.0, -0.0, 0.0, 1.0, 1.5, 2.0, math.inf, math.nan]
    whole = [None, -1, 0, 1, 2, 2**53 + 1]
    pairs = [{"f": f, "h": h, "g": h} for f in odd for h in odd] + [
        {"f": f, "i": i, "g": f} for f in odd for i in whole
    ]
    table = pa.Table.from_pylist(pairs, SCHEMA)
    for expression in (f"{left} {op} {right}", f"NOT ({left} {op} {right})", f"{right} {op} {left}"):
        row_filter = parse_filter(expression, SCHEMA)
        mask = Evaluator(row_filter).mask(table.select(list(row_filter.columns)))
        assert kept(mask) == judged(table, expression), expression


@given(ROWS, EXPRESSIONS)
@example([{"i": 1, "b": 1, "f": float("nan"), "s": "a", "t": True}, {"f": 1.0}], "f > 1.5")
@example([{"i": 1, "b": 1, "f": float("nan"), "s": "a", "t": True}, {"f": 1.0}], "f != 1.0")
@example([{"i": None, "b": None, "f": None, "s": None, "t": None}], "NOT (i = 1 OR s IS NOT NULL)")
def test_pruning_never_drops_a_row_that_matches(rows: list[dict[str, object]], expression: str) -> None:
    table = pa.Table.from_pylist(rows, SCHEMA)
    bounds = {}
    for name in SCHEMA.names:
        present = [v for v in table[name].to_pylist() if v is not None]
        values = [v for v in present if v == v]  # NaN is not in statistics
        bounds[name] = Bounds(
            minimum=min(values, default=None),
            maximum=max(values, default=None),
            null_count=table[name].null_count,
            row_count=table.num_rows,
            may_have_nan=len(values) < len(present),
        )
    if not can_match(parse_filter(expression, SCHEMA).predicate, bounds):
        assert judged(table, expression) == []


@given(st.lists(st.integers(0, 1000), min_size=1, max_size=60), st.integers(0, 1000))
def test_pruning_knows_numbers(values: list[int], wanted: int) -> None:
    bounds = {"i": Bounds(min(values), max(values), 0, len(values), may_have_nan=False)}
    predicate = parse_filter(f"i = {wanted}", SCHEMA).predicate
    assert can_match(predicate, bounds) == (min(values) <= wanted <= max(values))


@given(
    rows=st.lists(st.integers(0, 50), min_size=1, max_size=200),
    expression=EXPRESSIONS,
    run_bytes=st.sampled_from([1, 300, 10**6]),
)
def test_a_published_table_filters_like_duckdb(
    tmp_path_factory: pytest.TempPathFactory, rows: list[int], expression: str, run_bytes: int
) -> None:
    """However many of the other columns are read at a time."""
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
    expected = table.take(pa.array(judged(table, expression), pa.int64()))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("warpdata.kinds.tables.row_group_scan._RUN_BYTES", run_bytes)
        assert _comparable(found.to_arrow()) == _comparable(expected)
        assert found.count() == expected.num_rows


def _comparable(table: pa.Table) -> list[str]:
    return [repr(row) for row in table.to_pylist()]


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
        ("i + 1", "not a yes or no"),
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
def test_what_is_not_one_row_expression_is_refused(expression: str, part: str) -> None:
    with pytest.raises(InvalidFilterError, match=part):
        parse_filter(expression, SCHEMA)


def test_unknown_columns_name_their_neighbours() -> None:
    schema = pa.schema([("fare", pa.float64()), ("distance", pa.float64())])
    with pytest.raises(ColumnNotFoundError, match="distance") as raised:
        parse_filter("distanse > 2", schema)
    assert raised.value.hint == "Did you mean distance?"


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
def test_pruning_knows_days_times_and_truth(expression: str, prunes: bool) -> None:
    bounds = {
        "m": Bounds(datetime(1970, 1, 1), datetime(1970, 1, 2), 0, 9, may_have_nan=False),
        "d": Bounds(date(1970, 1, 1), date(1970, 1, 2), 0, 9, may_have_nan=False),
        "t": Bounds(True, True, 0, 9, may_have_nan=False),
        "i": Bounds(5, 5, 0, 9, may_have_nan=False),
    }
    assert can_match(parse_filter(expression, SCHEMA).predicate, bounds) != prunes


@pytest.mark.parametrize(
    ("expression", "is_ours"),
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
        ("f + 1e3 > 4", False),
        ("1 + 1 = 2", False),
        (" + ".join(["f"] * 60) + " < 3", False),
    ],
)
def test_only_arithmetic_that_is_certain_is_left_to_kernels(expression: str, is_ours: bool) -> None:
    assert Evaluator(parse_filter(expression, SCHEMA)).uses_kernels == is_ours


@pytest.mark.parametrize("expression", ["i * 2 > 0", "i + 1 > 0", "i - 1 < 0 AND s = 'a'", "i < 5 AND i + i > 0"])
def test_an_integer_that_overflows_is_judged_by_the_engine(expression: str) -> None:
    table = pa.Table.from_pylist([{"i": 2**63 - 1, "s": "a"}, {"i": -(2**63), "s": "a"}, {"i": 3, "s": "a"}], SCHEMA)
    row_filter = parse_filter(expression, SCHEMA)
    needed = table.select(list(row_filter.columns))
    answers: list[object] = []
    for use_kernels in (False, True):
        try:
            answers.append(kept(Evaluator(row_filter, use_kernels=use_kernels).mask(needed)))
        except InvalidFilterError as error:
            answers.append(str(error))
    assert answers[0] == answers[1]


def test_a_filter_cannot_reach_files(tmp_path: Path) -> None:
    secret = tmp_path / "secret.txt"
    secret.write_text("hidden")
    for expression in (f"s IN (SELECT content FROM read_text('{secret}'))", f"s = (FROM read_text('{secret}'))"):
        with pytest.raises(InvalidFilterError):
            parse_filter(expression, SCHEMA)
