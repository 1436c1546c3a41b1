"""Pairs of rows that are nearly equal: by vectors, or for images without vectors by a hash of their appearance.

Every pair is compared, in blocks: the time grows with the square of the rows, and memory with the pairs that are found.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from warpdata.errors import BadInputError, ColumnNotFoundError, LimitExceededError, SchemaMismatchError
from warpdata.formats.search import Metric, VectorQuery, find_usable, squared_lengths
from warpdata.kinds.tables import Table, iter_vectors
from warpdata.primitives.arrow_buffers import as_arrow
from warpdata.search.image_search import HASH_BITS, image_hash, is_image
from warpdata.search.request import check_metric, is_vector

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray

__all__ = ["find_duplicates"]

_BLOCK_ROWS = 2048
_MAX_PAIRS = 5_000_000

_Pairs = tuple["NDArray[np.int64]", "NDArray[np.int64]", "NDArray[np.float64]"]


def find_duplicates(table: Table, column: str, threshold: float, metric: str) -> pa.Table:
    """Return the pairs of selected rows whose score is at least the threshold, the most similar first.

    A column of vectors is compared by the metric. Images are compared by the share of equal bits of their hashes.
    """
    schema = table.schema()
    if column not in schema.names:
        raise ColumnNotFoundError(f"there is no column {column!r}")
    if is_vector(schema.field(column).type):
        rows, pairs = _vector_pairs(table, column, threshold, check_metric(metric))
    elif is_image(schema, column):
        rows, pairs = _image_pairs(table, column, threshold)
    else:
        raise SchemaMismatchError(
            f"column {column!r} is {schema.field(column).type}, and has neither vectors nor images",
            hint="Compute vectors with Dataset.embed.",
        )
    return _as_table(table, rows, pairs)


def _vector_pairs(table: Table, column: str, threshold: float, metric: Metric) -> tuple[NDArray[np.int64], _Pairs]:
    if metric == "cosine" and not -1 <= threshold <= 1:
        raise BadInputError(f"threshold={threshold} is no cosine", hint="Pass a number from -1 to 1, such as 0.97.")
    rows, vectors = _usable_vectors(table, column, metric)
    squares = squared_lengths(vectors)
    estimates = vectors / np.sqrt(squares)[:, None].astype(vectors.dtype) if metric == "cosine" else vectors
    gamma = 8.0 * (vectors.shape[1] + 16) * float(np.finfo(vectors.dtype).eps)
    lengths = np.ones(len(rows)) if metric == "cosine" else np.sqrt(squares)

    def candidates(one: slice, two: slice) -> NDArray[np.bool_]:
        with np.errstate(over="ignore", invalid="ignore"):
            products = (estimates[one] @ estimates[two].T).astype(np.float64)
            if metric == "l2":
                keys = 2 * products - squares[one, None] - squares[None, two]
                slack = gamma * (lengths[one, None] + lengths[None, two]) ** 2
                return np.asarray(~(keys + slack < -(min(threshold, 0.0) ** 2)))
            return np.asarray(~(products + gamma * lengths[one, None] * lengths[None, two] < threshold))

    def scores(left: NDArray[np.int64], right: NDArray[np.int64]) -> NDArray[np.float64]:
        found = np.empty(len(left))
        for number in np.unique(left):
            part = np.flatnonzero(left == number)
            query = VectorQuery(vectors[number].astype(np.float64), metric)
            found[part] = query.scores(vectors[right[part]])
        return found

    return rows, _collect(len(rows), candidates, scores, threshold)


def _usable_vectors(table: Table, column: str, metric: Metric) -> tuple[NDArray[np.int64], NDArray[Any]]:
    rows, parts = [np.empty(0, np.int64)], []
    for numbers, vectors in iter_vectors(table, table.select_rows(), column):
        usable = find_usable(squared_lengths(vectors), metric)
        rows.append(numbers[usable])
        parts.append(vectors[usable])
    return np.concatenate(rows), np.concatenate(parts) if parts else np.empty((0, 1), np.float32)


def _image_pairs(table: Table, column: str, threshold: float) -> tuple[NDArray[np.int64], _Pairs]:
    if not 0 <= threshold <= 1:
        raise BadInputError(f"threshold={threshold} is no share of equal bits", hint="Pass a number from 0 to 1.")
    numbers = table.select_rows().numbers
    hashes, kept = [], []
    for batch in table.select([column]).batches(256):
        for reference in batch.column(0).to_pylist():
            kept.append(reference is not None)
            if reference is not None:
                hashes.append(image_hash(reference))
    values = np.array(hashes, np.uint64)

    def differences(one: NDArray[np.uint64], two: NDArray[np.uint64]) -> NDArray[np.float64]:
        return np.asarray(1 - np.bitwise_count(one ^ two) / HASH_BITS)

    def candidates(one: slice, two: slice) -> NDArray[np.bool_]:
        return differences(values[one, None], values[None, two]) >= threshold

    def scores(left: NDArray[np.int64], right: NDArray[np.int64]) -> NDArray[np.float64]:
        return differences(values[left], values[right])

    return numbers[np.array(kept, bool)], _collect(len(values), candidates, scores, threshold)


def _collect(
    count: int,
    candidates: Callable[[slice, slice], NDArray[np.bool_]],
    scores: Callable[[NDArray[np.int64], NDArray[np.int64]], NDArray[np.float64]],
    threshold: float,
) -> _Pairs:
    """Compare all pairs in blocks, and keep those whose exact score is high enough."""
    found: list[_Pairs] = []
    total = 0
    for one, two in _block_pairs(count):
        left, right = np.nonzero(candidates(one, two))
        left, right = left + one.start, right + two.start
        ordered = left < right
        left, right = left[ordered], right[ordered]
        if not len(left):
            continue
        exact = scores(left, right)
        kept = exact >= threshold
        found.append((left[kept], right[kept], exact[kept]))
        total += int(kept.sum())
        if total > _MAX_PAIRS:
            raise LimitExceededError(
                f"more than {_MAX_PAIRS:,} pairs have a score of at least {threshold}", hint="Raise the threshold."
            )
    empty = (np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0))
    left, right, exact = (np.concatenate(parts) for parts in zip(empty, *found, strict=True))
    return left, right, exact


def _block_pairs(count: int) -> Iterator[tuple[slice, slice]]:
    starts = range(0, count, _BLOCK_ROWS)
    for one in starts:
        for two in starts[one // _BLOCK_ROWS :]:
            yield slice(one, one + _BLOCK_ROWS), slice(two, two + _BLOCK_ROWS)


def _as_table(table: Table, rows: NDArray[np.int64], pairs: _Pairs) -> pa.Table:
    """Return the pairs by sample id, the lower one first: by score, then by ids."""
    import pyarrow as pa

    ids = np.concatenate([np.empty(0, np.int64), *(part.ids for part in table.locate(rows))])
    left, right, scores = ids[pairs[0]], ids[pairs[1]], pairs[2]
    low, high = np.minimum(left, right), np.maximum(left, right)
    order = np.lexsort((high, low, -scores))
    columns = {"_id": as_arrow(low[order]), "_duplicate": as_arrow(high[order]), "_score": pa.array(scores[order])}
    return pa.table(columns)
