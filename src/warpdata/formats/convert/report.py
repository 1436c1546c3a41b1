"""The outcome of every field in a conversion: kept, changed, lost, or added because the target needs it.

A `ConversionLog` starts with the names of all fields of a source, and requires an outcome for each. A converter that
forgets a field fails its tests instead of losing data silently.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from warpdata.primitives.reprs import short_repr

__all__ = ["ConversionLog", "ConversionReport", "FieldOutcome", "merge_reports"]

_TITLES = {"kept": "kept, bit for bit", "changed": "changed", "lost": "lost", "added": "added"}


@dataclass(frozen=True, slots=True)
class FieldOutcome:
    """The outcome of one field, with the number of episodes; 0 for a field of the whole dataset.

    `field` has its name in the source; an added field has its name in the target.
    """

    field: str
    how: str
    episodes: int


@dataclass(frozen=True, slots=True)
class ConversionReport:
    """The outcome of a conversion, field by field. `written` are the new files or directories."""

    source: str
    target: str
    episodes: int
    steps: int
    written: tuple[Path, ...]
    kept: tuple[FieldOutcome, ...]
    changed: tuple[FieldOutcome, ...]
    lost: tuple[FieldOutcome, ...]
    added: tuple[FieldOutcome, ...]

    def __repr__(self) -> str:
        counts = {name: len(getattr(self, name)) for name in ("written", "kept", "changed", "lost", "added")}
        return short_repr("ConversionReport", self.source, self.target, episodes=self.episodes, **counts)

    @property
    def is_lossless(self) -> bool:
        """True if every field was kept."""
        return not self.changed and not self.lost

    def document(self) -> dict[str, Any]:
        """Return the report as plain values for JSON."""
        outcomes = {
            name: [{"field": item.field, "how": item.how, "episodes": item.episodes} for item in getattr(self, name)]
            for name in _TITLES
        }
        return {
            "from": self.source,
            "to": self.target,
            "episodes": self.episodes,
            "steps": self.steps,
            "written": [str(path) for path in self.written],
            "is_lossless": self.is_lossless,
            **outcomes,
        }

    def text(self) -> str:
        """Return the report as lines for people."""
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        episodes = "episode" if self.episodes == 1 else "episodes"
        yield f"{self.source} to {self.target}: {self.episodes} {episodes}, {self.steps} steps"
        for name, title in _TITLES.items():
            outcomes: tuple[FieldOutcome, ...] = getattr(self, name)
            if outcomes:
                yield f"{title}:"
            for item in outcomes:
                share = "" if item.episodes in (0, self.episodes) else f" ({item.episodes} of {self.episodes} episodes)"
                yield f"  {item.field}{': ' if item.how else ''}{item.how}{share}"


class ConversionLog:
    """Collects the outcomes over all episodes. The same outcome in several episodes is one entry."""

    def __init__(self, source: str, target: str) -> None:
        self._source, self._target = source, target
        self._pending: set[str] = set()
        self._is_shared = False
        self._outcomes: Counter[tuple[str, str, str]] = Counter()
        self._episodes = self._steps = 0
        self._written: list[Path] = []

    def open(self, fields: Iterable[str], *, is_shared: bool = False) -> None:
        """Start an episode, or the fields that all episodes share."""
        assert not self._pending, f"{sorted(self._pending)} have no outcome"
        self._pending = set(fields)
        self._is_shared = is_shared

    def kept(self, field: str, how: str = "") -> None:
        """Record that the target holds exactly these values and bits."""
        self._record("kept", field, how)

    def changed(self, field: str, how: str) -> None:
        """Record that the target holds the field in another form."""
        self._record("changed", field, how)

    def lost(self, field: str, how: str) -> None:
        """Record that the target does not hold the field."""
        self._record("lost", field, how)

    def added(self, field: str, how: str) -> None:
        """Record a field that the target needs and the source does not have."""
        self._outcomes["added", field, how] += not self._is_shared

    def close(self, steps: int = 0) -> None:
        """End an episode with this number of steps. A field without an outcome is a bug of the converter."""
        assert not self._pending, f"{sorted(self._pending)} have no outcome"
        self._episodes += not self._is_shared
        self._steps += steps

    def wrote(self, path: Path) -> None:
        self._written.append(path)

    def report(self) -> ConversionReport:
        assert not self._pending, f"{sorted(self._pending)} have no outcome"
        outcomes: dict[str, list[FieldOutcome]] = {name: [] for name in _TITLES}
        for (name, field, how), count in self._outcomes.items():
            outcomes[name].append(FieldOutcome(field, how, count))
        return ConversionReport(
            self._source,
            self._target,
            self._episodes,
            self._steps,
            tuple(self._written),
            **{name: tuple(listed) for name, listed in outcomes.items()},
        )

    def _record(self, outcome: str, field: str, how: str) -> None:
        assert field in self._pending, f"{field} is unknown, or already has an outcome"
        self._pending.discard(field)
        self._outcomes[outcome, field, how] += not self._is_shared


def merge_reports(reports: Sequence[ConversionReport]) -> ConversionReport:
    """Merge the reports of at least one conversion between the same formats."""
    outcomes: dict[str, tuple[FieldOutcome, ...]] = {}
    for name in _TITLES:
        counts: Counter[tuple[str, str]] = Counter()
        for report in reports:
            for item in getattr(report, name):
                counts[item.field, item.how] += item.episodes
        outcomes[name] = tuple(FieldOutcome(field, how, count) for (field, how), count in counts.items())
    return ConversionReport(
        reports[0].source,
        reports[0].target,
        sum(report.episodes for report in reports),
        sum(report.steps for report in reports),
        tuple(path for report in reports for path in report.written),
        **outcomes,
    )
