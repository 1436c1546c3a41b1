"""Random filters built in Python, over random rows of all types that filters compare."""

from __future__ import annotations

from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

import warpdata as wd

__all__ = ["FILTERS", "TREE_ROWS", "TREE_SCHEMA", "VALUES"]

TREE_SCHEMA = pa.schema(
    [
        ("i", pa.int64()),
        ("b", pa.int8()),
        ("u", pa.uint64()),
        ("f", pa.float64()),
        ("g", pa.float32()),
        ("s", pa.string()),
        ("t", pa.bool_()),
        ("d", pa.date32()),
        ("m", pa.timestamp("us")),
        ("z", pa.timestamp("us", "UTC")),
        ("x", pa.binary()),
        ("c", pa.decimal128(18, 4)),
        ("l", pa.list_(pa.string())),
        ("n", pa.list_(pa.int64())),
        ("p", pa.struct([("q", pa.int64())])),
    ]
)
_INTEGERS = st.integers(-4, 4) | st.sampled_from([2**63 - 1, -(2**63), 2**53 + 1])
_FLOATS = st.sampled_from([0.0, -0.0, 1.5, 2.0, 0.1, 1e300, 5e-324, float("nan"), float("inf"), -float("inf")])
_SINGLES = st.sampled_from([0.5, 1.5, 0.1, -0.0, 16777216.0, float("nan"), float("inf")])
_TEXTS = st.sampled_from(["", "a", "b", "ab", "ba%", "é", "e\u0301", "z'z", "--", "\n", "\\", "\U0001f600"])
_DAYS = st.dates(date(1969, 12, 30), date(1970, 1, 3)) | st.sampled_from([date(1, 1, 1), date(9999, 12, 31)])
_TIMES = st.datetimes(datetime(1969, 12, 31), datetime(1970, 1, 2)) | st.sampled_from(
    [datetime(1970, 1, 1), datetime(1, 1, 1), datetime(9999, 12, 31, 23, 59, 59, 999999)]
)
_ZONED = _TIMES.filter(lambda moment: 1 < moment.year < 9999).flatmap(
    lambda moment: st.integers(-14, 14).map(lambda hours: moment.replace(tzinfo=timezone(timedelta(hours=hours))))
)
_BYTES = st.sampled_from([b"", b"a", b"\x00", b"'\\\xff", b"--"])
_DECIMALS = st.sampled_from([Decimal("0"), Decimal("1.5"), Decimal("-2.0001"), Decimal("1.50001"), Decimal(7)])

VALUES: dict[str, st.SearchStrategy[Any]] = {
    "i": _INTEGERS,
    "b": st.integers(-128, 127) | st.sampled_from([300, 2**70]),
    "u": st.integers(0, 4) | st.sampled_from([2**64 - 1, -1]),
    "f": _FLOATS,
    "g": _SINGLES,
    "s": _TEXTS,
    "t": st.booleans(),
    "d": _DAYS,
    "m": _TIMES,
    "z": _ZONED,
    "x": _BYTES,
    "c": _DECIMALS,
}
"""Values that filters compare with each column."""

TREE_ROWS = st.lists(
    st.fixed_dictionaries(
        {name: st.none() | values for name, values in VALUES.items()}
        | {
            "b": st.none() | st.integers(-128, 127),
            "u": st.none() | st.sampled_from([0, 1, 2, 2**64 - 1]),
            "c": st.none() | st.sampled_from([Decimal("0"), Decimal("1.5"), Decimal("-2.0001")]),
            "l": st.none() | st.lists(st.none() | _TEXTS, max_size=3),
            "n": st.none() | st.lists(st.none() | _INTEGERS, max_size=3),
            "p": st.none() | st.fixed_dictionaries({"q": st.none() | _INTEGERS}),
        }
    ),
    max_size=12,
)

_OPS = ["==", "!=", "<", "<=", ">", ">="]


@st.composite
def _tests(draw: st.DrawFn) -> wd.Filter:
    name = draw(st.sampled_from(sorted(VALUES)))
    column, values = wd.col(name), VALUES[name]
    how = draw(st.sampled_from(["where", "isin", "between", "null", "text", "list", "struct", "arithmetic"]))
    if how == "where":
        return wd.Filter.Where(name, draw(st.sampled_from(_OPS)), draw(values))
    if how == "isin":
        return column.isin(draw(st.lists(st.none() | values, max_size=7)))
    if how == "between":
        return column.between(draw(values), draw(values))
    if how == "null":
        return column == None if draw(st.booleans()) else column != None  # noqa: E711
    if how == "text":
        text = wd.col("s")
        pattern = draw(_TEXTS.filter(lambda each: "\\" not in each) | st.sampled_from(["%a", "_", "%", "%a%", "a%b"]))
        return draw(st.sampled_from([text.contains, text.startswith, text.endswith, text.like]))(pattern)
    if how == "list":
        return wd.col("l").contains(draw(_TEXTS)) if draw(st.booleans()) else wd.col("n").contains(draw(_INTEGERS))
    if how == "struct":
        return wd.col("p").field("q") >= draw(_INTEGERS)
    small = st.integers(-3, 3)
    return (wd.col("b") * draw(small) + draw(small) > 2) if draw(st.booleans()) else wd.col("b") - 1 != wd.col("b") * 2


FILTERS = st.recursive(
    _tests(),
    lambda inner: st.one_of(
        st.builds(lambda one, two: one & two, inner, inner),
        st.builds(lambda one, two: one | two, inner, inner),
        inner.map(lambda one: ~one),
        st.lists(inner, max_size=3).map(wd.Filter.And),
        st.lists(inner, max_size=3).map(wd.Filter.Or),
        st.just(wd.Filter.All()),
    ),
    max_leaves=5,
)
