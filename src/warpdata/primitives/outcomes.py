"""The outcome of every field in a conversion: kept, changed, lost, or added because the target needs it.

An `OutcomeLog` starts with the names of all fields of a source, and requires an outcome for each. A converter that
forgets a field fails its tests instead of losing data silently. Conversions of episodes, imports and exports share it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

__all__ = ["OUTCOME_TITLES", "FieldOutcome", "FieldOutcomes", "OutcomeLog"]

OUTCOME_TITLES = {"kept": "kept, bit for bit", "changed": "changed", "lost": "lost", "added": "added"}


@dataclass(frozen=True, slots=True)
class FieldOutcome:
    """The outcome of one field, with the number of episodes or rows; 0 for a field of the whole source.

    `field` has its name in the source; an added field has its name in the target.
    """

    field: str
    how: str
    count: int = 0


@dataclass(frozen=True, slots=True)
class FieldOutcomes:
    """The outcomes of all fields of a conversion."""

    kept: tuple[FieldOutcome, ...] = ()
    changed: tuple[FieldOutcome, ...] = ()
    lost: tuple[FieldOutcome, ...] = ()
    added: tuple[FieldOutcome, ...] = ()

    @property
    def is_lossless(self) -> bool:
        """True if every field was kept."""
        return not self.changed and not self.lost

    def document(self, count_key: str) -> dict[str, list[dict[str, Any]]]:
        """Return plain values for JSON, with the counts under `count_key`."""
        return {
            name: [{"field": item.field, "how": item.how, count_key: item.count} for item in getattr(self, name)]
            for name in OUTCOME_TITLES
        }

    def lines(self, total: int, noun: str) -> Iterator[str]:
        """Yield lines for people. A count that is neither 0 nor `total` is shown, as a number of `noun`."""
        for name, title in OUTCOME_TITLES.items():
            outcomes: tuple[FieldOutcome, ...] = getattr(self, name)
            if outcomes:
                yield f"{title}:"
            for item in outcomes:
                share = "" if item.count in (0, total) else f" ({item.count} of {total} {noun})"
                yield f"  {item.field}{': ' if item.how else ''}{item.how}{share}"


class OutcomeLog:
    """Collects outcomes. The same outcome of a field, recorded several times, is one entry with a count."""

    def __init__(self, fields: Iterable[str] = ()) -> None:
        self._pending: set[str] = set(fields)
        self._outcomes: Counter[tuple[str, str, str]] = Counter()

    def expect(self, fields: Iterable[str]) -> None:
        """Require an outcome for each of these fields, after all earlier ones have theirs."""
        self.check_complete()
        self._pending = set(fields)

    def kept(self, field: str, how: str = "", count: int = 0) -> None:
        """Record that the target holds exactly these values and bits."""
        self._record("kept", field, how, count)

    def changed(self, field: str, how: str, count: int = 0) -> None:
        """Record that the target holds the field in another form."""
        self._record("changed", field, how, count)

    def lost(self, field: str, how: str, count: int = 0) -> None:
        """Record that the target does not hold the field."""
        self._record("lost", field, how, count)

    def added(self, field: str, how: str, count: int = 0) -> None:
        """Record a field that the target needs and the source does not have."""
        self._outcomes["added", field, how] += count

    def outcomes(self) -> FieldOutcomes:
        """Return all outcomes. A field without one is a bug of the converter."""
        self.check_complete()
        listed: dict[str, list[FieldOutcome]] = {name: [] for name in OUTCOME_TITLES}
        for (name, field, how), count in self._outcomes.items():
            listed[name].append(FieldOutcome(field, how, count))
        return FieldOutcomes(**{name: tuple(items) for name, items in listed.items()})

    def check_complete(self) -> None:
        assert not self._pending, f"{sorted(self._pending)} have no outcome"

    def _record(self, outcome: str, field: str, how: str, count: int) -> None:
        assert field in self._pending, f"{field} is unknown, or already has an outcome"
        self._pending.discard(field)
        self._outcomes[outcome, field, how] += count
