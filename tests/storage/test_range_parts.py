"""If this fails, a large range of a remote object is put together wrongly from its parts."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from warpdata.primitives.ranges import ByteRange
from warpdata.settings import load_settings
from warpdata.storage import object_store, open_store

DATA = bytes(range(251)) * 8
borders = st.integers(0, len(DATA))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(borders, borders), min_size=1, max_size=6), st.integers(1, 400), st.integers(0, 300))
def test_ranges_of_any_size_equal_the_object(
    monkeypatch: pytest.MonkeyPatch, pairs: list[tuple[int, int]], part_bytes: int, gap_bytes: int
) -> None:
    monkeypatch.setattr(object_store, "_PART_BYTES", part_bytes)
    store = open_store("memory://parts-of-large-ranges", load_settings())
    store.replace("object", DATA)
    spans = [ByteRange(min(pair), max(pair)) for pair in pairs]
    found = store.read_ranges("object", spans, gap_bytes=gap_bytes)
    assert [bytes(part) for part in found] == [DATA[start:end] for start, end in spans]
