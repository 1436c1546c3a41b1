"""What the database has said about tokens and sign-ins, kept for reads so that a page of images asks once.

An entry is good for a second, and only until this process commits a transaction. So a token that was revoked, or a role
that was taken, ends at once in the process that did it, and within a second in every other.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from warpdata.primitives.byte_lru import ByteLRU
from warpdata.server.database import Database

__all__ = ["FRESH_S", "RecentAnswers"]

FRESH_S = 1.0
_ENTRIES = 10_000
T = TypeVar("T")


class RecentAnswers(Generic[T]):
    """Answers of the database by key. Safe to share between threads."""

    def __init__(self, database: Database, timer: Callable[[], float]) -> None:
        self._database = database
        self._timer = timer
        self._answers: ByteLRU[Hashable, tuple[float, int, T]] = ByteLRU(max_entries=_ENTRIES)

    def recall(self, key: Hashable) -> T | None:
        """Return a recent answer. Asks nothing of the database."""
        known = self._answers.get(key)
        if known is None or known[1] != self._database.commits or self._timer() - known[0] >= FRESH_S:
            return None
        return known[2]

    def ask(self, key: Hashable, read: Callable[[], T]) -> T:
        """Read the answer from the database and keep it."""
        time, commits = self._timer(), self._database.commits  # of before, so that a commit meanwhile ends the answer
        answer = read()
        self._answers.put(key, (time, commits, answer))
        return answer
