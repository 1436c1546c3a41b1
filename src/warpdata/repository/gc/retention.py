"""Retention rules: the versions of a history that a collection keeps. Pure.

Implements "Retention" of docs/specs/gc.md.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import timedelta

from warpdata.errors import BadInputError

__all__ = ["KEEP_ALL", "Retention", "parse_retention"]

KEEP_ALL = "all"
_UNITS = {"hour": timedelta(hours=1), "day": timedelta(days=1), "week": timedelta(weeks=1)}
_LAST = re.compile(r"last\s+(\d{1,9})")
_AGE = re.compile(r"(\d{1,6})\s*(hour|day|week)s?")


@dataclass(frozen=True, slots=True)
class Retention:
    """A parsed rule. Heads, labels and pins are kept by every rule. `text` is the rule as it was written."""

    text: str
    keeps_all: bool = False
    last: int = 1
    younger_than: timedelta | None = None


def parse_retention(text: str) -> Retention:
    """Parse a rule such as "labels, pins, last 10, 30 days". Raise `BadInputError` with the term that is wrong."""
    terms = [term.strip().lower() for term in text.split(",")]
    keeps_all, last, younger_than = False, 1, None
    for term in terms:
        counted, aged = _LAST.fullmatch(term), _AGE.fullmatch(term)
        if term == KEEP_ALL:
            keeps_all = True
        elif counted is not None and int(counted[1]) > 0:
            last = max(last, int(counted[1]))
        elif aged is not None:
            age = int(aged[1]) * _UNITS[aged[2]]
            younger_than = age if younger_than is None else max(age, younger_than)
        elif term not in ("labels", "pins"):
            raise BadInputError(
                f"keep={text!r} has the term {term!r}, which is no retention rule",
                hint='Write "all", or terms such as "labels, pins, last 10, 30 days".',
            )
    return Retention(", ".join(terms), keeps_all, last, younger_than)
