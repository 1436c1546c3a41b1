"""If this fails, a constant in a filter means something else to Arrow, or a short query waits for pandas to load."""

from __future__ import annotations

import subprocess
import sys
from datetime import date, datetime
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import warpdata as wd
from warpdata.primitives.arrow_buffers import as_bools, as_numpy, scalar_of

moments = st.datetimes(datetime(1, 1, 1), datetime(9999, 12, 31))
days = st.dates(date(1, 1, 1), date(9999, 12, 31))
typed = st.one_of(
    st.tuples(st.text(), st.sampled_from([pa.string(), pa.large_string()])),
    st.tuples(st.booleans(), st.just(pa.bool_())),
    st.tuples(st.integers(-(2**63), 2**63 - 1), st.just(pa.int64())),
    st.tuples(st.floats(allow_nan=False), st.just(pa.float64())),
    st.tuples(st.floats(allow_nan=False, width=32), st.just(pa.float32())),
    st.tuples(st.integers(-(2**53), 2**53), st.just(pa.float64())),
    st.tuples(days, st.just(pa.date32())),
    st.tuples(moments, st.just(pa.timestamp("us"))),
    st.tuples(
        moments.map(lambda m: m.replace(microsecond=0)), st.sampled_from([pa.timestamp("s"), pa.timestamp("ms")])
    ),
)


@given(typed)
def test_a_scalar_is_what_arrow_makes_of_it(given_one: tuple[object, pa.DataType]) -> None:
    value, kind = given_one
    expected = pa.scalar(value, kind)
    made = scalar_of(value, kind)  # type: ignore[arg-type]
    assert made.type == kind
    assert made.equals(expected)
    made.validate(full=True)


@pytest.mark.parametrize("kind", [pa.timestamp("s"), pa.timestamp("ms"), pa.date32()])
def test_a_moment_that_a_unit_can_not_hold_is_left_to_arrow(kind: pa.DataType) -> None:
    moment = datetime(2024, 5, 6, 7, 8, 9, 10)
    try:
        expected = pa.scalar(moment, kind)
    except pa.ArrowInvalid:
        with pytest.raises(pa.ArrowInvalid):
            scalar_of(moment, kind)
    else:
        assert scalar_of(moment, kind).equals(expected)


@given(st.lists(st.booleans()), st.integers(0, 20), st.integers(0, 20))
def test_bits_are_spelled_out(values: list[bool], skip: int, take: int) -> None:
    array = pa.array(values, pa.bool_()).slice(skip, take)
    assert as_bools(array).tolist() == array.to_pylist()


_NUMBERS = (
    "int8",
    "uint8",
    "int16",
    "uint16",
    "int32",
    "uint32",
    "int64",
    "uint64",
    "halffloat",
    "float",
    "double",
    "bool",
)


@given(st.sampled_from(_NUMBERS), st.lists(st.integers(0, 1)), st.integers(0, 20), st.integers(0, 20))
def test_numbers_are_the_same_for_numpy(name: str, values: list[int], skip: int, take: int) -> None:
    kind = pa.type_for_alias(name)
    array = pa.array(values, pa.int64()).cast(kind).slice(skip, take)
    found = as_numpy(array)
    assert found.tolist() == array.to_pylist()
    assert found.dtype == array.to_numpy(zero_copy_only=False).dtype


_SHORT_QUERIES = """
import sys
import warpdata as wd
table = wd.dataset("a/b", store=sys.argv[1]).table()
def look(what):
    if "pandas" in sys.modules:
        sys.exit(f"{what} loads pandas")
look("opening")
table.schema(), table.count(), table.head(5)
look("head")
for where in sys.argv[2:]:
    assert table.filter(where).head(5).num_rows, where
    look(where)
    assert table.select(["n"]).filter(where).count(), where
    look(where + ", counted")
assert sum(batch.num_rows for batch in table.batches(10)) == 100
look("batches")
assert sum(len(batch["n"]) for batch in table.batch_dicts(10)) == 100
look("batch_dicts")
"""


def test_short_queries_do_not_load_pandas(tmp_path: Path) -> None:
    pytest.importorskip("pandas")
    rows = pa.table(
        {
            "n": np.arange(100),
            "x": np.arange(100) / 3,
            "word": pa.array([f"w{n % 7}" for n in range(100)]),
            "flag": pa.array([n % 2 == 0 for n in range(100)]),
            "day": pa.array([date(2024, 1, 1 + n % 20) for n in range(100)]),
            "time": pa.array([datetime(2024, 1, 1 + n % 20, 3) for n in range(100)]),
        }
    )
    store = (tmp_path / "store").as_uri()
    wd.DatasetBuilder("a/b", store).add_table("main", rows).publish()
    filters = [
        "n > 5",
        "x < 7.5",
        "word = 'w3'",
        "word IN ('w1', 'w2')",
        "word LIKE 'w%'",
        "flag",
        "n + x < 20",
        "n IS NOT NULL",
        "day >= '2024-01-05'",
        "time >= TIMESTAMP '2024-01-05 00:00:00'",
        "length(word) = 2",
    ]
    ran = subprocess.run(
        [sys.executable, "-c", _SHORT_QUERIES, store, *filters],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
