"""Searches of one table: the rows that a filter keeps, compared with a vector or a text, best first.

Rows with equal scores are in the order of their sample ids, so that an answer does not depend on how rows are stored.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from warpdata.formats.indexes import TopScores
from warpdata.kinds.tables import Table
from warpdata.primitives.arrow_buffers import as_arrow
from warpdata.repository.rows import RowSelection
from warpdata.search.hits import Hits, SearchExplanation, SearchPart
from warpdata.search.request import ID_COLUMN, SCORE_COLUMN, NearClause
from warpdata.search.vector_scan import scan_vectors
from warpdata.storage import IOStats

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray

__all__ = ["SearchRequest", "search_table"]


@dataclass(frozen=True)
class SearchRequest:
    """A checked search."""

    near: NearClause
    k: int
    columns: list[str]


def search_table(table: Table, request: SearchRequest, io_stats: Callable[[], IOStats]) -> Hits:
    """Search the rows that the filters of the table keep."""
    before = io_stats()
    selection = table.select_rows()
    found, part = _search_vectors(table, selection, request)
    rows, scores, ids = _rank(table, *found, request.k)
    answer = _fetch(table, rows, request.columns)
    answer = answer.append_column(SCORE_COLUMN, [_floats(scores)]).append_column(ID_COLUMN, [as_arrow(ids)])
    spent = io_stats().since(before)
    whole = table.entry.shards.row_count
    explanation = SearchExplanation(
        table.name, table.filter_text, whole, len(selection), (part,), spent.requests, spent.bytes_fetched
    )
    return Hits(answer, rows, explanation)


def _search_vectors(
    table: Table, selection: RowSelection, request: SearchRequest
) -> tuple[tuple[NDArray[np.int64], NDArray[np.float64]], SearchPart]:
    near, best = request.near, TopScores(request.k)
    compared = scan_vectors(table, selection, near, best) if request.k else 0
    scanned = len(selection) if request.k else 0
    part = SearchPart(near.column, near.query.metric, None, compared, scanned - compared, scanned)
    return best.result(), part


def _rank(
    table: Table, rows: NDArray[np.int64], scores: NDArray[np.float64], k: int
) -> tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.int64]]:
    """Return the `k` best rows with their scores and sample ids. Ties go to the lower sample id."""
    order = np.argsort(rows)
    rows, scores = rows[order], scores[order]
    ids = np.concatenate([np.empty(0, np.int64), *(part.ids for part in table.locate(rows))])
    chosen = np.lexsort((ids, -scores))[:k]
    return rows[chosen], scores[chosen], ids[chosen]


def _fetch(table: Table, rows: NDArray[np.int64], columns: list[str]) -> pa.Table:
    """Return columns of rows, in their order."""
    import pyarrow as pa

    if columns:
        return table.select(columns).take(rows)
    return pa.table({"": pa.nulls(len(rows))}).select([])


def _floats(numbers: NDArray[np.float64]) -> pa.Array:
    import pyarrow as pa

    return pa.Array.from_buffers(pa.float64(), len(numbers), [None, pa.py_buffer(np.ascontiguousarray(numbers))])
