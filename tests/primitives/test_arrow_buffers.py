"""If this fails, a value changes on its way between Arrow and NumPy."""

from __future__ import annotations

from datetime import date, datetime

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

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
def test_scalars_equal_those_of_arrow(typed_value: tuple[object, pa.DataType]) -> None:
    value, kind = typed_value
    expected = pa.scalar(value, kind)
    made = scalar_of(value, kind)  # type: ignore[arg-type]
    assert made.type == kind
    assert made.equals(expected)
    made.validate(full=True)


@pytest.mark.parametrize("kind", [pa.timestamp("s"), pa.timestamp("ms"), pa.date32()])
def test_a_time_that_does_not_fit_the_unit_is_converted_by_arrow(kind: pa.DataType) -> None:
    moment = datetime(2024, 5, 6, 7, 8, 9, 10)
    try:
        expected = pa.scalar(moment, kind)
    except pa.ArrowInvalid:
        with pytest.raises(pa.ArrowInvalid):
            scalar_of(moment, kind)
    else:
        assert scalar_of(moment, kind).equals(expected)


@given(st.lists(st.booleans()), st.integers(0, 20), st.integers(0, 20))
def test_bits_become_bools(values: list[bool], skip: int, take: int) -> None:
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
def test_numbers_are_the_same_in_numpy(name: str, values: list[int], skip: int, take: int) -> None:
    kind = pa.type_for_alias(name)
    array = pa.array(values, pa.int64()).cast(kind).slice(skip, take)
    found = as_numpy(array)
    assert found.tolist() == array.to_pylist()
    assert found.dtype == array.to_numpy(zero_copy_only=False).dtype
