"""The report of a conversion of episodes, field by field. `primitives/outcomes.py` has the outcomes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from warpdata.primitives.outcomes import OUTCOME_TITLES, FieldOutcome, FieldOutcomes, OutcomeLog
from warpdata.primitives.reprs import short_repr

__all__ = ["ConversionLog", "ConversionReport", "FieldOutcome", "merge_reports"]


@dataclass(frozen=True, slots=True)
class ConversionReport:
    """The outcome of a conversion, field by field. `written` are the new files or directories.

    The count of an outcome is a number of episodes.
    """

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
        return self._outcomes.is_lossless

    def document(self) -> dict[str, Any]:
        """Return the report as plain values for JSON."""
        return {
            "from": self.source,
            "to": self.target,
            "episodes": self.episodes,
            "steps": self.steps,
            "written": [str(path) for path in self.written],
            "is_lossless": self.is_lossless,
            **self._outcomes.document("episodes"),
        }

    def text(self) -> str:
        """Return the report as lines for people."""
        return "\n".join(self._lines())

    @property
    def _outcomes(self) -> FieldOutcomes:
        return FieldOutcomes(self.kept, self.changed, self.lost, self.added)

    def _lines(self) -> Iterator[str]:
        episodes = "episode" if self.episodes == 1 else "episodes"
        yield f"{self.source} to {self.target}: {self.episodes} {episodes}, {self.steps} steps"
        yield from self._outcomes.lines(self.episodes, "episodes")


class ConversionLog:
    """Collects the outcomes over all episodes. The same outcome in several episodes is one entry."""

    def __init__(self, source: str, target: str) -> None:
        self._source, self._target = source, target
        self._log = OutcomeLog()
        self._is_shared = False
        self._episodes = self._steps = 0
        self._written: list[Path] = []

    def open(self, fields: Iterable[str], *, is_shared: bool = False) -> None:
        """Start an episode, or the fields that all episodes share."""
        self._log.expect(fields)
        self._is_shared = is_shared

    def kept(self, field: str, how: str = "") -> None:
        """Record that the target holds exactly these values and bits."""
        self._log.kept(field, how, self._count)

    def changed(self, field: str, how: str) -> None:
        """Record that the target holds the field in another form."""
        self._log.changed(field, how, self._count)

    def lost(self, field: str, how: str) -> None:
        """Record that the target does not hold the field."""
        self._log.lost(field, how, self._count)

    def added(self, field: str, how: str) -> None:
        """Record a field that the target needs and the source does not have."""
        self._log.added(field, how, self._count)

    def close(self, steps: int = 0) -> None:
        """End an episode with this number of steps. A field without an outcome is a bug of the converter."""
        self._log.check_complete()
        self._episodes += not self._is_shared
        self._steps += steps

    def wrote(self, path: Path) -> None:
        self._written.append(path)

    def report(self) -> ConversionReport:
        outcomes = self._log.outcomes()
        return ConversionReport(
            self._source,
            self._target,
            self._episodes,
            self._steps,
            tuple(self._written),
            **{name: getattr(outcomes, name) for name in OUTCOME_TITLES},
        )

    @property
    def _count(self) -> int:
        return int(not self._is_shared)


def merge_reports(reports: Sequence[ConversionReport]) -> ConversionReport:
    """Merge the reports of at least one conversion between the same formats."""
    outcomes: dict[str, tuple[FieldOutcome, ...]] = {}
    for name in OUTCOME_TITLES:
        counts: Counter[tuple[str, str]] = Counter()
        for report in reports:
            for item in getattr(report, name):
                counts[item.field, item.how] += item.count
        outcomes[name] = tuple(FieldOutcome(field, how, count) for (field, how), count in counts.items())
    return ConversionReport(
        reports[0].source,
        reports[0].target,
        sum(report.episodes for report in reports),
        sum(report.steps for report in reports),
        tuple(path for report in reports for path in report.written),
        **outcomes,
    )
