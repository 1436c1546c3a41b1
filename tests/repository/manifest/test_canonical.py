"""If this fails, one value has two encodings, and equal content gets two hashes."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warpdata.errors import BadInputError, CorruptError
from warpdata.primitives.strict_json import decode_json
from warpdata.repository.manifest import Json, canonical_json

text = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
values: st.SearchStrategy[Json] = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53) + 1, 2**53 - 1) | text,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(text, inner, max_size=4),
    max_leaves=20,
)


def shuffled(value: Json) -> Json:
    """The same value with its keys in another order."""
    if isinstance(value, dict):
        return {key: shuffled(value[key]) for key in reversed(list(value))}
    if isinstance(value, list):
        return [shuffled(item) for item in value]
    return value


@given(values)
def test_round_trip_and_one_spelling(value: Json) -> None:
    data = canonical_json(value)
    assert decode_json(data, "value") == value
    assert canonical_json(shuffled(value)) == data
    assert canonical_json(decode_json(data, "value")) == data


@given(values)
def test_no_space_outside_strings(value: Json) -> None:
    assert canonical_json(value) == canonical_json(json.loads(json.dumps(value, indent=3)))


def test_keys_are_sorted_by_code_point_and_strings_are_kept_as_given() -> None:
    assert canonical_json({"é": 1, "e\u0301": 2, "z": 3, "\U0001f600": 4, "\uffff": 5}) == (
        '{"e\u0301":2,"z":3,"é":1,"\uffff":5,"\U0001f600":4}'.encode()
    )


@pytest.mark.parametrize("value", [1.5, math.nan, math.inf, 2**53, {"a": [0.1]}, {1: 2}, {"a": b"x"}, "\ud800", {"s"}])
def test_what_has_no_canonical_form_is_refused(value: Json) -> None:
    with pytest.raises(BadInputError):
        canonical_json(value)


def test_deep_nesting_is_refused_both_ways() -> None:
    deep: Json = 0
    for _ in range(40):
        deep = [deep]
    with pytest.raises(BadInputError, match="nested"):
        canonical_json(deep)
    for depth in (40, 100_000):
        with pytest.raises(CorruptError):
            decode_json(b"[" * depth + b"]" * depth, "value")


@pytest.mark.parametrize(
    "data",
    [
        b'{"a":1,"a":2}',
        b"NaN",
        b"[Infinity]",
        b"{",
        b"\xff",
        b"",
        b"01",
        b'{"a":1}x',
        b'"\\ud800"',
        b"1e999",
        b"\xef\xbb\xbf1",
    ],
)
def test_sloppy_json_is_refused(data: bytes) -> None:
    with pytest.raises(CorruptError, match="value"):
        decode_json(data, "value")
