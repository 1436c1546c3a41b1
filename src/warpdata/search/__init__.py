"""Search: the rows of a table that are near to a vector or about some words, with or without an index."""

from warpdata.search.duplicates import find_duplicates
from warpdata.search.embedding import embed_batches, embed_value
from warpdata.search.hits import Hits, SearchExplanation, SearchPart
from warpdata.search.image_search import ExampleImage, ImageClause, is_image, parse_example
from warpdata.search.request import NearClause, Vector, check_count, output_columns, parse_near, parse_text
from warpdata.search.search import SearchRequest, search_table
from warpdata.search.search_index import SearchIndexes

__all__ = [
    "ExampleImage",
    "Hits",
    "ImageClause",
    "NearClause",
    "SearchExplanation",
    "SearchIndexes",
    "SearchPart",
    "SearchRequest",
    "Vector",
    "check_count",
    "embed_batches",
    "embed_value",
    "find_duplicates",
    "is_image",
    "output_columns",
    "parse_example",
    "parse_near",
    "parse_text",
    "search_table",
]
