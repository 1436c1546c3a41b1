"""Build of a segment of vectors: training, then codes, vectors and rows, list by list.

Implements "Vectors" of docs/specs/search.md.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np

from warpdata.errors import BadInputError, LimitExceededError
from warpdata.formats.search.similarity import Metric, find_usable, squared_lengths
from warpdata.formats.search.vector_head import Section, VectorHead, encode_head, make_sections
from warpdata.formats.search.vector_training import BLOCK_ROWS, VectorOptions, encode_codes, train
from warpdata.limits import MAX_SEGMENT_ROWS, MAX_VECTOR_SIZE

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["write_vectors"]

_MAX_LENGTH = 1e15
"""Longer vectors overflow float32 when they are squared and summed."""


def write_vectors(
    batches: Iterable[tuple[NDArray[np.int64], NDArray[Any]]], row_count: int, path: Path, options: VectorOptions
) -> None:
    """Write the segment of `row_count` rows, whose vectors come in batches with the rows that they belong to.

    Rows without a batch have no vector. Memory holds all vectors about twice.
    """
    if row_count > MAX_SEGMENT_ROWS:
        raise LimitExceededError(f"a segment of {row_count:,} rows is too large; the limit is {MAX_SEGMENT_ROWS:,}")
    rows, vectors, lengths = _collect(batches, options.metric)
    if vectors.shape[1] > MAX_VECTOR_SIZE:
        raise LimitExceededError(f"vectors of {vectors.shape[1]} numbers; the limit is {MAX_VECTOR_SIZE}")
    compared = _comparable(vectors, lengths, options.metric)
    trained = train(compared, options)
    order = np.argsort(trained.lists, kind="stable")
    width = encode_codes(trained.quantizer, np.zeros((1, vectors.shape[1]), np.float32)).shape[1]
    codes, exact, numbers = make_sections(len(vectors), width, vectors.shape[1] * vectors.dtype.itemsize)

    def code_bytes(members: NDArray[np.int64]) -> bytes:
        return encode_codes(trained.quantizer, compared[members]).tobytes()

    def vector_bytes(members: NDArray[np.int64]) -> bytes:
        return vectors[members].astype(vectors.dtype.newbyteorder("<"), copy=False).tobytes()

    def row_bytes(members: NDArray[np.int64]) -> bytes:
        return rows[members].astype("<u4").tobytes()

    with path.open("wb") as file:
        _write_section(file, codes, order, code_bytes)
        _write_section(file, exact, order, vector_bytes)
        _write_section(file, numbers, order, row_bytes)
        counts = np.bincount(trained.lists, minlength=trained.quantizer.list_count).astype(np.uint32)
        head = VectorHead(
            options.kind, options.metric, vectors.shape[1], vectors.dtype.itemsize, row_count, trained.probes,
            trained.candidates, trained.recall, trained.quantizer, counts, codes, exact, numbers,
        )  # fmt: skip
        file.write(encode_head(head))


def _write_section(
    file: BinaryIO, section: Section, order: NDArray[np.int64], encode: Callable[[NDArray[np.int64]], bytes]
) -> None:
    """Write the items of the members, and note the checksum of each block."""
    import xxhash

    starts = section.starts
    per_call = max(BLOCK_ROWS // max(int(starts[1] - starts[0]), 1), 1) if section.block_count else 1
    for first in range(0, section.block_count, per_call):
        last = min(first + per_call, section.block_count)
        data = memoryview(encode(order[starts[first] : starts[last]]))
        for block, (start, stop) in enumerate(itertools.pairwise((starts[first : last + 1] - starts[first]).tolist())):
            part = data[start * section.width : stop * section.width]
            section.sums[first + block] = xxhash.xxh3_64_intdigest(part)
        file.write(data)


def _collect(
    batches: Iterable[tuple[NDArray[np.int64], NDArray[Any]]], metric: Metric
) -> tuple[NDArray[np.int64], NDArray[Any], NDArray[np.float64]]:
    """Return the rows and vectors that can be compared, and the squares of their lengths."""
    rows, parts, lengths = [np.empty(0, np.int64)], [], [np.empty(0)]
    for numbers, vectors in batches:
        squares = squared_lengths(vectors)
        usable = find_usable(squares, metric)
        if metric != "cosine" and bool((squares[usable] > _MAX_LENGTH**2).any()):
            raise BadInputError(
                f"a vector of row {numbers[usable][int(squares[usable].argmax())]} is longer than {_MAX_LENGTH:g}, "
                "which an index cannot hold",
                hint="Normalise the vectors, or search without an index.",
            )
        is_whole = bool(usable.all())
        rows.append(numbers if is_whole else numbers[usable])
        parts.append(vectors if is_whole else vectors[usable])
        lengths.append(squares if is_whole else squares[usable])
    if not parts:
        return rows[0], np.empty((0, 2), np.float32), lengths[0]  # a size that every kind takes
    return np.concatenate(rows), np.concatenate(parts), np.concatenate(lengths)


def _comparable(vectors: NDArray[Any], squares: NDArray[np.float64], metric: Metric) -> NDArray[np.float32]:
    """Return vectors as codes and lists compare them: for cosine of length 1."""
    if metric != "cosine":
        return vectors.astype(np.float32, copy=False)
    compared = np.empty(vectors.shape, np.float32)
    for start in range(0, len(vectors), BLOCK_ROWS):
        part = slice(start, start + BLOCK_ROWS)
        np.divide(vectors[part], np.sqrt(squares[part])[:, None], out=compared[part], casting="same_kind")
    return compared
