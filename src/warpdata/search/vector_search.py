"""Search of a column of vectors: by the segments of an index, and by a scan of the rows that none covers."""

from __future__ import annotations

from functools import partial

import numpy as np

from warpdata.formats.search import IvfSegment, ProbeCount, TopScores, VectorQuery
from warpdata.kinds.tables import Table
from warpdata.primitives.parallel import IO_POOL
from warpdata.repository.rows import RowSelection
from warpdata.search.hits import SearchPart
from warpdata.search.request import NearClause
from warpdata.search.search_index import OpenSegment, SearchIndex
from warpdata.search.vector_scan import scan_vectors

__all__ = ["search_vectors"]


def search_vectors(
    table: Table, selection: RowSelection, near: NearClause, best: TopScores, index: SearchIndex[IvfSegment] | None
) -> SearchPart:
    """Add the best of the selected rows, with exact scores. Without an index, all of them are compared."""
    if not best.k:
        return SearchPart(near.column, near.query.metric, None, 0, 0, 0)
    work: list[ProbeCount] = []
    recall = 1.0
    if index is not None:
        opened = list(index.segments)
        search = partial(_search_segment, index, selection, near.query, best.k)
        for each, answer in zip(opened, IO_POOL.map_all(search, opened), strict=True):
            if answer is not None:
                rows, scores, done = answer
                best.add(rows, scores)
                work.append(done)
                recall = recall if done.is_exact else min(recall, each.segment.head.recall)
    left = selection if index is None else index.uncovered(selection)
    compared = scan_vectors(table, left, near, best) if len(left) else 0
    return SearchPart(
        near.column,
        near.query.metric,
        index.name if index is not None and work else None,
        compared + sum(done.compared for done in work),
        len(left) - compared,
        len(left),
        sum(done.lists for done in work),
        recall,
    )


def _search_segment(
    index: SearchIndex[IvfSegment], selection: RowSelection, query: VectorQuery, k: int, opened: OpenSegment[IvfSegment]
) -> tuple[np.ndarray[tuple[int], np.dtype[np.int64]], np.ndarray[tuple[int], np.dtype[np.float64]], ProbeCount] | None:
    """Return the best rows of a segment by their numbers in the table. None if the segment is damaged."""
    best = TopScores(k)
    allowed = opened.rows.allowed(selection)
    done = index.guard(opened, lambda: opened.segment.search(query, allowed, best))
    if done is None:
        return None
    rows, scores = best.result()
    numbers = opened.rows.to_table(rows)
    assert bool((numbers >= 0).all()), "a segment returns only allowed rows"
    return numbers, scores, done
