"""If this fails, two readers see two values in one text, or a format takes numbers that its page refuses."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warpdata.errors import CorruptError
from warpdata.primitives.strict_json import decode_json, fits_float64

END = 2**1024 - 2**970


@given(st.integers(-(10**320), 10**320) | st.integers(END - 2, END + 2) | st.integers(-END - 2, -END + 2))
def test_an_integer_is_taken_exactly_where_float64_holds_it(value: int) -> None:
    fits = math.isfinite(float(str(value)))
    assert fits_float64(value) is fits
    data = json.dumps({"a": [1, {"b": value}]}).encode()
    if fits:
        assert decode_json(data, "it") == {"a": [1, {"b": value}]}, "no digit is lost"
    else:
        with pytest.raises(CorruptError, match="it is not valid JSON: the number"):
            decode_json(data, "it")


@pytest.mark.parametrize("text", ["1e309", "-1e309", "1" * 309 + "0", "9" * 5000, "[" + "9" * 400 + "]"])
def test_numbers_beyond_measure(text: str) -> None:
    with pytest.raises(CorruptError):
        decode_json(text.encode(), "it")


def test_whole_numbers_and_fractions_stay_apart() -> None:
    values = decode_json(b"[30, 30.0, 3e1, 9007199254740993, -0, -0.0, true]", "it")
    assert [type(value) for value in values] == [int, float, float, int, int, float, bool]
    assert values[3] == 2**53 + 1
