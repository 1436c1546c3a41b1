"""If this fails, `LIKE '%text%'` keeps other rows if all texts are searched at once than one by one.

Python's `in` on every single text is the reference.
"""

from __future__ import annotations

import sys

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from warpdata.query import substring_search

LETTERS = "ab\u00e9\u0301\U0001f600"
ROWS = st.lists(st.tuples(st.text(LETTERS, max_size=12), st.booleans()), max_size=40)


@given(
    ROWS,
    st.text(LETTERS, min_size=1, max_size=6),
    st.sampled_from([pa.string(), pa.large_string()]),
    st.integers(0, 10),
    st.integers(1, 30),
)
@example([("ab", True), ("ab", True)], "ba", pa.string(), 0, 3)
@example([("", True), ("aab", False), ("b", True)], "b", pa.string(), 1, 1)
def test_searching_the_buffer_equals_searching_each_text(
    rows: list[tuple[str, bool]], wanted: str, kind: pa.DataType, skip: int, block_bytes: int
) -> None:
    """Matches may touch the borders of texts and blocks; arrays may be slices; a null may hide a text."""
    expected = [wanted in text if is_valid else None for text, is_valid in rows][skip:]
    texts = pa.array([text for text, _ in rows], kind)
    valid = pa.array([is_valid for _, is_valid in rows], pa.bool_())
    masked = pa.Array.from_buffers(kind, len(rows), [valid.buffers()[1], *texts.buffers()[1:]])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(substring_search, "_BLOCK_BYTES_PER_CORE", block_bytes)
        for share in (1000.0, 0.0):
            patch.setattr(substring_search, "_MAX_MATCH_SHARE", share)
            assert substring_search.contains(masked.slice(skip), wanted).to_pylist() == expected
            split = pa.chunked_array([masked.slice(0, skip), masked.slice(skip)], kind)
            assert substring_search.contains(split, wanted).to_pylist()[skip:] == expected


def test_the_kernel_searches_frequent_substrings(monkeypatch: pytest.MonkeyPatch) -> None:
    searched: list[str] = []

    def kernel(values: pa.Array, text: str) -> pa.Array:
        searched.append(text)
        return values

    monkeypatch.setattr(pa.compute, "match_substring", kernel)
    values = pa.array(["one in a hundred" if n % 100 == 0 else "other" for n in range(1000)])
    assert substring_search.contains(values, "hundred").true_count == 10
    assert searched == []
    substring_search.contains(values, "the")
    assert searched == ["the"]


def test_the_kernel_searches_without_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "numpy", None)
    assert substring_search.contains(pa.array(["aba", None, ""]), "b").to_pylist() == [True, None, False]
