"""If this fails, bytes of a remote object depend on how many requests fetch them, or readers hold too much memory."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from warpdata.primitives.parallel import IO_POOL, READ_MEMORY, REQUEST_LIMIT
from warpdata.primitives.ranges import ByteRange
from warpdata.settings import load_settings
from warpdata.storage import object_store, open_store

DATA = bytes(range(251)) * 8
borders = st.integers(0, len(DATA))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.tuples(borders, borders), min_size=1, max_size=6),
    st.integers(1, 400),
    st.integers(0, 300),
    st.integers(1, 20),
    st.integers(1, 3000),
)
def test_ranges_equal_the_object_at_every_setting(
    monkeypatch: pytest.MonkeyPatch,
    pairs: list[tuple[int, int]],
    part_bytes: int,
    gap_bytes: int,
    concurrency: int,
    memory_bytes: int,
) -> None:
    monkeypatch.setattr(object_store, "_MIN_PART_BYTES", part_bytes)
    monkeypatch.setattr(object_store, "_MAX_PART_BYTES", part_bytes)
    REQUEST_LIMIT.fix(concurrency)
    READ_MEMORY.resize(memory_bytes)
    store = open_store("memory://parts-of-large-ranges", load_settings())
    store.replace("object", DATA)
    spans = [ByteRange(min(pair), max(pair)) for pair in pairs]
    found = store.read_ranges("object", spans, gap_bytes=gap_bytes)
    assert [bytes(part) for part in found] == [DATA[start:end] for start, end in spans]
    assert READ_MEMORY.used_bytes == 0


@pytest.mark.parametrize("concurrency", [1, 8, 64])
@pytest.mark.parametrize("limit_bytes", [1, 5_000, 100_000])
def test_requests_in_flight_stay_within_the_memory(
    monkeypatch: pytest.MonkeyPatch, concurrency: int, limit_bytes: int
) -> None:
    """Several readers at once, each with ranges of many parts."""
    import obstore

    part_bytes, most = 1000, [0]
    get_range, lock = obstore.get_range, threading.Lock()

    def watched(*args: Any, **keywords: Any) -> object:
        with lock:
            most[0] = max(most[0], READ_MEMORY.used_bytes)
        return get_range(*args, **keywords)

    monkeypatch.setattr(obstore, "get_range", watched)
    monkeypatch.setattr(object_store, "_MIN_PART_BYTES", part_bytes)
    monkeypatch.setattr(object_store, "_MAX_PART_BYTES", part_bytes)
    REQUEST_LIMIT.fix(concurrency)
    READ_MEMORY.resize(limit_bytes)
    store = open_store("memory://memory-of-requests", load_settings())
    store.replace("object", DATA * 10)
    whole = ByteRange(0, len(DATA) * 10)
    with IO_POOL.executor() as executor:
        found = list(executor.map(lambda _: bytes(store.read_range("object", whole)), range(8)))
    assert set(found) == {DATA * 10}
    assert 0 < most[0] <= max(part_bytes, limit_bytes // 2)


@pytest.mark.parametrize("concurrency", [1, 3, 12])
def test_no_more_requests_are_in_flight_than_set(monkeypatch: pytest.MonkeyPatch, concurrency: int) -> None:
    """Requests of the pool and of the caller's own threads count alike."""
    import obstore

    running, most, lock = [0], [0], threading.Lock()
    get_range = obstore.get_range

    def watched(*args: Any, **keywords: Any) -> object:
        with lock:
            running[0] += 1
            most[0] = max(most[0], running[0])
        time.sleep(0.001)
        try:
            return get_range(*args, **keywords)
        finally:
            with lock:
                running[0] -= 1

    monkeypatch.setattr(obstore, "get_range", watched)
    monkeypatch.setattr(object_store, "_MIN_PART_BYTES", 100)
    monkeypatch.setattr(object_store, "_MAX_PART_BYTES", 100)
    REQUEST_LIMIT.fix(concurrency)
    store = open_store("memory://requests-in-flight", load_settings())
    store.replace("object", DATA)
    with ThreadPoolExecutor(8) as own:
        found = list(own.map(lambda _: bytes(store.read_range("object", ByteRange(0, len(DATA)))), range(8)))
    assert set(found) == {DATA}
    assert most[0] == concurrency
