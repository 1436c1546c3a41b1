"""Typed results of a scenario and their canonical JSON under `benchmarks/results/`.

A measurement compares warpdata with a peer or with a baseline of its own. The ratio of a peer comparison
is always oriented so that more than 1 means that warpdata does better.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

__all__ = ["RESULTS_DIR", "Measurement", "Outcome", "ScenarioResult", "load_results", "parse_result", "render_json"]

RESULTS_DIR = Path(__file__).parent / "results"
_SIGNIFICANT_DIGITS = 6


class Measurement(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """One case of a scenario. Values are medians over rounds; ranges are the smallest and the largest."""

    case: str
    unit: str
    """Unit of `ours`, `ours_range` and `peer`."""
    ours: float | None = None
    ours_range: tuple[float, float] | None = None
    peer: float | None = None
    peer_name: str = ""
    is_baseline: bool = False
    """True if `peer` is another run of warpdata or an ideal, not another library."""
    ratio: float | None = None
    ratio_range: tuple[float, float] | None = None
    quantity: str = "speed"
    """Quantity that the ratio compares."""
    detail: str = ""
    promise: str = ""
    """Id of the promise that this measurement checks."""
    target: str = ""
    """Target of the promise when the measurement was stored, in words."""
    is_met: bool | None = None

    def __post_init__(self) -> None:
        for name in ("ours", "peer", "ratio"):
            value = getattr(self, name)
            if value is not None:
                msgspec.structs.force_setattr(self, name, _round(value))
        for name in ("ours_range", "ratio_range"):
            value = getattr(self, name)
            if value is not None:
                msgspec.structs.force_setattr(self, name, (_round(value[0]), _round(value[1])))


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """Return value of a scenario's `run`."""

    title: str
    method: str
    measurements: Sequence[Measurement]
    notes: Sequence[str] = ()
    skipped: Sequence[str] = ()
    """One line for each peer that could not be measured."""
    is_timed: bool = True
    """False if the scenario counts requests, bytes or samples, once."""


class ScenarioResult(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Stored result of a scenario, with the circumstances under which it was measured."""

    scenario: str
    title: str
    method: str
    measurements: tuple[Measurement, ...]
    date: str
    commit: str
    machine: str
    """Number of cores, memory and platform, in words; never a host name or a path."""
    versions: Mapping[str, str]
    rounds: int | None = None
    """Smallest number of rounds; None if the scenario counts instead of timing."""
    notes: tuple[str, ...] = ()
    skipped: tuple[str, ...] = ()
    recorded: str = ""
    """Origin of the numbers, if `python -m benchmarks` did not write the file."""

    def find(self, promise: str) -> list[Measurement]:
        return [measurement for measurement in self.measurements if measurement.promise == promise]


def render_json(result: ScenarioResult) -> str:
    """Return the canonical text: sorted keys, two spaces, one trailing newline."""
    return json.dumps(msgspec.to_builtins(result), ensure_ascii=False, indent=2, sort_keys=True) + "\n"


def parse_result(text: str) -> ScenarioResult:
    return msgspec.json.decode(text, type=ScenarioResult)


def load_results(directory: Path = RESULTS_DIR) -> dict[str, ScenarioResult]:
    """Return the stored results by scenario."""
    results = [parse_result(path.read_text(encoding="utf-8")) for path in sorted(directory.glob("*.json"))]
    return {result.scenario: result for result in results}


def _round(value: Any) -> float:
    rounded = float(f"{value:.{_SIGNIFICANT_DIGITS}g}")
    return int(rounded) if rounded.is_integer() else rounded
