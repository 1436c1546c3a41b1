"""Clauses of a filter that select among the rows of a table: the nearest to a vector, and a random sample."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from warpdata.kinds.tables.nearest import nearest_rows
from warpdata.query import Clauses

if TYPE_CHECKING:
    from warpdata.kinds.tables.table import Table

__all__ = ["apply_clauses"]


def apply_clauses(table: Table, clauses: Clauses) -> Table:
    """Restrict a table to the rows that the clauses select, of those that its filters keep: `near`, then `sample`."""
    near, sample = clauses.near, clauses.sample
    if near is not None:
        rows = nearest_rows(table, near.column, near.vector, near.k, near.metric)
        table = replace(table, filters=(), rows=rows)
    return table if sample is None else table.sample(sample.count, by=sample.by, seed=sample.seed)
