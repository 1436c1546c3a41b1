"""Tables: Parquet shards in a store, read by byte range, filtered in SQL, yielded as Arrow.

The package knows manifest entries and a `Reader`, but no catalog. docs/specs/tables.md is the normative text.
"""

from warpdata.kinds.tables.assignment import assign_rows
from warpdata.kinds.tables.columns import check_column_names, check_columns, check_reference_column, retype_table
from warpdata.kinds.tables.kind import TABLES, TableInfo
from warpdata.kinds.tables.located_rows import ShardRows
from warpdata.kinds.tables.nearest import iter_vectors
from warpdata.kinds.tables.row_access import preview_rows
from warpdata.kinds.tables.row_diff import DifferentRows, RemadeColumns, RowDiff, diff_rows
from warpdata.kinds.tables.row_indexes import IndexedTable, QueryPlan, RowIndexes
from warpdata.kinds.tables.stage import StagedTable, TableInput, TableSpec, stage_table
from warpdata.kinds.tables.table import LookaheadHook, SchemaTransform, Table, TakeRows

__all__ = [
    "TABLES",
    "DifferentRows",
    "IndexedTable",
    "LookaheadHook",
    "QueryPlan",
    "RemadeColumns",
    "RowDiff",
    "RowIndexes",
    "SchemaTransform",
    "ShardRows",
    "StagedTable",
    "Table",
    "TableInfo",
    "TableInput",
    "TableSpec",
    "TakeRows",
    "assign_rows",
    "check_column_names",
    "check_columns",
    "check_reference_column",
    "diff_rows",
    "iter_vectors",
    "preview_rows",
    "retype_table",
    "stage_table",
]
