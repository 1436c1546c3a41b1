"""Exact search of a column of vectors: every selected row is read and compared, in batches."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from warpdata.formats.indexes import TopScores
from warpdata.kinds.tables import Table
from warpdata.primitives.arrow_buffers import as_bools, as_numpy
from warpdata.repository.rows import RowSelection
from warpdata.search.request import NearClause

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray

__all__ = ["iter_vectors", "scan_vectors", "vectors_of"]


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


def vectors_of(lists: pa.FixedSizeListArray) -> tuple[NDArray[np.int64], NDArray[Any]]:
    """Return the vectors of fixed-size lists as float32 or float64, and their positions. Leaves out nulls.

    A list with a null element is left out too. Lists of half precision become float32.
    """
    size = lists.type.list_size
    values = lists.values.slice(lists.offset * size, len(lists) * size)
    is_complete = np.ones(len(lists), bool)
    if lists.null_count:
        is_complete &= as_bools(lists.is_valid())
    if values.null_count:
        is_complete &= as_bools(values.is_valid()).reshape(-1, size).all(axis=1)
        values = values.fill_null(0)
    vectors = as_numpy(values).reshape(-1, size)
    if vectors.dtype == np.float16:
        vectors = vectors.astype(np.float32)
    positions = np.flatnonzero(is_complete)
    return positions, vectors if len(positions) == len(vectors) else vectors[positions]
