"""The rows of a table whose vectors are nearest to a given one, by comparing all of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from warpdata.errors import BadInputError, SchemaMismatchError
from warpdata.query import Metric
from warpdata.repository.rows import RowSelection

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from warpdata.kinds.tables.table import Table

__all__ = ["iter_vectors", "nearest_rows"]


def nearest_rows(table: Table, column: str, query: Sequence[float], k: int, metric: Metric) -> RowSelection:
    """Return the `k` rows that the filters of the table keep and whose vectors are nearest to `query`.

    `metric` is "cosine", "l2" or "dot", the largest product. Equal scores are in the order of sample ids. Rows without
    a vector that can be compared are never near.
    """
    import numpy as np

    from warpdata.formats.search import TopScores, VectorQuery  # needs NumPy

    _check(table, column, query, metric)
    near, best = VectorQuery(np.array(query, np.float64), metric), TopScores(k)
    for numbers, vectors in iter_vectors(table, table.select_rows(), column):
        near.search(numbers, vectors, best)
    rows, scores = best.result()
    order = np.argsort(rows)
    rows, scores = rows[order], scores[order]
    ids = np.concatenate([np.empty(0, np.int64), *(part.ids for part in table.locate(rows))])
    return RowSelection.of_numbers(np.sort(rows[np.lexsort((ids, -scores))[:k]]))


def iter_vectors(
    table: Table, selection: RowSelection, column: str
) -> Iterator[tuple[NDArray[np.int64], NDArray[Any]]]:
    """Yield the vectors of the selected rows that are not null, with the numbers of the rows. Reads ahead."""
    from warpdata.formats.search import vectors_of  # needs NumPy

    start = 0
    for part in replace(table.raw(), rows=selection, filters=()).select(column).row_groups():
        numbers = selection.slice(start, start + part.num_rows).numbers
        start += part.num_rows
        offset = 0
        for chunk in part.column(0).chunks:
            positions, vectors = vectors_of(chunk)
            yield numbers[offset + positions], vectors
            offset += len(chunk)


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
