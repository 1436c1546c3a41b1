"""Index files: the directory that says what segments cover, and the segments of each kind. No versions.

docs/specs/indexes.md is the normative text, for segments of vectors and text docs/specs/search.md.
"""

from warpdata.formats.indexes.bm25 import Corpus, Postings, TextQuery, split_words
from warpdata.formats.indexes.directory import (
    INDEX_KINDS,
    Directory,
    Segment,
    Source,
    encode_directory,
    parse_directory,
)
from warpdata.formats.indexes.ivf_build import IvfOptions, write_ivf
from warpdata.formats.indexes.ivf_segment import IvfSegment, ListCache, ProbeCount
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
    "INDEX_KINDS",
    "MAX_LENGTH",
    "METRICS",
    "Corpus",
    "Directory",
    "IvfOptions",
    "IvfSegment",
    "ListCache",
    "Metric",
    "Postings",
    "ProbeCount",
    "Segment",
    "Source",
    "TextQuery",
    "TopScores",
    "VectorQuery",
    "encode_directory",
    "find_usable",
    "parse_directory",
    "split_words",
    "squared_lengths",
    "write_ivf",
]
