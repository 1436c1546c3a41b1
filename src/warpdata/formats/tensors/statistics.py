"""Statistics of one tensor, and the size of the difference of two, with a bound on the bytes that are read.

A tensor above the bound is sampled: evenly spaced ranges of its storage are read, aligned with the leaves of the
TreeHash, so that verification reads nothing beside them. Values are summed in float64.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from warpdata.errors import BadInputError, LimitExceededError, UnsupportedError
from warpdata.formats.tensors.dtypes import numpy_dtype
from warpdata.formats.tensors.hashing import leaf_size
from warpdata.formats.tensors.index import TensorEntry
from warpdata.formats.tensors.tensor_set import TensorSet
from warpdata.limits import MIB
from warpdata.primitives.arguments import check_arguments

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

__all__ = ["TensorDifference", "TensorStatistics", "compare_tensors", "describe_tensor"]

STATISTICS_BYTES = 64 * MIB
MAX_BINS = 1024
_PART_ELEMENTS = 1 << 20
"""Elements that are converted to float64 at a time."""


@dataclass(frozen=True, slots=True)
class TensorStatistics:
    """What the elements of a tensor are like. Extremes, mean, deviation and histogram are of finite elements.

    `read_count` elements were read. If `is_sampled`, these are a part of all, and so are all counts.
    """

    element_count: int
    read_count: int
    read_bytes: int
    is_sampled: bool
    nan_count: int
    infinite_count: int
    zero_count: int
    minimum: float | None
    maximum: float | None
    mean: float | None
    std: float | None
    """None if it exceeds float64, like the mean."""
    edges: tuple[float, ...]
    """Borders of the histogram: one more than counts; empty without finite elements."""
    counts: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TensorDifference:
    """How far two tensors of one shape are apart, over the elements that are finite in both.

    `relative` is the norm of the difference, divided by the norm of the first tensor; None if that is zero.
    """

    element_count: int
    read_count: int
    read_bytes: int
    is_sampled: bool
    changed_count: int
    """Elements that differ. NaN equals NaN here."""
    max_absolute: float | None
    mean_absolute: float | None
    norm: float | None
    relative: float | None


@check_arguments
def describe_tensor(
    art: TensorSet, name: str, *, max_bytes: int = STATISTICS_BYTES, bins: int = 64
) -> TensorStatistics:
    """Read a tensor, or evenly spaced parts of at most `max_bytes`, and describe its elements."""
    if not 1 <= bins <= MAX_BINS:
        raise BadInputError(f"bins={bins} is not within 1…{MAX_BINS}")
    entry = art.index[name]
    spans = _spans(entry, art.index.total_size, max_bytes)
    values = [_read(art, entry, span) for span in spans]
    read_count = sum(len(part) for part in values)
    nan_count = infinite_count = zero_count = finite_count = 0
    low, high, total = math.inf, -math.inf, 0.0
    for part in _floats(values, entry):
        nan_count += int(np.isnan(part).sum())
        infinite_count += int(np.isinf(part).sum())
        zero_count += int((part == 0).sum())
        finite = part[np.isfinite(part)]
        if len(finite):
            finite_count += len(finite)
            low, high = min(low, float(finite.min())), max(high, float(finite.max()))
            total += float(finite.sum())
    mean = total / finite_count if finite_count else None
    edges, counts, std = _histogram(values, entry, bins, (low, high), mean, finite_count)
    return TensorStatistics(
        element_count=entry.element_count,
        read_count=read_count,
        read_bytes=read_count * entry.dtype.item_bytes,
        is_sampled=read_count < entry.element_count,
        nan_count=nan_count,
        infinite_count=infinite_count,
        zero_count=zero_count,
        minimum=low if finite_count else None,
        maximum=high if finite_count else None,
        mean=_finite(mean),
        std=_finite(std),
        edges=edges,
        counts=counts,
    )


def _histogram(
    values: list[NDArray[Any]],
    entry: TensorEntry,
    bins: int,
    bounds: tuple[float, float],
    mean: float | None,
    finite_count: int,
) -> tuple[tuple[float, ...], tuple[int, ...], float | None]:
    """Return the borders and counts, and the standard deviation."""
    if mean is None:
        return (), (), None
    edges = np.histogram_bin_edges(np.empty(0), bins, _finite_range(*bounds))
    counts, squares = np.zeros(bins, np.int64), 0.0
    for part in _floats(values, entry):
        finite = part[np.isfinite(part)]
        counts += np.histogram(finite, bins, (float(edges[0]), float(edges[-1])))[0]
        squares += float(np.square(finite - mean).sum())
    return tuple(edges.tolist()), tuple(counts.tolist()), math.sqrt(squares / finite_count)


def _finite_range(low: float, high: float) -> tuple[float, float]:
    """Return bounds whose distance is a number too: extremes of float64 are further apart than that."""
    return (low, high) if math.isfinite(high - low) else (low / 2, high / 2)


@check_arguments
def compare_tensors(
    first: TensorSet,
    first_name: str,
    second: TensorSet,
    second_name: str,
    *,
    max_bytes: int = STATISTICS_BYTES,
) -> TensorDifference:
    """Read two tensors of one shape, or the same parts of both of at most `max_bytes` each, and compare elements."""
    before, after = first.index[first_name], second.index[second_name]
    if before.shape != after.shape:
        raise BadInputError(
            f"{first_name!r} has the shape {list(before.shape)} and {second_name!r} {list(after.shape)}",
            hint="Compare tensors of one shape.",
        )
    larger = max(before.dtype.item_bytes, after.dtype.item_bytes)
    spans = _spans(before, first.index.total_size, max_bytes * before.dtype.item_bytes // larger)
    if not (before.is_compact and after.is_compact) and before.byte_size > max_bytes:
        raise LimitExceededError(f"{first_name!r} is large and not stored row by row, so no part of it can be compared")
    read_count = changed = finite_count = 0
    largest = total = squares = own_squares = 0.0
    for span in spans:
        pair = _read(first, before, span), _read(second, after, span)
        read_count += len(pair[0])
        for one, two in zip(_floats([pair[0]], before), _floats([pair[1]], after), strict=True):
            changed += int(((one != two) & ~(np.isnan(one) & np.isnan(two))).sum())
            is_finite = np.isfinite(one) & np.isfinite(two)
            delta = np.abs(two[is_finite] - one[is_finite])
            if len(delta):
                finite_count += len(delta)
                largest = max(largest, float(delta.max()))
                total += float(delta.sum())
                squares += float(np.square(delta).sum())
                own_squares += float(np.square(one[is_finite]).sum())
    return TensorDifference(
        element_count=before.element_count,
        read_count=read_count,
        read_bytes=read_count * (before.dtype.item_bytes + after.dtype.item_bytes),
        is_sampled=read_count < before.element_count,
        changed_count=changed,
        max_absolute=largest if finite_count else None,
        mean_absolute=_finite(total / finite_count) if finite_count else None,
        norm=_finite(math.sqrt(squares)),
        relative=_finite(math.sqrt(squares / own_squares)) if own_squares else None,
    )


def _finite(value: float | None) -> float | None:
    """Return a number; None for one that exceeds float64."""
    return value if value is not None and math.isfinite(value) else None


def _spans(entry: TensorEntry, total_bytes: int, max_bytes: int) -> list[tuple[int, int]]:
    """Return ranges of elements to read: all of them, or evenly spaced leaves of at most `max_bytes` together."""
    if entry.dtype.name.startswith("torch.complex"):
        raise UnsupportedError(
            f"{entry.name!r} is complex, and complex numbers have no order", hint="Read it with `numpy()`."
        )
    if entry.byte_size <= max_bytes:
        return [(0, entry.element_count)] if entry.element_count else []
    if not entry.is_compact:
        raise LimitExceededError(
            f"{entry.name!r} has {entry.byte_size:,} bytes and is not stored row by row, so it cannot be sampled",
            hint="Read a slice of it in Python.",
        )
    leaf, item = leaf_size(total_bytes), entry.dtype.item_bytes
    borders = [at - entry.offset for at in range(-(-entry.offset // leaf) * leaf, entry.offset + entry.size, leaf)]
    borders = sorted({0, *borders, entry.size})
    pieces = list(pairwise(borders))
    wanted = max(1, max_bytes // leaf)
    chosen = sorted({round(at) for at in np.linspace(0, len(pieces) - 1, min(wanted, len(pieces)))})
    spans = [(-(-pieces[at][0] // item), pieces[at][1] // item) for at in chosen]
    return [span for span in spans if span[0] < span[1]]


def _read(art: TensorSet, entry: TensorEntry, span: tuple[int, int]) -> NDArray[Any]:
    """Read a range of elements, verified like any read, in the types of NumPy; bfloat16 as its bits."""
    start, end = span
    dtype = np.dtype("<u2") if entry.dtype.name == "torch.bfloat16" else numpy_dtype(entry.dtype)
    if entry.is_compact:
        item = entry.dtype.item_bytes
        data = art.replica.read_bytes(entry.offset + start * item, entry.offset + end * item)
        return np.frombuffer(data, dtype)
    return art[entry.name].numpy().reshape(-1)[start:end].view(dtype)


def _floats(parts: list[NDArray[Any]], entry: TensorEntry) -> Iterator[Floats]:
    """Yield elements as float64, a part at a time."""
    for part in parts:
        for at in range(0, len(part), _PART_ELEMENTS):
            values = part[at : at + _PART_ELEMENTS]
            if entry.dtype.name == "torch.bfloat16":
                values = (values.astype(np.uint32) << 16).view(np.float32)
            yield values.astype(np.float64)
