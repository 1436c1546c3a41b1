"""Segments of vectors and of words, and the scores of searches. Needs NumPy.

docs/specs/search.md is the normative text.
"""

from warpdata.formats.search.bm25 import Corpus, Postings, TextQuery, split_words
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
from warpdata.formats.search.vector_build import write_vectors
from warpdata.formats.search.vector_head import VECTOR_KINDS, describe_vectors
from warpdata.formats.search.vector_segment import BlockCache, ProbeCount, Subset, VectorSegment
from warpdata.formats.search.vector_training import VectorOptions

__all__ = [
    "MAX_LENGTH",
    "METRICS",
    "VECTOR_KINDS",
    "BlockCache",
    "Corpus",
    "Metric",
    "Postings",
    "ProbeCount",
    "Subset",
    "TextQuery",
    "TextSegment",
    "TopScores",
    "VectorOptions",
    "VectorQuery",
    "VectorSegment",
    "describe_vectors",
    "find_usable",
    "split_words",
    "squared_lengths",
    "vectors_of",
    "write_text",
    "write_vectors",
]
