"""Search: the rows of a table that are near to a vector or about some words, with or without an index."""

from warpdata.search.duplicates import find_duplicates
from warpdata.search.embedding import embed_batches
from warpdata.search.hits import Hits, SearchExplanation, SearchPart
from warpdata.search.request import Vector, check_count, output_columns, parse_near, parse_text
from warpdata.search.search import SearchRequest, search_table
from warpdata.search.search_index import SearchIndexes

__all__ = [
    "Hits",
    "SearchExplanation",
    "SearchIndexes",
    "SearchPart",
    "SearchRequest",
    "Vector",
    "check_count",
    "embed_batches",
    "find_duplicates",
    "output_columns",
    "parse_near",
    "parse_text",
    "search_table",
]
