"""If this fails, readers leave the network idle, flood a server that is full, or use cores they do not have."""

from __future__ import annotations

import heapq
import random
from pathlib import Path

import pytest

from warpdata.primitives.concurrency import (
    AdaptiveLimit,
    _read_quota,
    _usable_memory,
    read_ahead_bytes,
    usable_cores,
)


class Network:
    """Requests with a latency, a bandwidth for each connection and one for all. Time is simulated."""

    def __init__(self, latency_s: float, connection_rate: float, total_rate: float, *, noise: float = 0.0) -> None:
        self.latency_s, self.connection_rate, self.total_rate = latency_s, connection_rate, total_rate
        self.noise = noise
        self.now = 0.0
        self.in_flight = 0
        self._chance = random.Random(3)

    def run(self, limit: AdaptiveLimit, requests: int, size_bytes: int, *, backlog: int = 10_000) -> float:
        """Keep as many requests in flight as the limit and the backlog allow. Return bytes a second."""
        start, done, ends = self.now, 0, list[float]()
        while done < requests:
            while len(ends) < min(limit.value, backlog):
                rate = min(self.connection_rate, self.total_rate / (len(ends) + 1))
                took = (self.latency_s + size_bytes / rate) * (1 + self.noise * self._chance.uniform(-1, 1))
                heapq.heappush(ends, self.now + took)
            self.now = heapq.heappop(ends)
            done += 1
            limit.record(size_bytes, is_saturated=backlog > limit.value)
        return requests * size_bytes / (self.now - start)


def make(network: Network, first: int = 16) -> AdaptiveLimit:
    return AdaptiveLimit(first, 256, clock=lambda: network.now)


@pytest.mark.parametrize("noise", [0.0, 0.3])
def test_the_limit_grows_to_the_bandwidth_of_a_distant_store(noise: float) -> None:
    network = Network(0.03, 90e6, 2.6e9, noise=noise)
    limit = make(network)
    network.run(limit, 2_000, 8 << 20)
    assert network.run(limit, 3_000, 8 << 20) > 0.75 * 2.6e9


def test_many_small_requests_are_worth_more_connections() -> None:
    network = Network(0.03, 90e6, 2.6e9)
    limit = make(network)
    network.run(limit, 5_000, 40_000)
    assert limit.value >= 128


def test_a_server_at_its_limit_is_not_flooded() -> None:
    network = Network(0.0002, 2e9, 2e9)
    limit = make(network)
    seen = set()
    for _ in range(300):
        network.run(limit, 200, 8 << 20)
        seen.add(limit.value)
    assert max(seen) <= 32, "twice the requests were tried, and given up"
    assert limit.value == 16


def test_without_a_backlog_nothing_changes() -> None:
    network = Network(0.03, 90e6, 2.6e9)
    limit = make(network)
    network.run(limit, 3_000, 1 << 20, backlog=8)
    assert limit.value == 16


def test_the_limit_follows_a_network_that_becomes_faster() -> None:
    network = Network(0.03, 90e6, 200e6)
    limit = make(network)
    network.run(limit, 3_000, 8 << 20)
    before = limit.value
    network.total_rate = 2.6e9
    network.run(limit, 20_000, 8 << 20)
    assert limit.value > before


@pytest.mark.parametrize(
    ("files", "cores"),
    [
        ({"cpu.max": "max 100000\n"}, None),
        ({"cpu.max": "150000 100000\n"}, 2),
        ({"cpu.max": "400000 100000\n"}, 4),
        ({"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"}, None),
        ({"cpu/cpu.cfs_quota_us": "50000\n", "cpu/cpu.cfs_period_us": "100000\n"}, 1),
        ({"cpu.max": "nonsense\n"}, None),
        ({}, None),
    ],
)
def test_the_quota_of_a_container_bounds_the_cores(tmp_path: Path, files: dict[str, str], cores: int | None) -> None:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    found = _read_quota(tmp_path)
    assert found == cores if cores else found > 4096


def test_cores_are_at_least_one() -> None:
    assert usable_cores() >= 1


def test_reads_ahead_hold_a_small_part_of_the_memory(tmp_path: Path) -> None:
    (tmp_path / "memory.max").write_text("17179869184\n")
    assert _usable_memory(tmp_path) <= 16 << 30
    (tmp_path / "memory.max").write_text("max\n")
    assert _usable_memory(tmp_path) == _usable_memory(tmp_path / "none")
    assert 128 << 20 <= read_ahead_bytes() <= 1 << 30
