"""If this fails, a filter built in Python keeps other rows than its SQL or JSON says, or a value breaks out of it."""

from __future__ import annotations

import enum
import functools
import math
import pickle
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import warpdata as wd
from tests.query.expressions import expected_rows, rows_of
from tests.query.trees import FILTERS, TREE_ROWS, TREE_SCHEMA, VALUES
from tests.reference.filter_reader import is_kept
from warpdata.errors import BadInputError, ColumnNotFoundError, LimitExceededError
from warpdata.query import Evaluator, bind_filter, clauses_of, parse_filter
from warpdata.query import binding as binding_module

COL = wd.col
T0 = datetime(2025, 1, 1, tzinfo=UTC)


@given(TREE_ROWS, FILTERS, st.sampled_from([0, 2, 64]))
def test_python_sql_and_json_keep_the_same_rows(rows: list[dict[str, Any]], made: wd.Filter, written: int) -> None:
    """The oracle reads the JSON, DuckDB the SQL. `written` is the longest list that is written as SQL."""
    table = pa.Table.from_pylist(rows, TREE_SCHEMA)
    plain = table.to_pylist()  # floats of 32 bits are rounded
    expected = [number for number, row in enumerate(plain) if is_kept(made.to_json(), row)]
    assert expected_rows(table, made.to_sql()) == expected
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(binding_module, "_MAX_WRITTEN_VALUES", written)
        bound = bind_filter(made.tree, TREE_SCHEMA)
    needed = table.select(list(bound.columns))
    for use_kernels in (True, False):
        assert rows_of(Evaluator(bound, use_kernels=use_kernels).mask(needed)) == expected
    assert rows_of(Evaluator(parse_filter(bound.text, TREE_SCHEMA)).mask(needed)) == expected


@given(FILTERS)
def test_filters_are_values(made: wd.Filter) -> None:
    for copy in (wd.Filter.from_json(made.to_json()), pickle.loads(pickle.dumps(made))):  # noqa: S301
        assert copy == made
        assert hash(copy) == hash(made)
        assert copy.to_json() == made.to_json()


@given(
    st.one_of(
        st.text(),
        st.binary(max_size=40),
        st.integers(-(2**127) + 1, 2**127 - 1),
        st.floats(),
        st.booleans(),
        st.dates(),
        st.datetimes(),
        st.decimals(allow_nan=False, allow_infinity=False, places=6, min_value=-(10**20), max_value=10**20),
    )
)
@example("'); DROP TABLE rows; --")
@example("\\'")
@example(b"'::BLOB --")
def test_no_value_escapes_its_literal(value: Any) -> None:
    """The literal is one SQL expression, and DuckDB reads the value back from it."""
    try:
        made = COL("x") == value
    except BadInputError:
        assert isinstance(value, str)
        assert any(letter == "\0" or "\ud800" <= letter <= "\udfff" for letter in value)
        return
    assert wd.Filter.from_json(made.to_json()) == made
    literal = made.to_sql().removeprefix('"x" = ')
    with duckdb.connect() as connection:
        (found,) = connection.execute(f"SELECT {literal}\n").fetchall()
    if isinstance(value, float) and math.isnan(value):
        assert math.isnan(found[0])
        return
    assert found == (value,)
    assert math.copysign(1, found[0]) == math.copysign(1, value) if isinstance(value, float) else True


@given(st.text(min_size=1).filter(lambda name: "\0" not in name and name.isprintable()))
@example('a" = 1 OR "b')
@example("a.b")
def test_no_name_escapes_its_quotes(name: str) -> None:
    table = pa.table({name: [1, 2, 3]})
    bound = bind_filter((COL(name) > 1).tree, table.schema)
    assert bound.columns == (name,)
    assert rows_of(Evaluator(bound, use_kernels=False).mask(table)) == [1, 2]


def test_the_three_spellings_are_one_tree() -> None:
    where = wd.Filter.Where
    built = COL("label").isin(["cat"]) & ~(COL("split") == "val") & COL("tags").contains("night")
    listed = wd.Filter.And(
        [where("label", "In", ["cat"]), wd.Filter.Not(where("split", "Eq", "val")), where("tags", "Contains", "night")]
    )
    assert built == listed
    assert built.to_sql() == """"label" IN ('cat') AND NOT ("split" = 'val') AND contains("tags", 'night')"""
    assert wd.Filter.TimeRange(T0, T0, "ts") == (COL("ts") >= T0) & (COL("ts") < T0)
    assert wd.Filter.Vector("v", [1, 2], 3) == COL("v").near(np.array([1.0, 2.0]), 3)
    assert wd.Filter.RandomSample(5, 7) == COL.sample(5, seed=7)
    assert wd.Filter.StratifiedSample(5, "label", 7) == COL.sample(5, by="label", seed=7)


