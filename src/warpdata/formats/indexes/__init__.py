"""Segments of indexes: bytes to answers and back, without versions.

docs/specs/search.md is the normative text.
"""

from warpdata.formats.indexes.similarity import (
    MAX_LENGTH,
    METRICS,
    Metric,
    TopScores,
    VectorQuery,
    find_usable,
    squared_lengths,
)

__all__ = [
    "MAX_LENGTH",
    "METRICS",
    "Metric",
    "TopScores",
    "VectorQuery",
    "find_usable",
    "squared_lengths",
]
