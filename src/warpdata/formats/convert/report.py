"""What became of everything in a source: kept, changed, lost, or added because the target needs it.

A `Ledger` is opened with the names of all that a source holds, and is closed only when each of them has
been accounted for. So a converter that forgets something fails its tests, and loses nothing in silence.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["ConversionReport", "Fate", "Ledger", "merged"]

_TITLES = {"kept": "kept, bit for bit", "changed": "changed", "lost": "lost", "added": "added"}


@dataclass(frozen=True, slots=True)
class Fate:
    """What became of one field, in how many episodes; 0 means that it belongs to none of them alone.

    `field` is named as in the source; of what was added, as in the target.
    """

    field: str
    how: str
    episodes: int


@dataclass(frozen=True, slots=True)
class ConversionReport:
    """A conversion, told field by field. `written` are the files or folders that it made."""

    source: str
    target: str
    episodes: int
    steps: int
    written: tuple[Path, ...]
    kept: tuple[Fate, ...]
    changed: tuple[Fate, ...]
    lost: tuple[Fate, ...]
    added: tuple[Fate, ...]

    @property
    def is_lossless(self) -> bool:
        """Whether every field was kept."""
        return not self.changed and not self.lost

    def document(self) -> dict[str, Any]:
        """The report as plain values for JSON."""
        told = {
            name: [{"field": fate.field, "how": fate.how, "episodes": fate.episodes} for fate in getattr(self, name)]
            for name in _TITLES
        }
        return {
            "from": self.source,
            "to": self.target,
            "episodes": self.episodes,
            "steps": self.steps,
            "written": [str(path) for path in self.written],
            "is_lossless": self.is_lossless,
            **told,
        }

    def text(self) -> str:
        """The report as lines for people."""
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        many = "episode" if self.episodes == 1 else "episodes"
        yield f"{self.source} to {self.target}: {self.episodes} {many}, {self.steps} steps"
        for name, title in _TITLES.items():
            fates: tuple[Fate, ...] = getattr(self, name)
            if fates:
                yield f"{title}:"
            for fate in fates:
                share = "" if fate.episodes in (0, self.episodes) else f" ({fate.episodes} of {self.episodes} episodes)"
                yield f"  {fate.field}{': ' if fate.how else ''}{fate.how}{share}"


class Ledger:
    """Collects fates over all episodes of a conversion. The same fate of many episodes is one entry."""

    def __init__(self, source: str, target: str) -> None:
        self._source, self._target = source, target
        self._waiting: set[str] = set()
        self._is_shared = False
        self._told: Counter[tuple[str, str, str]] = Counter()
        self._episodes = self._steps = 0
        self._written: list[Path] = []

    def open(self, fields: Iterable[str], *, is_shared: bool = False) -> None:
        """Begin with an episode, or with what all of them share."""
        assert not self._waiting, f"{sorted(self._waiting)} are not accounted for"
        self._waiting = set(fields)
        self._is_shared = is_shared

    def kept(self, field: str, how: str = "") -> None:
        """The target holds exactly these values and bits."""
        self._settle("kept", field, how)

    def changed(self, field: str, how: str) -> None:
        """The target holds something of it, in another form."""
        self._settle("changed", field, how)

    def lost(self, field: str, how: str) -> None:
        """The target holds nothing of it."""
        self._settle("lost", field, how)

    def added(self, field: str, how: str) -> None:
        """The target needs it, and the source does not have it."""
        self._told["added", field, how] += not self._is_shared

    def close(self, steps: int = 0) -> None:
        """End an episode of so many steps. Whatever was forgotten is our own mistake."""
        assert not self._waiting, f"{sorted(self._waiting)} are not accounted for"
        self._episodes += not self._is_shared
        self._steps += steps

    def wrote(self, path: Path) -> None:
        self._written.append(path)

    def report(self) -> ConversionReport:
        assert not self._waiting, f"{sorted(self._waiting)} are not accounted for"
        fates: dict[str, list[Fate]] = {name: [] for name in _TITLES}
        for (name, field, how), count in self._told.items():
            fates[name].append(Fate(field, how, count))
        return ConversionReport(
            self._source,
            self._target,
            self._episodes,
            self._steps,
            tuple(self._written),
            **{name: tuple(listed) for name, listed in fates.items()},
        )

    def _settle(self, fate: str, field: str, how: str) -> None:
        assert field in self._waiting, f"{field} is not there, or was accounted for twice"
        self._waiting.discard(field)
        self._told[fate, field, how] += not self._is_shared


def merged(reports: Sequence[ConversionReport]) -> ConversionReport:
    """One report of several conversions between the same formats. There is at least one."""
    fates: dict[str, tuple[Fate, ...]] = {}
    for name in _TITLES:
        counts: Counter[tuple[str, str]] = Counter()
        for report in reports:
            for fate in getattr(report, name):
                counts[fate.field, fate.how] += fate.episodes
        fates[name] = tuple(Fate(field, how, count) for (field, how), count in counts.items())
    return ConversionReport(
        reports[0].source,
        reports[0].target,
        sum(report.episodes for report in reports),
        sum(report.steps for report in reports),
        tuple(path for report in reports for path in report.written),
        **fates,
    )