def test_values_of_different_types_are_different() -> None:
    made = [COL("x") == value for value in (1, 1.0, True, "1", Decimal(1), b"1")]
    assert len(set(made)) == len({each.to_sql() for each in made} | {"second spelling of 1"}) == 6
    assert wd.Filter.Where("x", "Eq", math.nan) == wd.Filter.Where("x", "Eq", math.nan)
    assert (COL("x") == 0.0) != (COL("x") == -0.0)


class Color(str, enum.Enum):  # noqa: UP042 - its str() is not the value
    RED = "red"


@pytest.mark.parametrize(
    ("given_value", "plain"),
    [
        (np.int8(3), 3),
        (np.float32(0.5), 0.5),
        (np.bool_(True), True),
        (np.str_("a"), "a"),
        (np.datetime64("2025-01-01T00:00:00.000001"), datetime(2025, 1, 1, microsecond=1)),
        (Color.RED, "red"),
        (bytearray(b"a"), b"a"),
        (datetime(2025, 1, 1, 2, tzinfo=timezone(timedelta(hours=2))), T0),
    ],
)
def test_values_become_plain(given_value: Any, plain: Any) -> None:
    assert (COL("x") == given_value) == (COL("x") == plain)


def test_lists_come_from_arrays() -> None:
    assert COL("x").isin(np.array([1, 2])) == COL("x").isin([1, 2])
    assert COL("x").isin(np.array(["a"])) == COL("x").isin(("a",))
    assert COL("x").isin(range(2)) == COL("x").isin([0, 1])
    assert COL("x").isin(np.array(["2025-01-01"], "M8[s]")) == COL("x").isin([datetime(2025, 1, 1)])


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (lambda: COL("x") == object(), "not <object"),
        (lambda: COL("x") < None, "not None"),
        (lambda: COL("x") == 2**127, "128 bits"),
        (lambda: COL("x") == Decimal("NaN"), "finite"),
        (lambda: COL("x") == "a\0b", "NUL"),
        (lambda: COL("x") == np.datetime64("2025-01-01T00:00:00.000000001"), "microseconds"),
        (lambda: COL("x") == np.datetime64("NaT"), "microseconds"),
        (lambda: COL("x") == datetime.max.replace(tzinfo=timezone(timedelta(hours=-1))), "the years 1 to 9999"),
        (lambda: COL(3), "not a text"),  # type: ignore[arg-type]
        (lambda: COL("x").isin("abc"), "a list of values"),
        (lambda: COL("x").isin(3), "a list of values"),  # type: ignore[arg-type]
        (lambda: bool(COL("x") == 1), "neither true nor false"),
        (lambda: 1 < COL("x") < 3, "neither true nor false"),
        (lambda: COL("x") == (COL("y") == 1), "is a filter, not a value"),
        (lambda: (COL("x") + 1).field("y"), "has no field"),
        (lambda: wd.Filter.sql("x > "), "not an SQL expression"),
        (lambda: wd.Filter.sql("a) OR (b"), "not an SQL expression"),
        (lambda: wd.Filter.sql("x > 1; SELECT 2"), "more than one expression"),
        (lambda: wd.Filter.sql(3), "as text"),  # type: ignore[arg-type]
        (lambda: wd.Filter.And("x > 1"), "a list of filters"),
        (lambda: wd.Filter.And([3]), "is not a filter"),  # type: ignore[list-item]
        (lambda: wd.Filter.Where("x", "Like", 3), "'Like' is not known"),
        (lambda: wd.Filter.TimeRange("a", "b"), "takes datetimes"),
        (lambda: wd.Filter.TimeRange(1, 2000), "no whole microseconds"),
        (lambda: wd.Filter.TimeRange(0, 10**27), "outside of the years"),
        (lambda: COL("v").near([], 3), "a vector of numbers"),
        (lambda: COL("v").near("abc", 3), "a vector of numbers"),  # type: ignore[arg-type]
        (lambda: COL("v").near([math.nan], 3), "not finite"),
        (lambda: COL("v").near([10**400], 3), "not finite"),
        (lambda: COL("v").near([1.0], 0), "k=0"),
        (lambda: COL("v").near([1.0], 1, "hamming"), "'hamming' is not known"),  # type: ignore[arg-type]
        (lambda: COL("p").field("v").near([1.0], 1), "a column of vectors"),
        (lambda: COL.sample(-1), "count=-1"),
        (lambda: COL.sample(1, seed="a"), "seed='a'"),  # type: ignore[arg-type]
        (lambda: COL.sample(1, by=3), "by=3"),  # type: ignore[arg-type]
        (lambda: clauses_of(~COL.sample(1)), "sample is inside"),
        (lambda: clauses_of(COL("v").near([1.0], 1) | (COL("x") == 1)), "near is inside"),
        (lambda: clauses_of(COL.sample(1) & COL.sample(2)), "2 sample clauses"),
        (lambda: COL.sample(1).to_sql(), "no SQL"),
        (lambda: wd.Filter.TimeRange(T0, T0).to_sql(), "without a field"),
    ],
)
def test_misuse_is_named(make: Any, problem: str) -> None:
    with pytest.raises(BadInputError, match=problem):
        make()


