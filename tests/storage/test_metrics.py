"""If these fail, users see wrong numbers of requests and cache hits."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, fields
from pathlib import Path

import pytest

from tests.storage.cache.scenes import Scene, members, read_members
from warpdata.errors import ObjectNotFoundError
from warpdata.limits import MIB
from warpdata.primitives.hashing import blob_key
from warpdata.storage import ByteRange, IOMetrics, IOStats, LocalStore, MeteredReader, Reader
from warpdata.storage.cache import FetchPolicy
from warpdata.testing import FaultyStore


@pytest.fixture
def store(tmp_path: Path) -> FaultyStore:
    made = FaultyStore(LocalStore(tmp_path / "store"))
    made.create("a/k", bytes(3 * MIB))
    made.clear()
    return made


OPERATIONS: dict[str, tuple[Callable[[Reader], object], int, int]] = {
    "read": (lambda reader: reader.read("a/k"), 1, 3 * MIB),
    "read_if_changed": (lambda reader: reader.read_if_changed("a/k", "tag"), 1, 3 * MIB),
    "read_range": (lambda reader: reader.read_range("a/k", ByteRange(5, 15)), 1, 10),
    "one request": (lambda reader: reader.read_ranges("a/k", [ByteRange(0, 10), ByteRange(90, 100)]), 1, 100),
    "two requests": (
        lambda reader: reader.read_ranges("a/k", [ByteRange(0, 10), ByteRange(90, 100)], gap_bytes=9),
        2,
        20,
    ),
    "no request": (lambda reader: reader.read_ranges("a/k", [ByteRange(4, 4)]), 0, 0),
    "stream": (lambda reader: list(reader.stream("a/k")), 1, 3 * MIB),
    "stat": (lambda reader: reader.stat("a/k"), 1, 0),
    "list_objects": (lambda reader: list(reader.list_objects("")), 1, 0),
    "list_folders": (lambda reader: reader.list_folders(""), 1, 0),
    "local_path": (lambda reader: reader.local_path("a/k"), 0, 0),
    "invalidate": (lambda reader: reader.invalidate("a/k"), 0, 0),
}


@pytest.mark.parametrize("name", OPERATIONS)
def test_requests_and_bytes_are_counted(store: FaultyStore, name: str) -> None:
    ask, requests, size = OPERATIONS[name]
    counters = IOMetrics()
    reader = MeteredReader(store, counters)
    assert isinstance(reader, Reader)
    assert reader.url == store.url
    assert ask(reader) == ask(store)
    assert counters.snapshot() == IOStats(requests=requests, bytes_fetched=size)


def test_a_failed_request_counts(store: FaultyStore) -> None:
    counters = IOMetrics()
    with pytest.raises(ObjectNotFoundError):
        MeteredReader(store, counters).read_range("absent", ByteRange(0, 5))
    assert counters.snapshot() == IOStats(requests=1)


def test_threads_do_not_lose_counts() -> None:
    counters = IOMetrics()

    def count(_: int) -> None:
        for _ in range(2000):
            counters.hit(3)
            counters.add("misses")

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(count, range(8)))
    assert counters.snapshot() == IOStats(hits=16_000, hit_bytes=48_000, misses=16_000)


def test_an_unknown_name_is_an_error() -> None:
    with pytest.raises(KeyError):
        IOMetrics().add("mises")


def test_the_counts_of_one_blob(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    blob, data = scene.blob(MIB)
    reader = scene.reader(FetchPolicy.EAGER)
    reader.fill(blob)
    read_members(reader, blob, data, members(MIB, 1))
    reader.invalidate(blob_key(blob.hash))
    counts = asdict(scene.counters.snapshot())
    assert len(counts) == len(fields(IOStats)) == 15
    assert {name: value for name, value in counts.items() if value} == {
        "requests": 1,
        "bytes_fetched": MIB,
        "hits": 64,
        "hit_bytes": MIB,
        "fills": 1,
        "fill_bytes": MIB,
        "healed": 1,
    }
    scene.close()
