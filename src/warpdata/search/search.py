"""Searches of one table: the rows that a filter keeps, compared with a vector or a text, best first.

Rows with equal scores are in the order of their sample ids, so that an answer does not depend on how rows are stored.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from warpdata.formats.indexes import TopScores
from warpdata.kinds.tables import Table
from warpdata.primitives.arrow_buffers import as_arrow
from warpdata.repository.rows import RowSelection
from warpdata.search.hits import Hits, SearchExplanation, SearchPart
from warpdata.search.request import ID_COLUMN, SCORE_COLUMN, NearClause, TextClause
from warpdata.search.text_scan import scan_texts
from warpdata.search.vector_scan import scan_vectors
from warpdata.storage import IOStats

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray

__all__ = ["SearchRequest", "search_table"]


_Scored: TypeAlias = "tuple[NDArray[np.int64], NDArray[np.float64]]"
"""Rows and scores, in no order."""

_RANK_OFFSET = 60
_MIN_RANKS, _RANKS_PER_HIT = 100, 4


@dataclass(frozen=True)
class SearchRequest:
    """A checked search, by a vector, by words or by both."""

    near: NearClause | None
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


def search_table(table: Table, request: SearchRequest, io_stats: Callable[[], IOStats]) -> Hits:
    """Search the rows that the filters of the table keep."""
    before = io_stats()
    selection = table.select_rows()
    found: list[tuple[_Scored, SearchPart]] = []
    if request.near is not None:
        found.append(_search_vectors(table, selection, request.near, request.ranks))
    if request.text is not None:
        found.append(_search_texts(table, selection, request.text, request.ranks))
    ranked = [_rank(table, *scored, request.ranks) for scored, _ in found]
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


def _search_vectors(table: Table, selection: RowSelection, near: NearClause, k: int) -> tuple[_Scored, SearchPart]:
    best = TopScores(k)
    scanned = len(selection) if k else 0
    compared = scan_vectors(table, selection, near, best) if k else 0
    part = SearchPart(near.column, near.query.metric, None, compared, scanned - compared, scanned)
    return best.result(), part


def _search_texts(table: Table, selection: RowSelection, text: TextClause, k: int) -> tuple[_Scored, SearchPart]:
    whole = RowSelection.all_rows(table.entry.shards.row_count)
    corpus = scan_texts(table, whole, text.column, text.query)
    rows, scores = text.query.scores(corpus)
    kept = np.flatnonzero(np.isin(rows, selection.numbers)) if len(selection) < len(whole) else slice(None)
    rows, scores = rows[kept], scores[kept]
    best = TopScores(k)
    if k:
        best.add(rows, scores)
    part = SearchPart(text.column, "bm25", None, len(rows), len(whole) - corpus.text_count, len(whole))
    return best.result(), part


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
