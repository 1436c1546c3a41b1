"""If this fails, a size limit is parsed wrongly: a cache grows too large, or nothing fits."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warpdata.errors import BadInputError
from warpdata.primitives.sizes import parse_size

UNITS = {
    "": 1,
    "B": 1,
    "kB": 1000,
    "KB": 1000,
    "MB": 1000**2,
    "GB": 1000**3,
    "TB": 1000**4,
    "PB": 1000**5,
    "KiB": 1024,
    "MiB": 1024**2,
    "GiB": 1024**3,
    "TiB": 1024**4,
    "PiB": 1024**5,
}


@given(st.integers(0, 2**63 - 1))
def test_plain_bytes(size: int) -> None:
    assert parse_size(size) == parse_size(str(size)) == size


@given(st.integers(0, 8000), st.integers(0, 999), st.sampled_from(sorted(UNITS)), st.sampled_from(["", " "]))
def test_units_multiply_exactly(whole: int, thousandths: int, unit: str, space: str) -> None:
    exact = (whole * 1000 + thousandths) * UNITS[unit] // 1000
    for spelled in (unit, unit.lower(), unit.upper()):
        assert parse_size(f"{whole}.{thousandths:03d}{space}{spelled}") == exact


@pytest.mark.parametrize(
    "text",
    [
        *("", " ", "GB", "200G", "1e9", "-1", "-1GB", "+1GB", "1.GB", ".5GB", "1,5GB", "1 000", "٣GB", "1GBB"),
        *("1 GB/s", "nan", "inf", "9" * 19, "10000PB", "1\x00GB", "1\nGB", "0x10"),
    ],
)
def test_invalid_text_is_named(text: str) -> None:
    with pytest.raises(BadInputError) as caught:
        parse_size(text)
    assert repr(text) in caught.value.message


@pytest.mark.parametrize("value", [-1, 2**63, True])
def test_invalid_numbers(value: int) -> None:
    with pytest.raises(BadInputError, match="is not a size"):
        parse_size(value)


@given(st.text(max_size=30))
def test_any_text_gives_size_or_bad_input(text: str) -> None:
    try:
        size = parse_size(text)
    except BadInputError:
        return
    assert 0 <= size < 2**63
