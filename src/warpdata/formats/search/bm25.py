"""Words of texts, and BM25 scores from their postings. Pure.

Implements "Words" and "BM25" of docs/specs/search.md.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Corpus", "Postings", "TextQuery", "split_words"]

_WORD = re.compile(r"[^\W_]+")
_K1, _B = 1.2, 0.75


def split_words(text: str) -> list[str]:
    """Return the words of a text: runs of letters and digits, in compatibility form and without case."""
    if not text.isascii():
        text = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())
    return _WORD.findall(text.casefold())


@dataclass(frozen=True, eq=False)
class Postings:
    """The rows with a word: ascending, with the count of the word and the number of words in each."""

    rows: NDArray[np.int64]
    counts: NDArray[np.int64]
    lengths: NDArray[np.int64]

    @staticmethod
    def join(parts: Sequence[Postings]) -> Postings:
        """Return postings of disjoint rows as one, ascending."""
        rows = np.concatenate([np.empty(0, np.int64), *(part.rows for part in parts)])
        counts = np.concatenate([np.empty(0, np.int64), *(part.counts for part in parts)])
        lengths = np.concatenate([np.empty(0, np.int64), *(part.lengths for part in parts)])
        order = np.argsort(rows, kind="stable")
        return Postings(rows[order], counts[order], lengths[order])


@dataclass(frozen=True)
class Corpus:
    """All texts that are not null, also those that a filter leaves out, and the postings of some words."""

    text_count: int
    word_count: int
    postings: Mapping[str, Postings]


@dataclass(frozen=True)
class TextQuery:
    """The words to look for, each with its weight: how often the query has it."""

    words: Mapping[str, int]

    @staticmethod
    def parse(text: str) -> TextQuery:
        return TextQuery(dict(sorted(Counter(split_words(text)).items())))

    def scores(self, corpus: Corpus) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Return every row with a word of the query, ascending, and its score.

        Words are added in the order of their code points, so that every machine rounds alike.
        """
        rows = np.unique(np.concatenate([np.empty(0, np.int64), *(corpus.postings[word].rows for word in self.words)]))
        scores = np.zeros(len(rows))
        mean = corpus.word_count / max(corpus.text_count, 1)
        for word, weight in self.words.items():
            found = corpus.postings[word]
            rarity = np.log1p((corpus.text_count - len(found.rows) + 0.5) / (len(found.rows) + 0.5))
            norms = _K1 * (1 - _B + _B * found.lengths / mean) if mean else np.full(len(found.rows), _K1)
            gains = weight * rarity * found.counts * (_K1 + 1) / (found.counts + norms)
            scores[np.searchsorted(rows, found.rows)] += gains
        return rows, scores
