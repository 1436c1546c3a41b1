"""Similarity of vectors: exact scores, and fast estimates with a bound on their error.

Exact scores are float64 sums in a fixed order, so every machine computes the same ones. Estimates are matrix products
in the precision of the vectors. They rule out most vectors, and never one whose exact score is high enough.
Implements "Scores" of docs/specs/search.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np

from warpdata.primitives.arrow_buffers import as_bools, as_numpy

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray

__all__ = [
    "MAX_LENGTH",
    "METRICS",
    "Metric",
    "TopScores",
    "VectorQuery",
    "find_usable",
    "squared_lengths",
    "vectors_of",
]

Metric: TypeAlias = Literal["cosine", "l2", "dot"]
METRICS: tuple[Metric, ...] = ("cosine", "l2", "dot")

MAX_LENGTH = 1e100
"""Longer vectors are not compared, so that no square overflows."""
_SAFE_SQUARES = (1e-20, 1e30)
"""Squared lengths for which float32 neither overflows nor loses small products."""
_SLACK = 4.0
_BLOCK_ELEMENTS = 1 << 18


def squared_lengths(vectors: NDArray[Any]) -> NDArray[np.float64]:
    """Return the squared length of each vector. Lengths that float32 cannot hold are computed in float64."""
    with np.errstate(over="ignore", invalid="ignore"):
        squares: NDArray[np.float64] = np.einsum("ij,ij->i", vectors, vectors).astype(np.float64)
        unsafe = np.flatnonzero(~((squares > _SAFE_SQUARES[0]) & (squares < _SAFE_SQUARES[1])))
        if len(unsafe) and vectors.dtype != np.float64:
            rare = vectors[unsafe].astype(np.float64)
            squares[unsafe] = np.einsum("ij,ij->i", rare, rare)
    return squares


def find_usable(squares: NDArray[np.float64], metric: Metric) -> NDArray[np.bool_]:
    """Return True for vectors that can be compared: finite, not too long, and for cosine not zero."""
    usable = squares <= MAX_LENGTH**2  # false for NaN
    return usable & (squares > 0) if metric == "cosine" else usable


class TopScores:
    """The rows with the `k` best scores so far, and all rows that tie with the last of them."""

    def __init__(self, k: int) -> None:
        self.k = k
        self.floor = -np.inf
        """A row with a lower score is not among the best."""
        self._parts: list[tuple[NDArray[np.int64], NDArray[np.float64]]] = []
        self._count = 0

    def add(self, rows: NDArray[np.int64], scores: NDArray[np.float64]) -> None:
        kept = np.flatnonzero(scores >= self.floor)
        if not len(kept):
            return
        self._parts.append((rows[kept], scores[kept]))
        self._count += len(kept)
        if self._count >= self.k:
            rows, scores = self._joined()
            self.floor = float(np.partition(scores, len(scores) - self.k)[len(scores) - self.k])
            kept = np.flatnonzero(scores >= self.floor)
            self._parts, self._count = [(rows[kept], scores[kept])], len(kept)

    def result(self) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Return rows and scores, in no order. There are more than `k` only if some tie."""
        return self._joined()

    def _joined(self) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        rows = np.concatenate([np.empty(0, np.int64), *(part[0] for part in self._parts)])
        return rows, np.concatenate([np.empty(0), *(part[1] for part in self._parts)])


