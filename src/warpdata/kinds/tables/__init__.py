"""Tables: Parquet shards in a store, read by range, filtered in SQL, streamed as Arrow.

Handed manifest entries and a `Reader`; knows nothing of catalogs. docs/specs/tables.md is the
normative text.
"""

from warpdata.kinds.tables.assign import RowRange, assign_rows, check_rank, snap
from warpdata.kinds.tables.batches import rebatch
from warpdata.kinds.tables.kind import TABLES, TableInfo
from warpdata.kinds.tables.stage import StagedTable, TableInput, TableSpec
from warpdata.kinds.tables.table import LookaheadHook, SchemaTransform, Table, TakeRows

__all__ = [
    "TABLES",
    "LookaheadHook",
    "RowRange",
    "SchemaTransform",
    "StagedTable",
    "Table",
    "TableInfo",
    "TableInput",
    "TableSpec",
    "TakeRows",
    "assign_rows",
    "check_rank",
    "rebatch",
    "snap",
]
