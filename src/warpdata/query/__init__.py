"""Filters: parsing, pruning, and evaluation over Arrow data."""

from warpdata.query.duckdb import connect_open, httpfs_path, sealed_cursor
from warpdata.query.evaluator import Evaluator
from warpdata.query.expr import Bounds, can_match, columns_of
from warpdata.query.parse import RowFilter, conjunction, parse_filter
from warpdata.query.schemas import (
    check_columns,
    check_reference_column,
    check_same_schema,
    check_unique,
    near_columns,
    retyped_batch,
    retyped_table,
)

__all__ = [
    "Bounds",
    "Evaluator",
    "RowFilter",
    "can_match",
    "check_columns",
    "check_reference_column",
    "check_same_schema",
    "check_unique",
    "columns_of",
    "conjunction",
    "connect_open",
    "httpfs_path",
    "near_columns",
    "parse_filter",
    "retyped_batch",
    "retyped_table",
    "sealed_cursor",
]