def test_nesting_has_a_bound_and_chains_do_not_nest() -> None:
    made = COL("x") == 1
    for number in range(1000):
        made = made | (COL("x") == number)
    assert len(made.tree.parts) == 1001  # type: ignore[union-attr]
    with pytest.raises(LimitExceededError, match="64 levels"):
        functools.reduce(lambda inner, _: ~inner, range(100), made)


def test_a_time_range_finds_the_only_timestamp_column() -> None:
    made = wd.Filter.TimeRange(datetime(1970, 1, 1), datetime(1970, 1, 2))
    bound = bind_filter(made.tree, pa.schema([("i", pa.int64()), ("m", pa.timestamp("us"))]))
    assert bound.columns == ("m",)
    assert bound.sql == "\"m\" >= TIMESTAMP '1970-01-01 00:00:00' AND \"m\" < TIMESTAMP '1970-01-02 00:00:00'"
    with pytest.raises(BadInputError, match="the table has m, z"):
        bind_filter(made.tree, TREE_SCHEMA)
    assert wd.Filter.TimeRange(0, 86_400_000_000_000) == made  # nanoseconds


@pytest.mark.parametrize("name", sorted(set(VALUES) - {"t", "c"}))
@settings(max_examples=20)
@given(data=st.data())
def test_long_lists_are_looked_up(name: str, data: st.DataObject) -> None:
    """Every type keeps the rows that SQL keeps, also with NULL and NaN in the list."""
    rows = data.draw(TREE_ROWS)
    values = data.draw(st.lists(VALUES[name], min_size=1, max_size=5)) * 65
    made = COL(name).isin([*values, *data.draw(st.sampled_from([[], [None]]))])
    table = pa.Table.from_pylist(rows, TREE_SCHEMA)
    bound = bind_filter(made.tree, TREE_SCHEMA)
    assert len(bound.value_sets) == 1
    for each, truth in ((made, bound), (~made, bind_filter((~made).tree, TREE_SCHEMA))):
        mask = Evaluator(truth).mask(table.select([name]))
        assert rows_of(mask) == expected_rows(table, each.to_sql())


@pytest.mark.parametrize("zero", [0.0, -0.0])
def test_both_zeros_are_in_a_long_list_with_one(zero: float) -> None:
    table = pa.table({"f": [0.0, -0.0, 1.0, None]})
    bound = bind_filter(COL("f").isin([zero, *map(float, range(5, 80))]).tree, table.schema)
    assert rows_of(Evaluator(bound).mask(table)) == [0, 1]


def test_a_long_list_that_only_sql_knows_has_the_limit_of_text() -> None:
    made = (COL("i") + 1).isin(range(20_000))
    with pytest.raises(BadInputError, match="the limit is 65,536"):
        bind_filter(made.tree, TREE_SCHEMA)


def test_unknown_columns_are_named() -> None:
    for made in (COL("nope") == 1, COL("nope").isin(range(100))):
        with pytest.raises(ColumnNotFoundError, match="'nope'"):
            bind_filter(made.tree, TREE_SCHEMA)


