"""Tables: Parquet shards in a store, read by range, filtered in SQL, streamed as Arrow.

Handed manifest entries and a `Reader`; knows nothing of catalogs. docs/specs/tables.md is the
normative text.
"""

from warpdata.tables.arrays import as_arrow, as_numpy
from warpdata.tables.assign import RowRange, assign_rows, check_rank, snap
from warpdata.tables.batches import rebatch
from warpdata.tables.engine import connect_open, httpfs_path, sealed_cursor
from warpdata.tables.evaluate import Evaluator
from warpdata.tables.filters import RowFilter, parse_filter
from warpdata.tables.parquet import ShardOpener
from warpdata.tables.predicate import can_match
from warpdata.tables.schemas import check_reference_column, check_same_schema, near_columns, retyped_table
from warpdata.tables.sources import ParquetSource, describe_all, describe_parquet, read_unified
from warpdata.tables.table import Foresee, Present, Table, TakeRows
from warpdata.tables.writing import WriteOptions, write_parquet

__all__ = [
    "Evaluator",
    "Foresee",
    "ParquetSource",
    "Present",
    "RowFilter",
    "RowRange",
    "ShardOpener",
    "Table",
    "TakeRows",
    "WriteOptions",
    "as_arrow",
    "as_numpy",
    "assign_rows",
    "can_match",
    "check_rank",
    "check_reference_column",
    "check_same_schema",
    "connect_open",
    "describe_all",
    "describe_parquet",
    "httpfs_path",
    "near_columns",
    "parse_filter",
    "read_unified",
    "rebatch",
    "retyped_table",
    "sealed_cursor",
    "snap",
    "write_parquet",
]
