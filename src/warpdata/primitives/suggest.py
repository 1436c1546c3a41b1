"""Hints for misspelled names."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice

__all__ = ["suggest"]


def suggest(
    name: str, known: Iterable[str], *, label: str | None = None, count: int = 3, shown: int = 12
) -> str | None:
    """Return "Did you mean a or b?" with up to `count` similar names.

    If no name is similar, return the first `shown` known names after the label ("Tables: a, b, …"), or None
    without a label.
    """
    import difflib

    names = list(known)
    similar = difflib.get_close_matches(name, names, n=count)
    if similar:
        return f"Did you mean {' or '.join(similar)}?"
    if label is None:
        return None
    listed = [*islice(names, shown), *(["…"] if len(names) > shown else [])]
    return f"{label}: {', '.join(listed) or 'none'}"
