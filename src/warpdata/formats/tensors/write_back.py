"""Views written back: their bytes put into canonical order, and an artifact over which some were written.

An artifact never changes. Writing over it gives another one, which keeps what was written in memory and reads
everything else from where it was. Implements "Writing back" of docs/specs/tensors.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from warpdata.errors import InvalidViewError, ViewPreconditionError
from warpdata.formats.tensors.buffers import array_over
from warpdata.formats.tensors.cuda.torch_interop import is_torch, to_array
from warpdata.formats.tensors.dtypes import dtype_of_numpy
from warpdata.formats.tensors.extents import Extent, Extents, merge_ranges, subtract_ranges
from warpdata.formats.tensors.index import TensorIndex, align
from warpdata.formats.tensors.plan import Contiguous, Pad, ViewPlan, iter_blocks, make_plan
from warpdata.formats.tensors.replica import Replica
from warpdata.formats.tensors.spec import NormalView, whole
from warpdata.formats.tensors.targets import HostTarget, host_bytes
from warpdata.formats.tensors.transfer import write_back
from warpdata.formats.tensors.view import View
from warpdata.formats.tensors.workers import processors

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["block_to_write", "written_over", "written_ranges"]


def block_to_write(replica: Replica, view: View, data: Mapping[str, Any] | Any) -> tuple[ViewPlan, memoryview]:
    """A plan and its bytes. `data` is a mapping of arrays in the view's shapes and types, or the view's bytes."""
    if view.artifact_index_multihash != replica.index_multihash:
        raise ViewPreconditionError("the view is one of another artifact")
    plan = view.plan
    if isinstance(data, Mapping):
        plan = _element_plan(replica.index, view)
        block = _packed(plan, data)
    else:
        block = host_bytes(data)
    if len(block) != plan.size:
        raise InvalidViewError(f"{len(block)} bytes were given, and the view has {plan.size}")
    return plan, block


def written_ranges(plan: ViewPlan) -> list[tuple[int, int]]:
    """The canonical bytes that a plan covers, in no order."""
    return [(source, source + size) for run in plan.data_runs for source, _, size in iter_blocks(run)]


def written_over(replica: Replica, plan: ViewPlan, block: memoryview) -> Replica:
    """The artifact that `replica` would be with these bytes. Storages that are written to are in memory, whole."""
    touched = sorted({(e.offset, e.size) for e in (replica.index[name] for name in plan.names) if e.size})
    places, cursor = {}, 0
    for offset, size in touched:
        places[offset] = cursor
        cursor = align(cursor + size)
    memory = memoryview(bytearray(cursor))
    # What is written anew as a whole need not be read, nor be there.
    written = merge_ranges(written_ranges(plan))
    kept = [(at, size) for at, size in touched if subtract_ranges([(at, at + size)], written)]
    runs = tuple(Contiguous("", places[offset], offset, size) for offset, size in kept)
    if runs:
        reading = ViewPlan(TensorIndex(()), (), runs, (), cursor)
        replica.engine.fill(replica.work(reading, replica.cost), HostTarget([(0, memory)]))
    moved = (
        run if isinstance(run, Pad) else replace(run, source=run.source + _shift(replica.index, places, run.name))
        for run in plan.runs
    )
    write_back(replace(plan, runs=tuple(moved)), block, memory)
    spans = merge_ranges((offset, offset + size) for offset, size in touched)
    parts = [
        Extent(start, end, part.source, part.offset + start - part.start)
        for part in replica.extents.parts
        for start, end in subtract_ranges([(part.start, part.end)], spans)
    ]
    parts += [Extent(at, at + size, len(replica.sources), places[at]) for at, size in touched]
    sources = (*replica.sources, _MemorySource(memory))
    return Replica.of(replica.index, sources, Extents(parts), cost=replica.cost)


class _MemorySource:
    def __init__(self, memory: memoryview) -> None:
        self._memory = memory

    @property
    def concurrency(self) -> int:
        return processors()

    def read_range(self, start: int, end: int) -> memoryview:
        return self._memory[start:end]


def _shift(index: TensorIndex, places: Mapping[int, int], name: str) -> int:
    return places[index[name].offset] - index[name].offset


def _element_plan(index: TensorIndex, view: View) -> ViewPlan:
    """The view with every tensor in row-major order, so that only elements are written, not what lies between."""
    selections = dict(view.normal.selections)
    for name in view.names:
        selections.setdefault(name, whole(index[name]))
    return make_plan(index, NormalView(tuple(sorted(selections.items()))), view.names)


def _packed(plan: ViewPlan, data: Mapping[str, Any]) -> memoryview:
    if set(data) != set(plan.names):
        odd = sorted(set(data) ^ set(plan.names), key=str)
        raise InvalidViewError(f"the view and the data do not name the same tensors: {odd[:5]!r}")
    region = memoryview(bytearray(plan.size))
    for name in plan.names:
        entry, array = plan.index[name], _as_array(data[name])
        if array.shape != entry.shape or dtype_of_numpy(array.dtype) != entry.dtype:
            have = f"{array.dtype.name} {array.shape}"
            raise InvalidViewError(f"{name!r} is {entry.dtype.name} {entry.shape} in the view, and {have} in the data")
        array_over(entry, region)[...] = array
    return region


def _as_array(data: Any) -> NDArray[Any]:
    return to_array(data) if is_torch(data) else np.asarray(data)
