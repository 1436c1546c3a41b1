"""Artifacts over memory: arrays of NumPy or torch, and an artifact with some views overwritten.

Arrays are read in place and never copied whole. An artifact never changes: writing a view over it returns another
one, which holds the written storages in memory and reads the others from their old sources. Implements "Writing
back" of docs/specs/tensors.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from warpdata.errors import BadInputError, UnsupportedError
from warpdata.formats.tensors import cuda
from warpdata.formats.tensors.buffers import HostTarget, array_over, host_bytes
from warpdata.formats.tensors.dtypes import TensorDType, dtype_named, dtype_of_numpy
from warpdata.formats.tensors.extents import Extent, ExtentMap
from warpdata.formats.tensors.index import TensorIndex, align, pack_index
from warpdata.formats.tensors.plan import Contiguous, Pad, ViewPlan, iter_blocks, make_plan
from warpdata.formats.tensors.replica import Replica
from warpdata.formats.tensors.spec import NormalView, whole
from warpdata.formats.tensors.transfer import write_back
from warpdata.formats.tensors.view import View
from warpdata.primitives.parallel import usable_cores
from warpdata.primitives.ranges import RangeSet
from warpdata.storage import ConcurrentSource, RangeSource

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["array_dtype", "overwrite_view", "plan_write", "replica_of_arrays", "written_ranges"]


def replica_of_arrays(tensors: Mapping[str, Any]) -> Replica:
    """Place arrays in name order, each in its own storage, even if they share memory."""
    named = {name: _checked_array(name, array) for name, array in tensors.items()}
    index = pack_index({name: (array_dtype(array), tuple(array.shape)) for name, array in named.items()})
    sources = tuple(_ArraySource(named[entry.name], entry.dtype.item_bytes) for entry in index)
    extents = [Extent(entry.offset, entry.offset + entry.size, number, 0) for number, entry in enumerate(index)]
    return Replica.create(index, sources, ExtentMap(extents))


def array_dtype(array: Any) -> TensorDType:
    if not hasattr(array, "dtype") or not hasattr(array, "shape"):
        raise BadInputError(f"a tensor is an array of NumPy or torch, not a {type(array).__name__}")
    return dtype_named(str(array.dtype)) if cuda.is_torch(array) else dtype_of_numpy(array.dtype)


class _ArraySource:
    """The elements of one array in row-major order. Other layouts are copied piece by piece, as they are read."""

    def __init__(self, array: Any, item_bytes: int) -> None:
        self._array = array
        self._item_bytes = item_bytes

    @property
    def size_bytes(self) -> int:
        return int(np.prod(self._array.shape)) * self._item_bytes

    @property
    def concurrency(self) -> int:
        return usable_cores()

    def read_range(self, start: int, end: int) -> memoryview:
        first, last = start // self._item_bytes, -(-end // self._item_bytes)
        pieces = [_piece_bytes(piece) for piece in _pieces(self._array, first, last)]
        joined = pieces[0] if len(pieces) == 1 else memoryview(b"".join(pieces))
        return joined[start - first * self._item_bytes : end - first * self._item_bytes]


def _pieces(array: Any, start: int, stop: int) -> Iterator[Any]:
    """Yield elements number `start` to `stop`, in row-major order, as views of the array."""
    if start >= stop:
        return
    if len(array.shape) < 2:
        yield array.reshape(-1)[start:stop] if len(array.shape) == 0 else array[start:stop]
        return
    row = int(np.prod(array.shape[1:]))
    first, last = -(-start // row), stop // row
    if first > last:
        yield from _pieces(array[last], start - last * row, stop - last * row)
        return
    if start < first * row:
        yield from _pieces(array[first - 1], start - (first - 1) * row, row)
    if first < last:
        yield array[first:last]
    if stop > last * row:
        yield from _pieces(array[last], 0, stop - last * row)


def _piece_bytes(piece: Any) -> memoryview:
    if cuda.is_torch(piece):
        plain = piece.detach().resolve_conj().resolve_neg().cpu().contiguous()
        # A dimension with one entry may have any stride, and torch still calls the tensor contiguous.
        return memoryview(cuda.tensor_bytes(plain.as_strided((plain.numel(),), (1,))).numpy())
    flat: Any = np.ascontiguousarray(piece).reshape(-1)
    return memoryview(flat.view(np.uint8))


def _checked_array(name: Any, array: Any) -> Any:
    if not isinstance(name, str):
        raise BadInputError(f"{name!r} is not a tensor name")
    if cuda.is_torch(array):
        if str(array.layout) != "torch.strided" or array.device.type == "meta" or array.is_quantized:
            kind = f"{array.layout} on {array.device}"
            raise BadInputError(f"{name!r} is a tensor of {kind}, which has no plain elements to store")
    elif not isinstance(array, np.ndarray | np.generic):
        raise BadInputError(
            f"{name!r} is a {type(array).__name__}, not an array", hint="Pass arrays of NumPy or tensors of torch."
        )
    return array


def plan_write(replica: Replica, view: View, data: Mapping[str, Any] | Any) -> tuple[ViewPlan, memoryview]:
    """Return a plan and its bytes. `data` maps names to arrays of the view's shapes and types, or is its bytes."""
    if view.artifact_index_multihash != replica.index_multihash:
        raise UnsupportedError("the view belongs to another artifact")
    plan = view.plan
    if isinstance(data, Mapping):
        plan = _element_plan(replica.index, view)
        block = _packed(plan, data)
    else:
        block = host_bytes(data)
    if len(block) != plan.size:
        raise BadInputError(f"the data has {len(block)} bytes, but the view {plan.size}")
    return plan, block


