"""Search of a column of texts: postings of the segments of an index, and of a scan of the rows that none covers.

Both give the same postings, so the ranking does not depend on the index.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from warpdata.formats.search import Corpus, Postings, TextQuery, TextSegment, TopScores
from warpdata.kinds.tables import Table
from warpdata.primitives.parallel import IO_POOL
from warpdata.repository.rows import RowSelection
from warpdata.search.hits import SearchPart
from warpdata.search.request import TextClause
from warpdata.search.search_index import OpenSegment, SearchIndex
from warpdata.search.text_scan import scan_texts

__all__ = ["search_texts"]


def search_texts(
    table: Table, selection: RowSelection, text: TextClause, best: TopScores, index: SearchIndex[TextSegment] | None
) -> SearchPart:
    """Add the best of the selected rows that have a word of the query."""
    whole = RowSelection.all_rows(table.entry.shards.row_count)
    parts: list[Corpus] = []
    if index is not None:
        read = partial(_read_segment, index, text.query)
        parts = [corpus for corpus in IO_POOL.map_all(read, list(index.segments)) if corpus is not None]
    used = bool(parts)
    left = whole if index is None else index.uncovered(whole)
    if len(left) or not parts:
        parts.append(scan_texts(table, left, text.column, text.query))
    corpus = _join(parts, text.query)
    rows, scores = text.query.scores(corpus)
    if len(selection) < len(whole):
        kept = np.flatnonzero(np.isin(rows, selection.numbers))
        rows, scores = rows[kept], scores[kept]
    if best.k:
        best.add(rows, scores)
    name = index.name if index is not None and used else None
    return SearchPart(text.column, "bm25", name, len(rows), len(whole) - corpus.text_count, len(left))


def _read_segment(index: SearchIndex[TextSegment], query: TextQuery, opened: OpenSegment[TextSegment]) -> Corpus | None:
    """Return the postings of a segment by rows of the table. None if the segment is damaged."""
    segment, rows = opened.segment, opened.rows
    words = [*query.words] if rows.is_whole else ["", *query.words]
    found = index.guard(opened, lambda: segment.postings(words))
    if found is None:
        return None
    if rows.is_whole:
        return Corpus(segment.text_count, segment.word_count, {word: _place(found[word], opened) for word in words})
    texts = _place(found[""], opened)
    postings = {word: _place(found[word], opened) for word in query.words}
    return Corpus(len(texts.rows), int(texts.lengths.sum()), postings)


def _place(found: Postings, opened: OpenSegment[TextSegment]) -> Postings:
    numbers = opened.rows.to_table(found.rows)
    kept = np.flatnonzero(numbers >= 0)
    return Postings(numbers[kept], found.counts[kept], found.lengths[kept])


def _join(parts: list[Corpus], query: TextQuery) -> Corpus:
    postings = {word: Postings.join([part.postings[word] for part in parts]) for word in query.words}
    return Corpus(sum(part.text_count for part in parts), sum(part.word_count for part in parts), postings)
