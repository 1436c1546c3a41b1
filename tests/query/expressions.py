"""Random tables and SQL filters over them, with DuckDB as the reference implementation."""

from __future__ import annotations

from datetime import date, datetime

import duckdb
import numpy as np
import pyarrow as pa
from hypothesis import reject
from hypothesis import strategies as st
from numpy.typing import NDArray

__all__ = ["EXPRESSIONS", "ROWS", "SCHEMA", "expected_rows", "rows_of"]

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
DECIMALS = st.sampled_from(["1.5", "-0.0", "20.5", "0.1", "1e3", "0.1e0", "1.5e0", "-5e-324", "2", "123456789012.125"])
PATTERNS = st.sampled_from(["b%", "%a", "%b%", "%é%", "%", "b", "%%", "_a", "b%a", "%\\_%", "é%", "%\U0001f600"])
DAYS = st.sampled_from(["1969-12-31", "1970-01-01", "1970-01-02"])
TEXT_TESTS = st.sampled_from(["contains", "starts_with", "prefix", "ends_with", "suffix"])
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
    st.builds("{}(s, {})".format, TEXT_TESTS, st.sampled_from(["", "a", "b", "é", "%", "_", "z'z"]).map(quoted)),
    st.builds("i IN ({}, {}, 1, 2, 3, 4)".format, INTEGERS, INTEGERS),
    st.builds("b NOT IN ({}, 0, 1, 2, 3, 300)".format, INTEGERS),
    st.builds("f IN (0, 1, 2, {}, {}, 3.5)".format, DECIMALS, DECIMALS),
    st.builds("s NOT IN ('', 'a', 'b', 'c', {}, 'd')".format, st.sampled_from(["é", "z'z"]).map(quoted)),
    st.sampled_from(["length(s) > 1", "i % 2 = 0", "f > i", "isnan(f)", "s LIKE 'b%'", "t", "i IS DISTINCT FROM 1"]),
)
COLUMNS = st.sampled_from(["f", "f", "h", "g", "i", "i", "b", "u"])
TERMS = st.recursive(
    COLUMNS | st.sampled_from(["1.5", "-0.0", "0.1", "1e3", "0.1e0"]) | st.integers(-5, 5).map(str),
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


def expected_rows(table: pa.Table, expression: str) -> list[int]:
    """Return the rows for which DuckDB evaluates the expression to true. An overflow rejects the example.

    The expression is a projection: DuckDB hands a WHERE over an Arrow table to Arrow, which orders NaN differently.
    """
    with duckdb.connect() as connection:
        connection.register("plain", table)
        try:
            found = connection.execute(f"SELECT ({expression}) IS TRUE FROM plain").fetchall()
        except (duckdb.OutOfRangeException, duckdb.ConversionException):
            reject()
    return [number for number, (is_true,) in enumerate(found) if is_true]


def rows_of(mask: NDArray[np.bool_]) -> list[int]:
    assert mask.dtype == np.bool_
    return [int(number) for number in np.flatnonzero(mask)]
