"""The rows of a table whose vectors are nearest to a given one, by comparing all of them.

Scores are float64 sums in the order of the elements, so the answer is the same on every machine.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from warpdata.errors import BadInputError, SchemaMismatchError
from warpdata.primitives.arrow_buffers import as_bools, as_numpy
from warpdata.repository.rows import RowSelection

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray

    from warpdata.kinds.tables.table import Table

__all__ = ["nearest_rows"]

_BLOCK_ELEMENTS = 1 << 18


def nearest_rows(table: Table, column: str, query: Sequence[float], k: int, metric: str) -> RowSelection:
    """Return the `k` rows that the filters of the table keep and whose vectors are nearest to `query`.

    `metric` is "cosine", "l2" or "dot", the largest product. Equal scores are in the order of sample ids. Rows without
    a finite vector, and for cosine with a vector of zeros, are never near.
    """
    import numpy as np

    _check(table, column, query, metric)
    vector = np.array(query, np.float64)
    rows, scores = np.empty(0, np.int64), np.empty(0)
    for numbers, vectors in _blocks(table, table.select_rows(), column):
        with np.errstate(all="ignore"):
            found = _scores(vectors.astype(np.float64), vector, metric)
        usable = np.flatnonzero(np.isfinite(found))
        rows, scores = np.concatenate([rows, numbers[usable]]), np.concatenate([scores, found[usable]])
        if len(rows) > k:
            least = np.partition(scores, len(scores) - k)[len(scores) - k]
            rows, scores = rows[scores >= least], scores[scores >= least]  # with all rows that tie with the last
    ids = np.concatenate([np.empty(0, np.int64), *(part.ids for part in table.locate(rows))])
    return RowSelection.of_numbers(np.sort(rows[np.lexsort((ids, -scores))[:k]]))


def _check(table: Table, column: str, query: Sequence[float], metric: str) -> None:
    import pyarrow as pa

    kind = table.raw().select(column).schema().field(column).type
    if not (pa.types.is_fixed_size_list(kind) and pa.types.is_floating(kind.value_type)):
        raise SchemaMismatchError(
            f"column {column!r} is {kind}, and not a fixed-size list of floating-point numbers",
            hint="A column of vectors has the Arrow type fixed_size_list<float>[n].",
        )
    if len(query) != kind.list_size:
        raise BadInputError(
            f"the query vector has {len(query)} numbers; column {column!r} has vectors of {kind.list_size}",
            hint="Embed the query with the model that made the column.",
        )
    if metric == "cosine" and not any(query):
        raise BadInputError("the query vector is zero, which has no cosine", hint="Pass metric='l2' or 'dot'.")


def _blocks(table: Table, selection: RowSelection, column: str) -> Iterator[tuple[NDArray[np.int64], NDArray[Any]]]:
    """Yield the vectors of the selected rows without nulls, with the numbers of the rows, ascending."""
    start = 0
    for part in replace(table.raw(), rows=selection, filters=()).select(column).row_groups():
        for chunk in part.column(0).chunks:
            numbers = selection.slice(start, start + len(chunk)).numbers
            start += len(chunk)
            step = max(_BLOCK_ELEMENTS // chunk.type.list_size, 1)
            for at in range(0, len(chunk), step):
                positions, vectors = _vectors(chunk.slice(at, step))
                yield numbers[at + positions], vectors


def _vectors(lists: pa.FixedSizeListArray) -> tuple[NDArray[np.int64], NDArray[Any]]:
    """Return the lists without a null as an array, and their positions."""
    import numpy as np

    size = lists.type.list_size
    values = lists.values.slice(lists.offset * size, len(lists) * size)
    is_complete = np.ones(len(lists), bool)
    if lists.null_count:
        is_complete &= as_bools(lists.is_valid())
    if values.null_count:
        is_complete &= as_bools(values.is_valid()).reshape(-1, size).all(axis=1)
        values = values.fill_null(0)
    positions = np.flatnonzero(is_complete)
    return positions, as_numpy(values).reshape(-1, size)[positions]


def _scores(vectors: NDArray[np.float64], query: NDArray[np.float64], metric: str) -> NDArray[np.float64]:
    """Return a score for each vector, higher for nearer ones; not finite for one that cannot be compared."""
    import numpy as np

    if metric == "l2":
        distances: NDArray[np.float64] = np.sqrt(((vectors - query) ** 2).sum(axis=1))
        return -distances
    products: NDArray[np.float64] = (vectors * query).sum(axis=1)
    if metric == "dot":
        return products
    lengths = np.sqrt((vectors * vectors).sum(axis=1))
    cosines: NDArray[np.float64] = np.clip(products / (lengths * np.sqrt((query * query).sum())), -1.0, 1.0)
    return cosines
