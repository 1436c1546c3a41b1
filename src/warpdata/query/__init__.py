"""Filters: parsing, pruning, and evaluation over Arrow data.

Filters are SQL expressions over one row. The package knows Arrow schemas and tables, but neither files nor datasets.
"""

from warpdata.query.duckdb import connect_open, httpfs_path, quote_identifier, read_files
from warpdata.query.evaluator import Evaluator
from warpdata.query.expr import columns_of
from warpdata.query.parse import RowFilter, conjunction, parse_filter
from warpdata.query.pruning import Bounds, can_match

__all__ = [
    "Bounds",
    "Evaluator",
    "RowFilter",
    "can_match",
    "columns_of",
    "conjunction",
    "connect_open",
    "httpfs_path",
    "parse_filter",
    "quote_identifier",
    "read_files",
]
