"""Search: the rows of a table that are nearest to a vector, with or without an index."""

from warpdata.search.hits import Hits, SearchExplanation, SearchPart
from warpdata.search.request import Vector, check_count, output_columns, parse_near
from warpdata.search.search import SearchRequest, search_table

__all__ = [
    "Hits",
    "SearchExplanation",
    "SearchPart",
    "SearchRequest",
    "Vector",
    "check_count",
    "output_columns",
    "parse_near",
    "search_table",
]
