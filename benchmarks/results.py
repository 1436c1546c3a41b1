"""Typed results of a scenario and their canonical JSON under `benchmarks/results/`.

A measurement compares warpdata with a peer or with a baseline of its own. The ratio of a peer comparison
is always oriented so that more than 1 means that warpdata does better. Results of machines with another number of
cores than the stored one are beside it, in a directory for each number. The module needs only the standard library, so
that the tensor scenarios run on a GPU machine without the dependencies of warpdata.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, fields
from pathlib import Path
from typing import Any

__all__ = [
    "RESULTS_DIR",
    "Measurement",
    "Outcome",
    "ScenarioResult",
    "load_other_cores",
    "load_results",
    "parse_result",
    "render_json",
    "result_path",
]

RESULTS_DIR = Path(__file__).parent / "results"
_SIGNIFICANT_DIGITS = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
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
                object.__setattr__(self, name, _round(value))
        for name in ("ours_range", "ratio_range"):
            value = getattr(self, name)
            if value is not None:
                object.__setattr__(self, name, (_round(value[0]), _round(value[1])))


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """Return value of a scenario's `run`."""

    title: str
    method: str
    measurements: Sequence[Measurement]
    notes: Sequence[str] = ()
    skipped: Sequence[str] = ()
    """One line for each peer that could not be measured."""
    is_timed: bool = True
    """False if the scenario counts requests, bytes or samples, once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScenarioResult:
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

    @property
    def cores(self) -> int | None:
        """Number of cores of the machine; None if it is not recorded."""
        found = re.search(r"\b(\d+) cores?\b", self.machine)
        return int(found[1]) if found else None

    def find(self, promise: str) -> list[Measurement]:
        return [measurement for measurement in self.measurements if measurement.promise == promise]


def render_json(result: ScenarioResult) -> str:
    """Return the canonical text: sorted keys, two spaces, no defaults, one trailing newline."""
    document = {**_without_defaults(result), "measurements": [*map(_without_defaults, result.measurements)]}
    return json.dumps(document, ensure_ascii=False, indent=2, sort_keys=True) + "\n"


def parse_result(text: str) -> ScenarioResult:
    """Parse a stored result; an unknown field raises TypeError."""
    document = json.loads(text)
    measurements = tuple(_parse_measurement(each) for each in document.pop("measurements"))
    for name in ("notes", "skipped"):
        document[name] = tuple(document.get(name, ()))
    return ScenarioResult(measurements=measurements, **document)


def load_results(directory: Path = RESULTS_DIR) -> dict[str, ScenarioResult]:
    """Return the stored results by scenario."""
    results = [parse_result(path.read_text(encoding="utf-8")) for path in sorted(directory.glob("*.json"))]
    return {result.scenario: result for result in results}


def load_other_cores(directory: Path = RESULTS_DIR) -> dict[int, dict[str, ScenarioResult]]:
    """Return the results of machines with other numbers of cores, by number and scenario."""
    found = {int(path.name.removesuffix("-cores")): load_results(path) for path in directory.glob("*-cores")}
    return dict(sorted(found.items()))


def result_path(result: ScenarioResult, directory: Path = RESULTS_DIR) -> Path:
    """Return the file of a new result: that of the scenario, unless it is about another number of cores."""
    stored = directory / f"{result.scenario}.json"
    if not stored.exists() or parse_result(stored.read_text(encoding="utf-8")).cores == result.cores:
        return stored
    return directory / f"{result.cores}-cores" / stored.name


def _parse_measurement(document: dict[str, Any]) -> Measurement:
    for name in ("ours_range", "ratio_range"):
        if name in document:
            document[name] = tuple(document[name])
    return Measurement(**document)


def _without_defaults(value: Measurement | ScenarioResult) -> dict[str, Any]:
    found = {field.name: (getattr(value, field.name), field.default) for field in fields(value)}
    return {name: current for name, (current, default) in found.items() if default is MISSING or current != default}


def _round(value: Any) -> float:
    rounded = float(f"{value:.{_SIGNIFICANT_DIGITS}g}")
    return int(rounded) if rounded.is_integer() else rounded
