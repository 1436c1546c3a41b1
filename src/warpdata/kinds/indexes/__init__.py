"""Indexes as a payload kind of a dataset version.

docs/specs/indexes.md is the normative text.
"""

from warpdata.kinds.indexes.entry import IndexEntry, Parameters
from warpdata.kinds.indexes.kind import INDEXES, IndexInfo
from warpdata.kinds.indexes.opened_index import OpenedIndex
from warpdata.kinds.indexes.segment_rows import PlacedSource, SegmentRows, place_sources, source_names
from warpdata.kinds.indexes.stage import BuiltSegment, IndexInput, KeptSegment, stage_index
from warpdata.kinds.indexes.table_indexes import TableIndexes

__all__ = [
    "INDEXES",
    "BuiltSegment",
    "IndexEntry",
    "IndexInfo",
    "IndexInput",
    "KeptSegment",
    "OpenedIndex",
    "Parameters",
    "PlacedSource",
    "SegmentRows",
    "TableIndexes",
    "place_sources",
    "source_names",
    "stage_index",
]
