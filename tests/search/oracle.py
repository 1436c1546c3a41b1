"""Slow, independent searches of rows in memory, to compare with."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

__all__ = ["nearest", "score"]


def score(vector: Sequence[float], query: Sequence[float], metric: str) -> float:
    """Return the score of one vector by the definition of its metric."""
    if metric == "l2":
        return -math.dist(vector, query)
    dot = math.fsum(a * b for a, b in zip(vector, query, strict=True))
    return dot if metric == "dot" else dot / (math.hypot(*vector) * math.hypot(*query))


def is_comparable(vector: Sequence[float | None] | None, metric: str) -> bool:
    if vector is None or any(value is None or not math.isfinite(value) for value in vector):
        return False
    return metric != "cosine" or any(vector)


def nearest(rows: Sequence[tuple[int, Any]], query: Sequence[float], metric: str, k: int) -> list[tuple[int, float]]:
    """Return the ids and scores of the `k` best of (id, vector), ties by id."""
    found = [(number, score(vector, query, metric)) for number, vector in rows if is_comparable(vector, metric)]
    return sorted(found, key=lambda pair: (-pair[1], pair[0]))[:k]
