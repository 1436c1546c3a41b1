"""Filters: parsing, pruning, and evaluation over Arrow data. SQL queries over Arrow sources.

Filters are SQL expressions over one row. The package knows Arrow schemas and tables, but neither files nor datasets.
"""

from warpdata.query.arrow_eval import evaluate_mask
from warpdata.query.binding import bind_filter, clauses_of
from warpdata.query.clauses import Clauses
from warpdata.query.duckdb import connect_open, httpfs_path, quote_identifier, read_files
from warpdata.query.evaluator import Evaluator
from warpdata.query.expr import (
    Compare,
    Contains,
    IsNull,
    Leaf,
    Match,
    Not,
    Predicate,
    columns_of,
    over_column,
)
from warpdata.query.filter import ColumnNamespace, Filter, Metric, ValueExpr, col
from warpdata.query.filter_tree import SampleClause, VectorClause
from warpdata.query.parse import RowFilter, conjunction, parse_filter
from warpdata.query.planner import Answer, LeafIndex, LeafPlan, LeafRows, plan
from warpdata.query.projection import Expression, expr, project
from warpdata.query.pruning import Bounds, can_match, required_values
from warpdata.query.sql import ArrowSource, SqlParameters, list_sources, run_query
from warpdata.query.value_set import value_key

__all__ = [
    "Answer",
    "ArrowSource",
    "Bounds",
    "Clauses",
    "ColumnNamespace",
    "Compare",
    "Contains",
    "Evaluator",
    "Expression",
    "Filter",
    "IsNull",
    "Leaf",
    "LeafIndex",
    "LeafPlan",
    "LeafRows",
    "Match",
    "Metric",
    "Not",
    "Predicate",
    "RowFilter",
    "SampleClause",
    "SqlParameters",
    "ValueExpr",
    "VectorClause",
    "bind_filter",
    "can_match",
    "clauses_of",
    "col",
    "columns_of",
    "conjunction",
    "connect_open",
    "evaluate_mask",
    "expr",
    "httpfs_path",
    "list_sources",
    "over_column",
    "parse_filter",
    "plan",
    "project",
    "quote_identifier",
    "read_files",
    "required_values",
    "run_query",
    "value_key",
]
