"""Search: the rows of a table that are near to a vector or about some words, with or without an index."""

from warpdata.search.duplicates import find_duplicates
from warpdata.search.embedding import embed_batches, embed_value
from warpdata.search.hits import Hits, SearchExplanation, SearchPart
from warpdata.search.image_search import ExampleImage, ImageClause, image_hash, is_image, parse_example
from warpdata.search.projection import MAP_EDGE, Projection, project_vectors
from warpdata.search.request import (
    NearClause,
    Vector,
    check_count,
    check_vector_column,
    output_columns,
    parse_near,
    parse_text,
)
from warpdata.search.search import SearchRequest, search_table
from warpdata.search.search_index import SearchIndexes

__all__ = [
    "MAP_EDGE",
    "ExampleImage",
    "Hits",
    "ImageClause",
    "NearClause",
    "Projection",
    "SearchExplanation",
    "SearchIndexes",
    "SearchPart",
    "SearchRequest",
    "Vector",
    "check_count",
    "check_vector_column",
    "embed_batches",
    "embed_value",
    "find_duplicates",
    "image_hash",
    "is_image",
    "output_columns",
    "parse_example",
    "parse_near",
    "parse_text",
    "project_vectors",
    "search_table",
]
