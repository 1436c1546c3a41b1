"""Random artifacts and random view specs, for the tests of this directory."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Any

import numpy as np
from hypothesis import strategies as st

from tests.reference.tensor_views import Bounds
from warpdata.formats.tensors.dtypes import DTYPES, TensorDType, numpy_dtype
from warpdata.formats.tensors.index import align, compact_stride
from warpdata.tensors import Crop, Extent, TensorEntry, TensorIndex, TensorSet, crop, narrow, open_sources
from warpdata.tensors import transpose as swap

__all__ = ["RecordingSource", "Sample", "array_of", "chosen_of", "rows_of", "samples", "specs"]

AVAILABLE_DTYPES = [dtype for dtype in DTYPES if find_spec("ml_dtypes") or not dtype.needs_ml_dtypes]
names = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=4)
shapes = st.lists(st.integers(0, 5), max_size=4).map(tuple)


@dataclass
class RecordingSource:
    """A source in memory that records the requested ranges."""

    data: bytes
    requested: list[tuple[int, int]] = field(default_factory=list)

    @property
    def size_bytes(self) -> int:
        return len(self.data)

    def read_range(self, start: int, end: int) -> memoryview:
        assert 0 <= start < end <= len(self.data)
        self.requested.append((start, end))
        return memoryview(self.data)[start:end]


@dataclass
class Sample:
    """An index and its canonical bytes."""

    index: TensorIndex
    data: bytes

    def opened(self) -> tuple[TensorSet, RecordingSource]:
        source = RecordingSource(self.data)
        return open_sources(self.index, [source], [Extent(0, len(self.data), 0, 0)]), source


@st.composite
def samples(draw: st.DrawFn, *, min_tensors: int = 0) -> Sample:
    """Draw own and shared storages, compact and not, with and without gaps."""
    chosen = draw(st.lists(names, unique=True, min_size=min_tensors, max_size=5))
    entries: list[TensorEntry] = []
    cursor = 0
    for name in chosen:
        dtype = draw(st.sampled_from(AVAILABLE_DTYPES))
        if entries and draw(st.integers(0, 4)) == 0:
            other = draw(st.sampled_from(entries))
            entries.append(_alias(draw, name, other, dtype))
            continue
        shape = draw(shapes)
        cursor = align(cursor) + 8 * draw(st.sampled_from([0, 0, 0, 1, 3]))
        entry = _entry(draw, name, cursor, shape, dtype)
        entries.append(entry)
        cursor += entry.size
    index = TensorIndex(tuple(sorted(entries, key=lambda entry: entry.name)))
    data = bytearray(index.total_size)
    seed = draw(st.integers(0, 255))
    for offset, size in {(entry.offset, entry.size) for entry in entries}:
        data[offset : offset + size] = bytes((seed + 7 * i + (i >> 5)) % 251 for i in range(size))
    return Sample(index, bytes(data))


def _entry(draw: st.DrawFn, name: str, offset: int, shape: tuple[int, ...], dtype: TensorDType) -> TensorEntry:
    """Draw a row-major tensor, or one with permuted axes, gaps between rows, and a storage offset."""
    count = math.prod(shape)
    if draw(st.booleans()) or count == 0:
        return TensorEntry(name, offset, count * dtype.item_bytes, shape, compact_stride(shape), dtype)
    order = draw(st.permutations(range(len(shape))))
    gap, first = draw(st.integers(0, 2)), draw(st.integers(0, 3))
    stride, step = [0] * len(shape), 1
    for dim in reversed(order):
        stride[dim] = step
        step = step * shape[dim] + gap
    last = first + sum((n - 1) * s for n, s in zip(shape, stride, strict=True))
    size = (last + 1 + draw(st.integers(0, 2))) * dtype.item_bytes
    return TensorEntry(name, offset, size, shape, tuple(stride), dtype, first)


def _alias(draw: st.DrawFn, name: str, other: TensorEntry, dtype: TensorDType) -> TensorEntry:
    """Draw another tensor in the same storage."""
    count = other.size // dtype.item_bytes
    first = draw(st.integers(0, count))
    length = draw(st.integers(0, count - first))
    return TensorEntry(name, other.offset, other.size, (length,), (1,), dtype, first)


@st.composite
def specs(draw: st.DrawFn, index: TensorIndex, *, extended: bool = True) -> dict[str, Any]:
    """Draw valid specs of narrows, transposes and crops. Empty if no tensor has an axis."""
    out: dict[str, Any] = {}
    for entry in index:
        kinds = ["none", "narrow", "transpose", "crop"] if extended else ["none", "narrow", "transpose"]
        kind = draw(st.sampled_from(kinds))
        dims = [dim for dim, count in enumerate(entry.shape) if count]
        if kind == "narrow" and dims:
            dim = draw(st.sampled_from(dims))
            start = draw(st.integers(0, entry.shape[dim] - 1))
            length = draw(st.integers(1, entry.shape[dim] - start))
            negative = draw(st.booleans())
            rank, extent = len(entry.shape), entry.shape[dim]
            out[entry.name] = narrow(dim - rank if negative else dim, start - extent if negative else start, length)
        elif kind == "transpose" and entry.shape:
            axis = st.integers(-len(entry.shape), len(entry.shape) - 1)
            out[entry.name] = [swap(draw(axis), draw(axis)) for _ in range(draw(st.integers(1, 3)))]
        elif kind == "crop" and entry.shape:
            out[entry.name] = draw(_crops(entry))
    return out


@st.composite
def _crops(draw: st.DrawFn, entry: TensorEntry) -> Crop:
    slices = []
    for count in entry.shape[: draw(st.integers(0, len(entry.shape)))]:
        if count == 0 or draw(st.booleans()):
            slices.append(slice(None))
            continue
        start = draw(st.integers(0, count - 1))
        slices.append(slice(start, draw(st.integers(start + 1, count)), draw(st.sampled_from([None, 1, 2, 3]))))
    order = draw(st.none() | st.permutations(range(len(entry.shape))))
    return crop(*slices, order=order)


def rows_of(index: TensorIndex) -> dict[str, list[Any]]:
    """Return the rows of an index, in the form of the reference."""
    return {e.name: [e.offset, e.size, list(e.shape), list(e.stride), e.dtype.name, e.storage_offset] for e in index}


def chosen_of(index: TensorIndex, spec: dict[str, Any]) -> dict[str, tuple[Bounds, list[int]]]:
    """Return bounds and orders of a spec for the reference, computed by NumPy from positions along each axis."""
    out = {}
    for name, given in spec.items():
        shape = index[name].shape
        axes = [np.arange(count) for count in shape]
        order = list(range(len(shape)))
        for op in given if isinstance(given, list) else [given]:
            if isinstance(op, Crop):
                axes[: len(op.slices)] = [axis[part] for axis, part in zip(axes, op.slices, strict=False)]
                order = list(op.order) if op.order is not None else order
            elif hasattr(op, "length"):
                start = op.start % shape[op.dim]
                axes[op.dim] = axes[op.dim][start : start + op.length]
            else:
                order[op.dim0], order[op.dim1] = order[op.dim1], order[op.dim0]
        bounds = [
            (int(axis[0]) if len(axis) else 0, len(axis), int(axis[1] - axis[0]) if len(axis) > 1 else 1)
            for axis in axes
        ]
        out[name] = (bounds, order)
    return out


def array_of(entry: TensorEntry, data: bytes) -> np.ndarray[Any, Any]:
    """Return a tensor as an array over the canonical bytes."""
    dtype = numpy_dtype(entry.dtype)
    if entry.element_count == 0:
        return np.empty(entry.shape, dtype)
    item = dtype.itemsize
    return np.ndarray(
        entry.shape,
        dtype,
        data,
        entry.offset + entry.storage_offset * item,
        tuple(stride * item for stride in entry.stride),
    )
