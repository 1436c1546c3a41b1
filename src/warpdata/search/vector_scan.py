"""Exact search of a column of vectors: every selected row is read and compared, in batches."""

from __future__ import annotations

from typing import TYPE_CHECKING

from warpdata.formats.search import TopScores
from warpdata.kinds.tables import Table, iter_vectors
from warpdata.repository.rows import RowSelection
from warpdata.search.request import NearClause

if TYPE_CHECKING:
    pass

__all__ = ["scan_vectors"]


def scan_vectors(table: Table, selection: RowSelection, near: NearClause, best: TopScores) -> int:
    """Add the best of the selected rows. Return how many have a vector that can be compared."""
    parts = iter_vectors(table, selection, near.column)
    return sum(near.query.search(rows, vectors, best) for rows, vectors in parts)
