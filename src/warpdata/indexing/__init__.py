"""Indexes as a user makes them: created, brought up to date and dropped by commits, and described.

docs/specs/indexes.md is the normative text.
"""

from warpdata.indexing.changes import IndexChange, IndexRequest, create_index, default_name, drop_index, update_index
from warpdata.indexing.status import IndexStatus, index_statuses

__all__ = [
    "IndexChange",
    "IndexRequest",
    "IndexStatus",
    "create_index",
    "default_name",
    "drop_index",
    "index_statuses",
    "update_index",
]
