"""Exact search of a column of vectors: every selected row is read and compared, in batches."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from warpdata.formats.search import TopScores, vectors_of
from warpdata.kinds.tables import Table
from warpdata.repository.rows import RowSelection
from warpdata.search.request import NearClause

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["iter_vectors", "scan_vectors"]


def scan_vectors(table: Table, selection: RowSelection, near: NearClause, best: TopScores) -> int:
    """Add the best of the selected rows. Return how many have a vector that can be compared."""
    parts = iter_vectors(table, selection, near.column)
    return sum(near.query.search(rows, vectors, best) for rows, vectors in parts)


def iter_vectors(
    table: Table, selection: RowSelection, column: str
) -> Iterator[tuple[NDArray[np.int64], NDArray[Any]]]:
    """Yield the vectors of the selected rows that are not null, with the numbers of the rows. Reads ahead."""
    start = 0
    for part in replace(table.raw(), rows=selection, filters=()).select(column).row_groups():
        numbers = selection.slice(start, start + part.num_rows).numbers
        start += part.num_rows
        offset = 0
        for chunk in part.column(0).chunks:
            positions, vectors = vectors_of(chunk)
            yield numbers[offset + positions], vectors
            offset += len(chunk)
