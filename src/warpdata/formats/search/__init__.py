"""Segments of vectors and of words, and the scores of searches. Needs NumPy.

docs/specs/search.md is the normative text.
"""

from warpdata.formats.search.bm25 import Corpus, Postings, TextQuery, split_words
from warpdata.formats.search.ivf_build import IvfOptions, write_ivf
from warpdata.formats.search.ivf_head import describe_ivf
from warpdata.formats.search.ivf_segment import IvfSegment, ListCache, ProbeCount
from warpdata.formats.search.similarity import (
    MAX_LENGTH,
    METRICS,
    Metric,
    TopScores,
    VectorQuery,
    find_usable,
    squared_lengths,
    vectors_of,
)
from warpdata.formats.search.text_segment import TextSegment, write_text

__all__ = [
    "MAX_LENGTH",
    "METRICS",
    "Corpus",
    "IvfOptions",
    "IvfSegment",
    "ListCache",
    "Metric",
    "Postings",
    "ProbeCount",
    "TextQuery",
    "TextSegment",
    "TopScores",
    "VectorQuery",
    "describe_ivf",
    "find_usable",
    "split_words",
    "squared_lengths",
    "vectors_of",
    "write_ivf",
    "write_text",
]
