"""Indexes as a payload kind of a dataset version.

docs/specs/indexes.md is the normative text.
"""

from warpdata.kinds.indexes.entry import IndexEntry, Parameters
from warpdata.kinds.indexes.kind import INDEXES, IndexInfo
from warpdata.kinds.indexes.opened_index import OpenedIndex
from warpdata.kinds.indexes.stage import BuiltSegment, IndexInput, KeptSegment, stage_index

__all__ = [
    "INDEXES",
    "BuiltSegment",
    "IndexEntry",
    "IndexInfo",
    "IndexInput",
    "KeptSegment",
    "OpenedIndex",
    "Parameters",
    "stage_index",
]
