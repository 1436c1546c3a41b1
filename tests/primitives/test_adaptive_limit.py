"""If this fails, readers leave the network idle, flood a server that is full, or ignore one that asks for less."""

from __future__ import annotations

import heapq
import random

import pytest

from warpdata.primitives.adaptive_limit import AdaptiveLimit, AdaptiveSize


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


def test_a_server_that_asks_for_less_gets_half_once() -> None:
    network = Network(0.03, 90e6, 2.6e9)
    limit = make(network, 64)
    for _ in range(64):  # all answers of one moment
        limit.back_off()
    assert limit.value == 32
    limit.back_off()
    assert limit.value == 16, "requests that began afterwards still fail"


def test_the_limit_never_falls_below_one() -> None:
    limit = AdaptiveLimit(4, 256)
    for _ in range(100):
        limit.back_off()
    assert limit.value == 1


def test_a_server_with_a_quota_is_found_and_kept_below() -> None:
    """The server refuses every request beyond the 20th in flight. Refused requests are sent again."""
    network = Network(0.03, 90e6, 2.6e9)
    limit = make(network, 32)
    refused = 0
    for _ in range(5_000):
        network.now += 0.03 / limit.value
        if limit.value > 20:
            refused += 1
            limit.back_off()
        else:
            limit.record(1 << 20, is_saturated=True)
    assert limit.value <= 20
    assert limit.value >= 8
    assert refused < 400, "the limit is tried again, but rarely"


def test_the_limit_grows_again_after_a_slow_down() -> None:
    network = Network(0.03, 90e6, 2.6e9)
    limit = make(network, 32)
    for _ in range(100):
        limit.back_off()
    assert limit.value < 8
    network.run(limit, 5_000, 1 << 20)
    assert limit.value >= 32


def test_a_fixed_limit_ignores_throughput_and_slow_downs() -> None:
    network = Network(0.03, 90e6, 2.6e9)
    limit = make(network)
    limit.fix(7)
    network.run(limit, 1_000, 8 << 20)
    limit.back_off()
    assert limit.value == 7
    limit.fix(None)
    assert limit.value != 7


@pytest.mark.parametrize(("rate", "expected"), [(90e6, 8 << 20), (8e6, 8 << 20), (3e6, 2 << 20), (1e5, 1 << 20)])
def test_transfers_take_less_than_a_second(rate: float, expected: int) -> None:
    now = 0.0
    size = AdaptiveSize(4 << 20, 1 << 20, 8 << 20, clock=lambda: now)
    for _ in range(10):
        value = size.value
        with size.measuring(value):
            now += 0.03 + value / rate
        with size.measuring(1000):  # says nothing
            now += 0.03
    assert size.value <= expected
    assert size.value >= expected // 2
