"""If this fails, a value changes on its way between Arrow and NumPy."""

from __future__ import annotations

from datetime import date, datetime

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from warpdata.primitives.arrow_buffers import as_bools, as_numpy, filter_rows, scalar_of

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


@given(st.lists(st.tuples(st.booleans(), st.one_of(st.none(), st.integers(0, 99)))), st.integers(0, 3))
def test_rows_are_filtered_as_arrow_does(rows: list[tuple[bool, int | None]], cut: int) -> None:
    numbers = [value for _, value in rows]
    columns = {
        "nulls": pa.array(numbers, pa.int32()),
        "floats": pa.array([value or 0 for value in numbers], pa.float64()),
        "flags": pa.array([bool(value) for value in numbers], pa.bool_()),
        "texts": pa.array([None if value is None else str(value) for value in numbers], pa.string()),
        "codes": pa.array([str(value) for value in numbers], pa.string()).dictionary_encode(),
    }
    whole = pa.table(columns).slice(cut)
    table = pa.concat_tables([whole.slice(0, 2), whole.slice(2)])
    kept = pa.array([keeps for keeps, _ in rows[cut:]], pa.bool_())
    assert filter_rows(table, kept).equals(table.filter(kept))


def test_numbers_with_validity_bits_that_say_nothing_are_filtered() -> None:
    validity, data = pa.array([True] * 16).buffers()[1], pa.array(range(16), pa.int64()).buffers()[1]
    numbers = pa.Array.from_buffers(pa.int64(), 12, [validity, data], 0, 3)
    kept = pa.array([n % 3 == 0 for n in range(12)])
    assert filter_rows(pa.table({"n": numbers}), kept)["n"].to_pylist() == [3, 6, 9, 12]
