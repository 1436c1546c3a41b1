"""Build of an `ivf` segment: k-means, codes of one byte for each number, and the vectors list by list.

faiss clusters and assigns. A sample of the vectors is searched exactly and by the lists, which gives the number of
lists that a search needs. Implements "Vectors" of docs/specs/search.md.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from warpdata.errors import BadInputError, LimitExceededError
from warpdata.formats.search.ivf_head import IvfHead, encode_head
from warpdata.formats.search.similarity import Metric, find_usable, squared_lengths
from warpdata.limits import MAX_IVF_LISTS, MAX_SEGMENT_ROWS, MAX_VECTOR_SIZE
from warpdata.primitives.extras import require

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["IvfOptions", "write_ivf"]

_SEED = 1234
_ITERATIONS = 10
_TRAINING_PER_LIST = 64
_SAMPLES, _NEIGHBOURS = 128, 10
_SELECTIVITIES = (1.0, 0.1, 0.01)
_WANTED_RECALL = 0.985
_BLOCK_ROWS = 16_384
_MAX_LENGTH = 1e15
"""Longer vectors overflow float32 when they are squared and summed."""
_LEVELS = 256


@dataclass(frozen=True, slots=True)
class IvfOptions:
    """How to build a segment."""

    metric: Metric = "cosine"
    lists: int | None = None
    """The number of lists; None for about the square root of the number of vectors."""


def write_ivf(
    batches: Iterable[tuple[NDArray[np.int64], NDArray[Any]]], row_count: int, path: Path, options: IvfOptions
) -> None:
    """Write the segment of `row_count` rows, whose vectors come in batches with the rows that they belong to.

    Rows without a batch have no vector. Memory holds all vectors about twice.
    """

    if row_count > MAX_SEGMENT_ROWS:
        raise LimitExceededError(f"a segment of {row_count:,} rows is too large; the limit is {MAX_SEGMENT_ROWS:,}")
    rows, vectors = _collect(batches, options.metric)
    if vectors.shape[1] > MAX_VECTOR_SIZE:
        raise LimitExceededError(f"vectors of {vectors.shape[1]} numbers; the limit is {MAX_VECTOR_SIZE}")
    trained = _train(vectors, options)
    order = np.argsort(trained.lists, kind="stable")
    minimum, step = _fit_codes(vectors, options.metric)
    counts = np.bincount(trained.lists, minlength=len(trained.centroids)).astype(np.uint32)
    cuts = np.concatenate([[0], np.cumsum(counts, dtype=np.int64)])
    members = [order[start:stop] for start, stop in itertools.pairwise(cuts.tolist())]

    def codes(list_members: NDArray[np.int64]) -> bytes:
        scaled = (_comparable(vectors[list_members], options.metric) - minimum) / np.where(step > 0, step, 1)
        return np.clip(np.floor(scaled), 0, _LEVELS - 1).astype(np.uint8).tobytes()

    def exact(list_members: NDArray[np.int64]) -> bytes:
        return vectors[list_members].astype(vectors.dtype.newbyteorder("<")).tobytes()

    with path.open("wb") as file:
        code_sums, vector_sums = (_write_lists(file.write, members, encode) for encode in (codes, exact))
        head = IvfHead(
            metric=options.metric,
            element_bytes=vectors.dtype.itemsize,
            row_count=row_count,
            probes=trained.probes,
            recall=trained.recall,
            centroids=trained.centroids,
            minimum=minimum,
            step=step,
            counts=counts,
            code_sums=code_sums,
            vector_sums=vector_sums,
            rows=rows[order].astype(np.uint32),
        )
        file.write(encode_head(head))


def _write_lists(
    write: Callable[[bytes], object], members: list[NDArray[np.int64]], encode: Callable[[NDArray[np.int64]], bytes]
) -> NDArray[np.uint64]:
    """Write the bytes of each list, and return their checksums."""
    import xxhash

    sums = np.zeros(len(members), np.uint64)
    for number, each in enumerate(members):
        data = encode(each)
        sums[number] = xxhash.xxh3_64_intdigest(data)
        write(data)
    return sums


def _collect(
    batches: Iterable[tuple[NDArray[np.int64], NDArray[Any]]], metric: Metric
) -> tuple[NDArray[np.int64], NDArray[Any]]:
    """Return the rows and vectors that can be compared."""
    rows, parts = [np.empty(0, np.int64)], []
    for numbers, vectors in batches:
        squares = squared_lengths(vectors)
        usable = find_usable(squares, metric)
        if metric != "cosine" and bool((squares[usable] > _MAX_LENGTH**2).any()):
            raise BadInputError(
                f"a vector of row {numbers[usable][int(squares[usable].argmax())]} is longer than {_MAX_LENGTH:g}, "
                "which an index cannot hold",
                hint="Normalise the vectors, or search without an index.",
            )
        rows.append(numbers[usable])
        parts.append(vectors[usable])
    if not parts:
        return rows[0], np.empty((0, 1), np.float32)
    return np.concatenate(rows), np.concatenate(parts)


def _comparable(vectors: NDArray[Any], metric: Metric) -> NDArray[np.float32]:
    """Return vectors as codes and lists compare them: for cosine of length 1."""
    if metric != "cosine":
        return vectors.astype(np.float32)
    lengths = np.sqrt(squared_lengths(vectors))[:, None]
    return (vectors / lengths).astype(np.float32)


def _blocks(vectors: NDArray[Any]) -> Iterator[slice]:
    for start in range(0, len(vectors), _BLOCK_ROWS):
        yield slice(start, start + _BLOCK_ROWS)


@dataclass(frozen=True, slots=True)
class _Trained:
    centroids: NDArray[np.float32]
    lists: NDArray[np.int64]
    """The list of each vector."""
    probes: tuple[int, ...]
    recall: float


def _train(vectors: NDArray[Any], options: IvfOptions) -> _Trained:
    count, size = vectors.shape
    wanted = round(math.sqrt(count)) if options.lists is None else options.lists
    lists = min(max(wanted, 1), max(count, 1), MAX_IVF_LISTS)
    if count == 0:
        return _Trained(np.zeros((1, size), np.float32), np.empty(0, np.int64), (1, 1, 1), 1.0)
    faiss = require("faiss", purpose="Building an index of vectors", extra="vector")
    random = np.random.default_rng(_SEED)
    chosen = np.sort(random.permutation(count)[: lists * _TRAINING_PER_LIST])
    sample = _comparable(vectors[chosen], options.metric)
    is_cosine = options.metric == "cosine"
    kmeans = faiss.Kmeans(
        size,
        lists,
        niter=_ITERATIONS,
        seed=_SEED,
        spherical=is_cosine,
        min_points_per_centroid=1,
        max_points_per_centroid=_TRAINING_PER_LIST,
    )
    kmeans.train(sample)
    centroids: NDArray[np.float32] = np.ascontiguousarray(kmeans.centroids, np.float32)
    quantizer = faiss.IndexFlatIP(size) if is_cosine else faiss.IndexFlatL2(size)
    quantizer.add(centroids)
    assigned = np.empty(count, np.int64)
    for part in _blocks(vectors):
        assigned[part] = quantizer.search(_comparable(vectors[part], options.metric), 1)[1][:, 0]
    probes, recall = _calibrate(vectors, options.metric, centroids, assigned)
    return _Trained(centroids, assigned, probes, recall)


def _calibrate(
    vectors: NDArray[Any], metric: Metric, centroids: NDArray[np.float32], assigned: NDArray[np.int64]
) -> tuple[tuple[int, ...], float]:
    """Return the lists that have enough of the best rows of samples, for each selectivity, and the part they have."""
    random = np.random.default_rng(_SEED + 1)
    shuffled = random.permutation(len(vectors))
    queries = _comparable(vectors[shuffled[:_SAMPLES]], metric)
    keys = queries @ centroids.T
    if metric == "l2":
        keys = 2 * keys - np.einsum("ij,ij->i", centroids, centroids)
    ranks = np.argsort(np.argsort(-keys, axis=1, kind="stable"), axis=1)
    probes, recall = [1], 1.0
    for selectivity in _SELECTIVITIES:
        allowed = np.sort(shuffled[: math.ceil(len(vectors) * selectivity)])
        found = allowed[_nearest_rows(vectors, allowed, queries, metric)]
        needed = np.sort(np.take_along_axis(ranks, assigned[found], axis=1), axis=None) + 1
        position = min(math.ceil(_WANTED_RECALL * len(needed)), len(needed)) - 1
        probes.append(max(probes[-1], int(needed[position])))
        recall = min(recall, float((needed <= probes[-1]).mean()))
    return tuple(probes[1:]), recall


def _nearest_rows(
    vectors: NDArray[Any], allowed: NDArray[np.int64], queries: NDArray[np.float32], metric: Metric
) -> NDArray[np.int64]:
    """Return the nearest of the allowed vectors for each query, by their places among these."""
    k = min(_NEIGHBOURS, len(allowed))
    best = np.full((len(queries), k), -np.inf, np.float32)
    positions = np.zeros((len(queries), k), np.int64)
    for part in _blocks(allowed):
        block = _comparable(vectors[allowed[part]], metric)
        keys = queries @ block.T
        if metric == "l2":
            keys = 2 * keys - np.einsum("ij,ij->i", block, block)
        joined = np.concatenate([best, keys], axis=1)
        order = np.argpartition(-joined, k - 1, axis=1)[:, :k]
        numbers = np.broadcast_to(np.arange(part.start, part.start + len(block)), keys.shape)
        positions = np.take_along_axis(np.concatenate([positions, numbers], axis=1), order, axis=1)
        best = np.take_along_axis(joined, order, axis=1)
    return positions


def _fit_codes(vectors: NDArray[Any], metric: Metric) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Return the smallest number of each position, and the width of a code."""
    size = vectors.shape[1]
    low, high = np.full(size, np.inf, np.float32), np.full(size, -np.inf, np.float32)
    for part in _blocks(vectors):
        block = _comparable(vectors[part], metric)
        low, high = np.minimum(low, block.min(axis=0)), np.maximum(high, block.max(axis=0))
    if not len(vectors):
        return np.zeros(size, np.float32), np.zeros(size, np.float32)
    return low, ((high - low) / _LEVELS).astype(np.float32)
