"""Searches of one table: the rows that a filter keeps, compared with a vector or a text, best first.

Rows with equal scores are in the order of their sample ids, so that an answer does not depend on how rows are stored.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from warpdata.formats.search import TopScores, VectorSegment
from warpdata.kinds.tables import Table
from warpdata.primitives.arrow_buffers import as_arrow
from warpdata.search.hits import Hits, SearchExplanation, SearchPart
from warpdata.search.image_search import ImageClause, search_images
from warpdata.search.request import ID_COLUMN, SCORE_COLUMN, NearClause, TextClause
from warpdata.search.search_index import SearchIndex, SearchIndexes
from warpdata.search.text_search import search_texts
from warpdata.search.vector_search import search_vectors
from warpdata.storage import IOStats

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray

__all__ = ["SearchRequest", "search_table"]


_RANK_OFFSET = 60
_MIN_RANKS, _RANKS_PER_HIT = 100, 4


@dataclass(frozen=True)
class SearchRequest:
    """A checked search, by a vector or an image, by words or by both."""

    near: NearClause | ImageClause | None
    text: TextClause | None
    k: int
    columns: list[str]
    exact: bool = False

    @property
    def ranks(self) -> int:
        """The rows that each part must find. Two parts find more than `k`, for the ranks of the other's rows."""
        return (
            self.k if self.near is None or self.text is None or not self.k else max(_MIN_RANKS, _RANKS_PER_HIT * self.k)
        )


def search_table(table: Table, request: SearchRequest, indexes: SearchIndexes, io_stats: Callable[[], IOStats]) -> Hits:
    """Search the rows that the filters of the table keep."""
    before = io_stats()
    vectors: SearchIndex[VectorSegment] | None = None
    if isinstance(request.near, NearClause) and not request.exact:
        selected, vectors = indexes.prepare(table, request.near.column, request.near.query.metric)
    else:
        selected = indexes.select(table)
    selection = selected.selection
    found: list[tuple[TopScores, SearchPart]] = []
    if isinstance(near := request.near, ImageClause):
        best = TopScores(request.ranks)
        found.append((best, search_images(table, selection, near, best)))
    elif near is not None:
        best = TopScores(request.ranks)
        found.append((best, search_vectors(table, selected, near, best, vectors)))
    if (text := request.text) is not None:
        best = TopScores(request.ranks)
        found.append((best, search_texts(table, selection, text, best, indexes.texts(table, text.column))))
    ranked = [_rank(table, *best.result(), request.ranks) for best, _ in found]
    rows, scores, ids = ranked[0] if len(ranked) == 1 else _fuse(ranked, request.k)
    answer = _fetch(table, rows, request.columns)
    answer = answer.append_column(SCORE_COLUMN, [_floats(scores)]).append_column(ID_COLUMN, [as_arrow(ids)])
    spent = io_stats().since(before)
    parts = tuple(part for _, part in found)
    whole = table.entry.shards.row_count
    explanation = SearchExplanation(
        table.name, table.filter_text, whole, len(selection), parts, spent.requests, spent.bytes_fetched
    )
    return Hits(answer, rows, explanation)


def _fuse(
    ranked: Sequence[tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.int64]]], k: int
) -> tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.int64]]:
    """Return the best rows by the sum of their reciprocal ranks. Ties go to the lower sample id."""
    rows, first = np.unique(np.concatenate([part[0] for part in ranked]), return_index=True)
    ids = np.concatenate([part[2] for part in ranked])[first]
    scores = np.zeros(len(rows))
    for part in ranked:
        scores[np.searchsorted(rows, part[0])] += 1 / (_RANK_OFFSET + 1 + np.arange(len(part[0])))
    chosen = np.lexsort((ids, -scores))[:k]
    return rows[chosen], scores[chosen], ids[chosen]


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
