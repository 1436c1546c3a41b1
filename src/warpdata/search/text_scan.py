"""Search of a column of texts without an index: every text is read and split into words."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from warpdata.formats.search import Corpus, Postings, TextQuery, split_words
from warpdata.kinds.tables import Table
from warpdata.repository.rows import RowSelection

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["iter_texts", "scan_texts"]


def scan_texts(table: Table, selection: RowSelection, column: str, query: TextQuery) -> Corpus:
    """Return the postings of the words of a query among the selected rows."""
    found: dict[str, list[tuple[int, int, int]]] = {word: [] for word in query.words}
    text_count = word_count = 0
    for rows, texts in iter_texts(table, selection, column):
        for row, text in zip(rows.tolist(), texts, strict=True):
            if text is None:
                continue
            words = split_words(text)
            text_count += 1
            word_count += len(words)
            for word in query.words.keys() & words:
                found[word].append((row, words.count(word), len(words)))
    postings = {word: Postings(*np.array(rows, np.int64).reshape(-1, 3).T) for word, rows in found.items()}
    return Corpus(text_count, word_count, postings)


def iter_texts(
    table: Table, selection: RowSelection, column: str
) -> Iterator[tuple[NDArray[np.int64], list[str | None]]]:
    """Yield the texts of the selected rows with the numbers of the rows. Reads ahead."""
    start = 0
    for part in replace(table.raw(), rows=selection, filters=()).select(column).row_groups():
        yield selection.slice(start, start + part.num_rows).numbers, part.column(0).to_pylist()
        start += part.num_rows