@dataclass(frozen=True)
class VectorQuery:
    """A vector to compare others with. A higher score is better: cosine, dot product, or the negative distance."""

    vector: NDArray[np.float64]
    metric: Metric

    @property
    def length(self) -> float:
        return float(np.sqrt((self.vector * self.vector).sum()))

    def scores(self, vectors: NDArray[Any]) -> NDArray[np.float64]:
        """Return the exact scores of vectors that can be compared."""
        parts = [self._scores(np.ascontiguousarray(part, np.float64)) for _, part in _blocks(vectors)]
        return np.concatenate([np.empty(0), *parts])

    def _scores(self, vectors: NDArray[np.float64]) -> NDArray[np.float64]:
        if self.metric == "l2":
            distances: NDArray[np.float64] = np.sqrt(((vectors - self.vector) ** 2).sum(axis=1))
            return -distances
        products: NDArray[np.float64] = (vectors * self.vector).sum(axis=1)
        if self.metric == "dot":
            return products
        lengths = np.sqrt((vectors * vectors).sum(axis=1))
        cosines: NDArray[np.float64] = np.clip(products / (lengths * self.length), -1.0, 1.0)
        return cosines

    def search(self, rows: NDArray[np.int64], vectors: NDArray[Any], best: TopScores) -> int:
        """Add the best of these vectors, with the numbers of their rows. Return how many can be compared."""
        compared = 0
        for start, part in _blocks(vectors):
            squares = squared_lengths(part)
            usable = np.flatnonzero(find_usable(squares, self.metric))
            if len(usable) < len(part):
                part, squares = part[usable], squares[usable]  # noqa: PLW2901 - the rest is not compared
            compared += len(usable)
            found = self._candidates(part, squares, best)
            best.add(rows[start + usable[found]], self.scores(part[found]))
        return compared

    def _candidates(self, vectors: NDArray[Any], squares: NDArray[np.float64], best: TopScores) -> NDArray[np.int64]:
        """Return the positions of all vectors that may have one of the best scores."""
        if len(vectors) <= best.k:
            return np.arange(len(vectors))
        keys, slack = self._estimate(vectors, squares)
        floor = self._key(best.floor)
        if not np.isfinite(floor):
            safe = np.where(np.isfinite(slack), keys - slack, -np.inf)
            floor = float(np.partition(safe, len(safe) - best.k)[len(safe) - best.k])
        return np.flatnonzero(~(keys + slack < floor))

    def _key(self, score: float) -> float:
        return -score * score if self.metric == "l2" else score

    def _estimate(
        self, vectors: NDArray[Any], squares: NDArray[np.float64]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return estimates in the order of the scores, and bounds on their errors."""
        epsilon = float(np.finfo(vectors.dtype).eps)
        gamma = _SLACK * (vectors.shape[1] + 16) * epsilon
        with np.errstate(over="ignore", invalid="ignore", under="ignore"):
            products = (vectors @ self.vector.astype(vectors.dtype)).astype(np.float64)
            lengths = np.sqrt(squares)
            if self.metric == "l2":
                keys = 2 * products - squares - self.length**2
                slack = gamma * (lengths + self.length) ** 2
            else:
                keys = products / (lengths * self.length) if self.metric == "cosine" else products
                slack = np.full(len(keys), gamma) if self.metric == "cosine" else gamma * lengths * self.length
        low, high = _SAFE_SQUARES
        is_safe = (squares > low) & (squares < high) & (low < self.length**2 < high)
        return np.nan_to_num(keys), np.where(is_safe, slack, np.inf)


def vectors_of(lists: pa.FixedSizeListArray) -> tuple[NDArray[np.int64], NDArray[Any]]:
    """Return the vectors of fixed-size lists as float32 or float64, and their positions. Leaves out nulls.

    A list with a null element is left out too. Lists of half precision become float32.
    """
    size = lists.type.list_size
    values = lists.values.slice(lists.offset * size, len(lists) * size)
    is_complete = np.ones(len(lists), bool)
    if lists.null_count:
        is_complete &= as_bools(lists.is_valid())
    if values.null_count:
        is_complete &= as_bools(values.is_valid()).reshape(-1, size).all(axis=1)
        values = values.fill_null(0)
    vectors = as_numpy(values).reshape(-1, size)
    if vectors.dtype == np.float16:
        vectors = vectors.astype(np.float32)
    positions = np.flatnonzero(is_complete)
    return positions, vectors if len(positions) == len(vectors) else vectors[positions]


def _blocks(vectors: NDArray[Any]) -> Iterator[tuple[int, NDArray[Any]]]:
    """Yield parts that fit into the processor's caches, with the position of their first vector."""
    rows = max(_BLOCK_ELEMENTS // max(vectors.shape[1], 1), 1)
    for start in range(0, len(vectors), rows):
        yield start, vectors[start : start + rows]
