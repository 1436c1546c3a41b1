"""Tables: Parquet shards in a store, read by range, filtered in SQL, streamed as Arrow.

Handed manifest entries and a `Reader`; knows nothing of catalogs. docs/specs/tables.md is the
normative text.
"""

from warpdata.kinds.tables.assignment import RowRange, assign_rows, check_rank, snap
from warpdata.kinds.tables.batches import rebatch
from warpdata.kinds.tables.table import LookaheadHook, SchemaTransform, Table, TakeRows

__all__ = [
    "LookaheadHook",
    "RowRange",
    "SchemaTransform",
    "Table",
    "TakeRows",
    "assign_rows",
    "check_rank",
    "rebatch",
    "snap",
]
