"""Training of a segment of vectors: its quantizer, the list of each vector, and how much a search has to read.

faiss clusters for `ivf` and `imi`; `lsh` needs no training. A sample of the vectors is searched exactly and by the
lists, which gives the numbers of lists and candidates that a search needs.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from warpdata.formats.search.similarity import Metric
from warpdata.formats.search.vector_quantizer import (
    CellQuantizer,
    ListQuantizer,
    Quantizer,
    ScalarCodes,
    SignQuantizer,
)
from warpdata.limits import MAX_IVF_LISTS
from warpdata.primitives.extras import require

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["BLOCK_ROWS", "Trained", "VectorOptions", "encode_codes", "train"]

BLOCK_ROWS = 8192
_SEED = 1234
_ITERATIONS = 10
_TRAINING_PER_LIST = 64
_SAMPLES, _NEIGHBOURS = 128, 10
_SELECTIVITIES = (1.0, 0.1, 0.01, 0.001)
_WANTED_RECALL = 0.985
_CELL_ROWS = 64
_BITS_PER_NUMBER, _MAX_BITS = 4, 512
_MIN_CANDIDATES = 40
_LEVELS = 256


@dataclass(frozen=True, slots=True)
class VectorOptions:
    """How to build a segment."""

    metric: Metric = "cosine"
    lists: int | None = None
    """The number of lists of `ivf`; None for about the square root of the number of vectors."""
    kind: str = "ivf"


@dataclass(frozen=True, slots=True)
class Trained:
    """What a build found out about its vectors."""

    quantizer: Quantizer
    lists: NDArray[np.int64]
    """The list of each vector."""
    probes: tuple[int, ...]
    candidates: int
    recall: float


def train(vectors: NDArray[np.float32], options: VectorOptions) -> Trained:
    """Train on vectors as codes and lists compare them: for cosine of length 1."""
    if options.kind == "lsh":
        quantizer, lists = _hash_signs(vectors)
    elif options.kind == "imi":
        quantizer, lists = _cluster_halves(vectors)
    else:
        quantizer, lists = _cluster(vectors, options)
    return _calibrate(vectors, options.metric, quantizer, lists)


def _cluster(vectors: NDArray[np.float32], options: VectorOptions) -> tuple[Quantizer, NDArray[np.int64]]:
    count, size = vectors.shape
    wanted = round(math.sqrt(count)) if options.lists is None else options.lists
    lists = min(max(wanted, 1), max(count, 1), MAX_IVF_LISTS)
    codes = _fit_codes(vectors)
    if count == 0:
        return ListQuantizer(np.zeros((1, size), np.float32), codes), np.empty(0, np.int64)
    is_cosine = options.metric == "cosine"
    centroids = _sort_near(_kmeans(vectors, lists, spherical=is_cosine))
    return ListQuantizer(centroids, codes), _nearest_centroids(vectors, centroids, is_product=is_cosine)


def _cluster_halves(vectors: NDArray[np.float32]) -> tuple[Quantizer, NDArray[np.int64]]:
    """Train the two quantizers of an inverted multi-index."""
    count, size = vectors.shape
    half = size // 2
    bits = min(max(round(math.log2(max(count / _CELL_ROWS, 1)) / 2), 0), 8)
    codes = _fit_codes(vectors)
    if count == 0:
        return CellQuantizer(np.zeros((1, size), np.float32), codes), np.empty(0, np.int64)
    faiss = require("faiss", purpose="Building an index of vectors", extra="vector")
    quantizer = faiss.MultiIndexQuantizer(size, 2, bits) if bits else None
    if quantizer is None:
        centroids = np.ascontiguousarray(vectors.mean(axis=0, keepdims=True), np.float32)
    else:
        quantizer.pq.cp.seed, quantizer.pq.cp.min_points_per_centroid = _SEED, 1
        quantizer.train(_training_sample(vectors, 1 << bits))
        trained = faiss.vector_to_array(quantizer.pq.centroids).reshape(2, 1 << bits, half)
        centroids = np.ascontiguousarray(np.concatenate([_sort_near(trained[0]), _sort_near(trained[1])], axis=1))
    lists = np.zeros(count, np.int64)
    for part in (slice(0, half), slice(half, size)):
        nearest = _nearest_centroids(vectors, np.ascontiguousarray(centroids[:, part]), columns=part)
        lists = lists * len(centroids) + nearest
    return CellQuantizer(centroids, codes), lists


def _hash_signs(vectors: NDArray[np.float32]) -> tuple[Quantizer, NDArray[np.int64]]:
    """Draw planes, and hash vectors by the sides that they are on."""
    count, size = vectors.shape
    bits = min(_BITS_PER_NUMBER * size + 7, _MAX_BITS) // 8 * 8
    list_bits = min(max(round(math.log2(max(count, 1)) / 2), 0), bits, 16)
    planes = np.random.default_rng(_SEED).standard_normal((bits, size)).astype(np.float32)
    quantizer = SignQuantizer(planes, list_bits)
    weights = 1 << np.arange(list_bits - 1, -1, -1)
    lists = np.zeros(count, np.int64)
    for part in _blocks(count):
        lists[part] = (vectors[part] @ planes[:list_bits].T > 0) @ weights
    return quantizer, lists


def encode_codes(quantizer: Quantizer, vectors: NDArray[np.float32]) -> NDArray[np.uint8]:
    """Return the codes of vectors."""
    if isinstance(quantizer, SignQuantizer):
        return np.packbits(vectors @ quantizer.planes.T > 0, axis=1)
    assert isinstance(quantizer, ListQuantizer | CellQuantizer)
    codes = quantizer.codes
    scaled = vectors - codes.minimum
    scaled /= np.where(codes.step > 0, codes.step, 1)
    np.clip(scaled, 0, _LEVELS - 1, out=scaled)
    return scaled.astype(np.uint8)


def _kmeans(vectors: NDArray[np.float32], lists: int, *, spherical: bool) -> NDArray[np.float32]:
    faiss = require("faiss", purpose="Building an index of vectors", extra="vector")
    kmeans = faiss.Kmeans(
        vectors.shape[1],
        lists,
        niter=_ITERATIONS,
        seed=_SEED,
        spherical=spherical,
        min_points_per_centroid=1,
        max_points_per_centroid=_TRAINING_PER_LIST,
    )
    kmeans.train(_training_sample(vectors, lists))
    return np.ascontiguousarray(kmeans.centroids, np.float32)


def _training_sample(vectors: NDArray[np.float32], lists: int) -> NDArray[np.float32]:
    chosen = np.random.default_rng(_SEED).permutation(len(vectors))[: lists * _TRAINING_PER_LIST]
    sample: NDArray[np.float32] = vectors[np.sort(chosen)]
    return sample


def _sort_near(centroids: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return centroids in an order in which neighbours are near, so that a search reads neighbouring lists."""
    parts, out = [np.arange(len(centroids))], []
    while parts:
        part = parts.pop()
        if len(part) <= 2:
            out += part.tolist()
            continue
        points = centroids[part]
        axis = points - points.mean(axis=0)
        direction = axis[int((axis * axis).sum(axis=1).argmax())]
        order = part[np.argsort(axis @ direction, kind="stable")]
        parts += [order[len(order) // 2 :], order[: len(order) // 2]]
    return np.ascontiguousarray(centroids[out])


def _nearest_centroids(
    vectors: NDArray[np.float32],
    centroids: NDArray[np.float32],
    *,
    is_product: bool = False,
    columns: slice = slice(None),
) -> NDArray[np.int64]:
    faiss = require("faiss", purpose="Building an index of vectors", extra="vector")
    index = (faiss.IndexFlatIP if is_product else faiss.IndexFlatL2)(centroids.shape[1])
    index.add(centroids)
    nearest = np.empty(len(vectors), np.int64)
    for part in _blocks(len(vectors)):
        nearest[part] = index.search(np.ascontiguousarray(vectors[part, columns]), 1)[1][:, 0]
    return nearest


def _blocks(count: int) -> Iterator[slice]:
    for start in range(0, count, BLOCK_ROWS):
        yield slice(start, min(start + BLOCK_ROWS, count))


def _fit_codes(vectors: NDArray[np.float32]) -> ScalarCodes:
    """Find the smallest number of each position, and the width of a code."""
    size = vectors.shape[1]
    if not len(vectors):
        return ScalarCodes(np.zeros(size, np.float32), np.zeros(size, np.float32))
    low, high = np.full(size, np.inf, np.float32), np.full(size, -np.inf, np.float32)
    for part in _blocks(len(vectors)):
        np.minimum(low, vectors[part].min(axis=0), out=low)
        np.maximum(high, vectors[part].max(axis=0), out=high)
    return ScalarCodes(low, ((high - low) / _LEVELS).astype(np.float32))


def _calibrate(vectors: NDArray[np.float32], metric: Metric, quantizer: Quantizer, lists: NDArray[np.int64]) -> Trained:
    """Find the lists that have enough of the best rows of samples, for each selectivity, and the part they have."""
    count = len(vectors)
    if not count:
        return Trained(quantizer, lists, (1,) * len(_SELECTIVITIES), _MIN_CANDIDATES, 1.0)
    shuffled = np.random.default_rng(_SEED + 1).permutation(count)
    samples = shuffled[-_SAMPLES:]
    queries = vectors[samples]
    keys = np.stack([quantizer.keys(query.astype(np.float64), is_distance=metric == "l2") for query in queries])
    probes, recall, candidates = [1], 1.0, _MIN_CANDIDATES
    for selectivity in _SELECTIVITIES:
        allowed = np.sort(shuffled[: math.ceil(count * selectivity)])
        found = allowed[_nearest_rows(vectors, allowed, samples, metric)]
        used = np.bincount(lists[allowed], minlength=quantizer.list_count) > 0
        ranks = np.argsort(np.argsort(-np.where(used, keys, -np.inf), axis=1, kind="stable"), axis=1)
        needed = np.sort(np.take_along_axis(ranks, lists[found], axis=1), axis=None) + 1
        position = min(math.ceil(_WANTED_RECALL * len(needed)), len(needed)) - 1
        probes.append(max(probes[-1], int(needed[position])))
        recall = min(recall, float((needed <= probes[-1]).mean()))
        if isinstance(quantizer, SignQuantizer):
            candidates = max(candidates, _needed_candidates(vectors, allowed, (samples, found), quantizer))
    return Trained(quantizer, lists, tuple(probes[1:]), candidates, recall)


def _nearest_rows(
    vectors: NDArray[np.float32], allowed: NDArray[np.int64], samples: NDArray[np.int64], metric: Metric
) -> NDArray[np.int64]:
    """Return the nearest of the allowed vectors for each sample but itself, by their places among these."""
    queries = vectors[samples]
    k = min(_NEIGHBOURS, max(len(allowed) - 1, 1))
    best = np.full((len(queries), k), -np.inf, np.float32)
    places = np.zeros((len(queries), k), np.int64)
    is_whole = len(allowed) == len(vectors)
    for part in _blocks(len(allowed)):
        block = vectors[part] if is_whole else vectors[allowed[part]]
        keys = queries @ block.T
        if metric == "l2":
            keys = 2 * keys - np.einsum("ij,ij->i", block, block)
        if len(allowed) > 1:
            keys[allowed[None, part] == samples[:, None]] = -np.inf
        worst = best.min(axis=1)
        for number in np.flatnonzero((keys > worst[:, None]).any(axis=1)).tolist():
            better = np.flatnonzero(keys[number] > worst[number])
            joined = np.concatenate([best[number], keys[number, better]])
            chosen = np.argpartition(-joined, k - 1)[:k]
            places[number] = np.concatenate([places[number], better + part.start])[chosen]
            best[number] = joined[chosen]
    return places


def _needed_candidates(
    vectors: NDArray[np.float32],
    allowed: NDArray[np.int64],
    best: tuple[NDArray[np.int64], NDArray[np.int64]],
    quantizer: SignQuantizer,
) -> int:
    """Return how many of the allowed members have to be compared, in the order of their codes.

    `best` are samples and the best rows of each, most of which must be among them.
    """
    samples, found = best
    better = np.zeros(found.shape, np.int64)
    weights = [quantizer.weigh(query.astype(np.float64)).weights for query in vectors[samples]]
    planes = np.stack(weights, axis=1)
    limits = np.stack([_bits(quantizer, vectors[rows]) @ planes[:, number] for number, rows in enumerate(found)])
    for part in _blocks(len(allowed)):
        keys = _bits(quantizer, vectors[allowed[part]]) @ planes
        for number in range(len(samples)):
            ordered = np.sort(keys[:, number])
            better[number] += len(ordered) - np.searchsorted(ordered, limits[number], side="right")
    needed = np.sort(better, axis=None) + 1
    return int(needed[min(math.ceil(_WANTED_RECALL * len(needed)), len(needed)) - 1])


def _bits(quantizer: SignQuantizer, vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    sides: NDArray[np.float32] = (vectors @ quantizer.planes.T > 0).astype(np.float32)
    return sides
