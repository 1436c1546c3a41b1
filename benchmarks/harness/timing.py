"""Interleaved rounds and paired ratios.

Absolute times on a shared machine mean little. Every round therefore runs all arms in turn, in another order,
and a ratio is the median over rounds of the ratio within a round. Arms return a count that all must agree on,
so that a fast wrong answer is an error.
"""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from benchmarks.results import Measurement

__all__ = [
    "Arm",
    "RunOptions",
    "ScenarioUnavailableError",
    "Timings",
    "format_bytes",
    "format_seconds",
    "interleave",
    "interleave_all",
]

Arm: TypeAlias = Callable[[], Callable[[], int]]
"""Prepares one run, untimed, and returns the timed callable. That returns a count on which all arms must agree."""

_EXTRA_ROUNDS_FACTOR = 5
_ENOUGH_S = 0.8
_PASS_COUNT = 3
_SCALE = {"s": 1.0, "ms": 1e3, "µs": 1e6}
_RATE_SCALE = {"GB/s": 1e-9}


class ScenarioUnavailableError(RuntimeError):
    """The machine lacks something without which the scenario cannot run, such as a GPU."""


@dataclass(frozen=True, slots=True)
class RunOptions:
    """Amount of work. A smoke run uses tiny data; its numbers mean nothing."""

    rounds: int = 5
    is_smoke: bool = False
    latency_s: float = 0.03
    """Latency of the slow network of `cloud` scenarios."""
    connection_bytes_per_s: float | None = None
    """Bandwidth of each of its connections; None for one that suits the cores."""
    skips_s3: bool = False
    """Leave out the cases of `tables` over S3, in which DuckDB takes minutes on many cores."""


@dataclass(frozen=True, slots=True)
class Timings:
    """Seconds by arm, one entry per round."""

    by_arm: Mapping[str, Sequence[float]]

    def median_s(self, arm: str) -> float:
        return statistics.median(self.by_arm[arm])

    def speed_ratio(self, arm: str, peer: str) -> float:
        """Return how many times as fast `arm` is as `peer`; 2.0 means half the time."""
        return statistics.median(self.ratios(arm, peer))

    def ratios(self, arm: str, peer: str) -> list[float]:
        return [peer_s / arm_s for arm_s, peer_s in zip(self.by_arm[arm], self.by_arm[peer], strict=True)]

    def per_item(self, counts: Mapping[str, int]) -> Timings:
        """Return the seconds per item, for arms that read different numbers of items."""
        return Timings({arm: [took_s / counts[arm] for took_s in times] for arm, times in self.by_arm.items()})

    def compare(
        self,
        case: str,
        arm: str,
        peer: str,
        *,
        peer_name: str = "",
        unit: str = "ms",
        promise: str = "",
        detail: str = "",
    ) -> Measurement:
        """Compare two arms by speed. A unit that ends in `/s` is a rate; other units are times."""
        ratios = self.ratios(arm, peer)
        return Measurement(
            case=case,
            unit=unit,
            ours=self.value(arm, unit),
            peer=self.value(peer, unit),
            peer_name=peer_name or peer,
            ratio=statistics.median(ratios),
            ratio_range=(min(ratios), max(ratios)),
            promise=promise,
            detail=detail,
        )

    def slowdown(self, case: str, arm: str, baseline: str, *, baseline_name: str, promise: str = "") -> Measurement:
        """Compare two arms of warpdata by time; 2.0 means twice the time of the baseline."""
        costs = [1 / ratio for ratio in self.ratios(arm, baseline)]
        return Measurement(
            case=case,
            unit="ms",
            ours=self.value(arm, "ms"),
            peer=self.value(baseline, "ms"),
            peer_name=baseline_name,
            is_baseline=True,
            ratio=1 / statistics.median(self.ratios(arm, baseline)),
            ratio_range=(min(costs), max(costs)),
            quantity="time",
            promise=promise,
        )

    def value(self, arm: str, unit: str) -> float:
        """Return the median in a unit of time, or as a rate."""
        median_s = self.median_s(arm)
        return _RATE_SCALE.get(unit, 1.0) / median_s if unit.endswith("/s") else median_s * _SCALE[unit]


def interleave(
    arms: Mapping[str, Arm], rounds: int, *, warmups: int = 1, clock: Callable[[], float] = time.perf_counter
) -> Timings:
    """Time every arm once per round, beginning each round with another arm.

    `clock` may be `time.process_time`, which other work on the machine disturbs less.

    Short arms run more rounds, within bounds, because a few milliseconds are easily disturbed. A single round
    stays a single round.
    """
    times: dict[str, list[float]] = {name: [] for name in arms}
    names = list(arms)
    spent_s = 0.0
    for number in range(-warmups, rounds * _EXTRA_ROUNDS_FACTOR if rounds > 1 else 1):
        if number >= rounds and spent_s >= _ENOUGH_S * rounds:
            break
        first = number % len(names)
        answers: dict[str, int] = {}
        for name in names[first:] + names[:first]:
            run = arms[name]()
            gc.collect()
            start = clock()
            answers[name] = run()
            took_s = clock() - start
            if number >= 0:
                times[name].append(took_s)
                spent_s += took_s
        if len(set(answers.values())) > 1:
            raise AssertionError(f"the arms disagree: {answers}")
    return Timings(times)


def interleave_all(comparisons: Mapping[str, Mapping[str, Arm]], rounds: int) -> dict[str, Timings]:
    """Time several comparisons in a few passes, so that a disturbed minute affects all of them alike."""
    found: dict[str, dict[str, list[float]]] = {name: {} for name in comparisons}
    passes = min(_PASS_COUNT, rounds)
    for number in range(passes):
        share = rounds * (number + 1) // passes - rounds * number // passes
        for name, arms in comparisons.items():
            for arm, times in interleave(arms, share).by_arm.items():
                found[name].setdefault(arm, []).extend(times)
    return {name: Timings(by_arm) for name, by_arm in found.items()}


def format_bytes(size_bytes: float) -> str:
    return f"{size_bytes / 1e6:,.1f} MB" if size_bytes >= 1e6 else f"{size_bytes / 1e3:,.1f} kB"


def format_seconds(value_s: float) -> str:
    return f"{value_s:.2f} s" if value_s >= 1 else f"{value_s * 1e3:.0f} ms"