DOCUMENTS = {
    "not JSON": "{",
    "another format": '{"format":2,"filter":{"op":"all"}}',
    "a format that is true": '{"format":true,"filter":{"op":"all"}}',
    "no filter": '{"format":1}',
    "an unknown field": '{"format":1,"filter":{"op":"all","x":1}}',
    "a field twice": '{"format":1,"filter":{"op":"all","op":"all"}}',
    "an unknown operator": '{"format":1,"filter":{"op":"xor","parts":[]}}',
    "an operator that is no text": '{"format":1,"filter":{"op":["all"]}}',
    "parts that are no list": '{"format":1,"filter":{"op":"and","parts":{}}}',
    "a part that is no object": '{"format":1,"filter":{"op":"and","parts":[1]}}',
    "a term that is no object": '{"format":1,"filter":{"op":"is_null","operand":"x"}}',
    "a column without a name": '{"format":1,"filter":{"op":"is_null","operand":{"column":[]}}}',
    "unknown arithmetic": (
        '{"format":1,"filter":{"op":"is_null","operand":{"op":"^","left":{"value":1},"right":{"value":1}}}}'
    ),
    "a value of no kind": '{"format":1,"filter":{"op":"is_null","operand":{"value":{"time":"12:00"}}}}',
    "a value that is a list": '{"format":1,"filter":{"op":"is_null","operand":{"value":[1]}}}',
    "a null value": '{"format":1,"filter":{"op":"is_null","operand":{"value":null}}}',
    "a bad integer": '{"format":1,"filter":{"op":"is_null","operand":{"value":{"int":"1_0"}}}}',
    "a finite float as text": '{"format":1,"filter":{"op":"is_null","operand":{"value":{"float":"1"}}}}',
    "a bad date": '{"format":1,"filter":{"op":"is_null","operand":{"value":{"date":"2025-13-01"}}}}',
    "another zone": '{"format":1,"filter":{"op":"is_null","operand":{"value":{"timestamp":"2025-01-01T00:00+01:00"}}}}',
    "bad base64": '{"format":1,"filter":{"op":"is_null","operand":{"value":{"bytes":"*"}}}}',
    "a bad decimal": '{"format":1,"filter":{"op":"is_null","operand":{"value":{"decimal":"1,5"}}}}',
    "a text of NUL": '{"format":1,"filter":{"op":"is_null","operand":{"value":"\\u0000"}}}',
    "SQL that is two": '{"format":1,"filter":{"op":"sql","text":"1; 2"}}',
    "a vector of text": '{"format":1,"filter":{"op":"near","column":"v","vector":["1"],"k":1,"metric":"l2"}}',
    "k of nothing": '{"format":1,"filter":{"op":"near","column":"v","vector":[1],"k":0,"metric":"l2"}}',
    "a sample inside NOT": '{"format":1,"filter":{"op":"not","part":{"op":"sample","count":1,"seed":0}}}',
    "a range of no times": '{"format":1,"filter":{"op":"time_range","start":1,"end":2}}',
    "too deep": '{"format":1,"filter":' + '{"op":"not","part":' * 70 + '{"op":"all"}' + "}" * 71,
    "endless": '{"format":1,"filter":' + '{"op":"not","part":' * 100_000,
}


@pytest.mark.parametrize("document", DOCUMENTS.values(), ids=DOCUMENTS.keys())
def test_malformed_documents_are_refused(document: str) -> None:
    with pytest.raises(BadInputError):
        wd.Filter.from_json(document)


def test_a_refusal_names_the_place() -> None:
    with pytest.raises(BadInputError, match=r"at \$\.filter\.parts\[1\]\.operand"):
        wd.Filter.from_json('{"format":1,"filter":{"op":"or","parts":[{"op":"all"},{"op":"is_null","operand":1}]}}')


def test_clauses_have_a_json_form() -> None:
    made = (COL("x") == date(2025, 1, 1)) & COL("v").near([1, 2.5], 3, "dot") & COL.sample(9, by="y", seed=-1)
    assert wd.Filter.from_json(made.to_json()) == made
    plain = wd.Filter.TimeRange(T0, T0) & wd.Filter.sql("x > 1 -- more")
    assert wd.Filter.from_json(plain.to_json()) == plain