def written_ranges(plan: ViewPlan) -> RangeSet:
    """Return the canonical bytes of a plan."""
    return RangeSet((source, source + size) for run in plan.data_runs for source, _, size in iter_blocks(run))


def overwrite_view(replica: Replica, plan: ViewPlan, block: memoryview) -> Replica:
    """Return the artifact with the bytes of a plan replaced. Storages that are written to are in memory, whole."""
    touched = sorted({(e.offset, e.size) for e in (replica.index[name] for name in plan.names) if e.size})
    positions, cursor = {}, 0
    for offset, size in touched:
        positions[offset] = cursor
        cursor = align(cursor + size)
    memory = memoryview(bytearray(cursor))
    # A storage that is overwritten as a whole is not read, and may be missing.
    written = written_ranges(plan)
    kept = [(at, size) for at, size in touched if not written.covers((at, at + size))]
    runs = tuple(Contiguous("", positions[offset], offset, size) for offset, size in kept)
    if runs:
        reading = ViewPlan(TensorIndex(()), (), runs, (), cursor)
        replica.engine.fill(replica.transfer_task(reading, replica.cost), HostTarget([(0, memory)]))

    def to_memory(name: str) -> int:
        return positions[replica.index[name].offset] - replica.index[name].offset

    moved = (
        run if isinstance(run, Pad) else replace(run, source=run.source + to_memory(run.name)) for run in plan.runs
    )
    write_back(replace(plan, runs=tuple(moved)), block, memory)
    storages = RangeSet((offset, offset + size) for offset, size in touched)
    kept_sources: tuple[RangeSource, ...] = replica.sources
    old_parts: Iterable[Extent] = replica.extents.parts
    if replica.verifies:
        # The hashes of the new artifact are not known, so the old one verifies its bytes.
        kept_sources = (_ReplicaSource(replica),)
        old_parts = [Extent(part.start, part.end, 0, part.start) for part in old_parts]
    parts = [
        Extent(start, end, part.source, part.offset + start - part.start)
        for part in old_parts
        for start, end in storages.missing((part.start, part.end))
    ]
    parts += [Extent(at, at + size, len(kept_sources), positions[at]) for at, size in touched]
    sources = (*kept_sources, _MemorySource(memory))
    return Replica.create(replica.index, sources, ExtentMap(parts), cost=replica.cost)


class _ReplicaSource:
    """The canonical bytes of an artifact, verified, from any of its sources."""

    def __init__(self, replica: Replica) -> None:
        self._replica = replica
        self.size_bytes = replica.index.total_size

    @property
    def concurrency(self) -> int:
        allowed = (s.concurrency if isinstance(s, ConcurrentSource) else 1 for s in self._replica.sources)
        return min(allowed, default=1)

    def read_range(self, start: int, end: int) -> memoryview:
        return self._replica.read_bytes(start, end)


class _MemorySource:
    def __init__(self, memory: memoryview) -> None:
        self._memory = memory

    @property
    def size_bytes(self) -> int:
        return len(self._memory)

    @property
    def concurrency(self) -> int:
        return usable_cores()

    def read_range(self, start: int, end: int) -> memoryview:
        return self._memory[start:end]


def _element_plan(index: TensorIndex, view: View) -> ViewPlan:
    """Plan the view with all tensors in row-major order, so that only elements are written, not gaps."""
    selections = dict(view.normal.selections)
    for name in view.names:
        selections.setdefault(name, whole(index[name]))
    return make_plan(index, NormalView(tuple(sorted(selections.items()))), view.names)


def _packed(plan: ViewPlan, data: Mapping[str, Any]) -> memoryview:
    if set(data) != set(plan.names):
        odd = sorted(set(data) ^ set(plan.names), key=str)
        raise BadInputError(f"the view and the data name different tensors: {odd[:5]!r}")
    memory = memoryview(bytearray(plan.size))
    for name in plan.names:
        entry = plan.index[name]
        array: NDArray[Any] = cuda.to_array(data[name]) if cuda.is_torch(data[name]) else np.asarray(data[name])
        if array.shape != entry.shape or dtype_of_numpy(array.dtype) != entry.dtype:
            found = f"{array.dtype.name} {array.shape}"
            raise BadInputError(f"{name!r} is {entry.dtype.name} {entry.shape} in the view, but {found} in the data")
        array_over(entry, memory)[...] = array
    return memory
