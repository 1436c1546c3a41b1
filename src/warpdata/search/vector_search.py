"""Search of a column of vectors: by the segments of an index, and by a scan of the rows that none covers."""

from __future__ import annotations

from functools import partial

import numpy as np

from warpdata.formats.search import ProbeCount, Subset, TopScores, VectorQuery, VectorSegment
from warpdata.kinds.tables import Table
from warpdata.primitives.parallel import IO_POOL
from warpdata.search.hits import SearchPart
from warpdata.search.request import NearClause
from warpdata.search.search_index import OpenSegment, SearchIndex
from warpdata.search.search_memory import SelectedRows
from warpdata.search.vector_scan import scan_vectors

__all__ = ["search_vectors"]


def search_vectors(
    table: Table, selected: SelectedRows, near: NearClause, best: TopScores, index: SearchIndex[VectorSegment] | None
) -> SearchPart:
    """Add the best of the selected rows, with exact scores. Without an index, all of them are compared."""
    if not best.k:
        return SearchPart(near.column, near.query.metric, None, 0, 0, 0)
    selection = selected.selection
    work: list[ProbeCount] = []
    recall = 1.0
    if index is not None:
        opened = list(index.segments)
        search = partial(_search_segment, index, selected, near.query, best.k)
        for answer in IO_POOL.map_all(search, opened):
            if answer is not None:
                rows, scores, done = answer
                best.add(rows, scores)
                work.append(done)
                recall = min(recall, done.recall)
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
    index: SearchIndex[VectorSegment],
    selected: SelectedRows,
    query: VectorQuery,
    k: int,
    opened: OpenSegment[VectorSegment],
) -> tuple[np.ndarray[tuple[int], np.dtype[np.int64]], np.ndarray[tuple[int], np.dtype[np.float64]], ProbeCount] | None:
    """Return the best rows of a segment by their numbers in the table. None if the segment is damaged."""
    best = TopScores(k)

    def search() -> ProbeCount:
        return opened.segment.search(query, _find_subset(index, selected, opened), best)

    done = index.guard(opened, search)
    if done is None:
        return None
    rows, scores = best.result()
    numbers = opened.rows.to_table(rows)
    assert bool((numbers >= 0).all()), "a segment returns only allowed rows"
    return numbers, scores, done


def _find_subset(
    index: SearchIndex[VectorSegment], selected: SelectedRows, opened: OpenSegment[VectorSegment]
) -> Subset | None:
    """Return the members of a segment that are selected; None if all are. Kept in memory for later searches."""

    def find() -> Subset | bool:
        allowed = opened.rows.allowed(selected.selection)
        return True if allowed is None else opened.segment.subset(allowed)

    if selected.number is None and opened.rows.is_whole:
        return None
    key = ("subset", opened.rows.number, selected.number)
    found = index.memory.get_or_create(key, find, lambda made: 64 if made is True else made.size_bytes)
    return None if found is True else found
