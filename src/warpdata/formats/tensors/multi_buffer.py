"""Tensors that each have their own place in memory, read together by one plan.

`place_tensors` puts the tensors of a view where a layout says. `Deferred` allocates memory now and reads it later, so
that neighbours share requests and every byte is read once. Implements "Layouts" and "Deferred" of
docs/specs/tensors.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Literal, Self, TypeAlias

import numpy as np

from warpdata.errors import BadInputError, UnsupportedError
from warpdata.formats.tensors import cuda
from warpdata.formats.tensors.buffers import Buffer, HostTarget, as_buffer, host_bytes
from warpdata.formats.tensors.dtypes import numpy_dtype
from warpdata.formats.tensors.index import ALIGNMENT_BYTES, TensorEntry, TensorIndex, align
from warpdata.formats.tensors.plan import Permute, Run, ViewPlan, make_plan
from warpdata.formats.tensors.reads import ReadCost, ViewExplanation, explain_reads
from warpdata.formats.tensors.replica import Replica
from warpdata.formats.tensors.spec import Narrow, NormalView, Op, TensorSelection, as_int, normalize, whole

__all__ = ["Deferred", "Layout", "MultiBufferPlan", "PlacedTensors", "place_tensors"]

Layout: TypeAlias = "Literal['view', 'canonical', 'packed'] | Mapping[str, int | tuple[str, int]]"
"""A named order, or the first byte of each tensor: in the only buffer, or in one of several named buffers."""


class MultiBufferPlan:
    """One plan over tensors in separate buffers. A tensor without a selection has its elements, not its storage."""

    def __init__(self, index: TensorIndex) -> None:
        self._index = index
        self._runs: list[Run] = []
        self._permutes: list[Permute] = []
        self.buffers: list[tuple[int, Any]] = []
        self._names: list[str] = []
        self._cursor = 0

    def __bool__(self) -> bool:
        return bool(self.buffers)

    def plan_tensor(self, name: str, selection: TensorSelection | None) -> ViewPlan:
        """Return the plan of one tensor, before it has memory."""
        chosen = selection or whole(self._index[name])
        return make_plan(self._index, NormalView(((name, chosen),)), (name,))

    def add(self, plan: ViewPlan, buffer: Any) -> None:
        """Add one tensor. `buffer` has as many bytes as the plan, on the host or on a device."""
        if not plan.size:
            return
        self._runs += [replace(run, target=run.target + self._cursor) for run in plan.runs]
        self._permutes += [replace(one, target=one.target + self._cursor) for one in plan.permutes]
        self.buffers.append((self._cursor, buffer))
        self._names += plan.names
        # A gap between buffers, so that no copy spans two of them.
        self._cursor = align(self._cursor + plan.size) + ALIGNMENT_BYTES

    def plan(self) -> ViewPlan:
        return ViewPlan(TensorIndex(()), tuple(self._names), tuple(self._runs), tuple(self._permutes), self._cursor)

    def target(self, *, on_device: bool) -> HostTarget | cuda.DeviceTarget:
        return cuda.DeviceTarget(self.buffers) if on_device else HostTarget(self.buffers)

    def release(self) -> None:
        """Drop the references to the buffers."""
        self.buffers = []


@dataclass(frozen=True, slots=True)
class PlacedTensors:
    """The tensors of a view with their positions in memory, ready to be read."""

    plan: MultiBufferPlan
    entries: Mapping[str, tuple[TensorEntry, Buffer]]
    on_device: bool


def place_tensors(
    index: TensorIndex, normal: NormalView, names: tuple[str, ...], layout: Layout, memory: Any
) -> PlacedTensors:
    """Check names, overlaps, sizes and writability, and return the plan. Nothing is read or written."""
    plan = MultiBufferPlan(index)
    selections = dict(normal.selections)
    plans = {name: plan.plan_tensor(name, selections.get(name)) for name in names}
    positions = _positions(index, plans, layout)
    _check_overlaps(positions, plans)
    given = {str(key): value for key, value in memory.items()} if isinstance(memory, Mapping) else {"": memory}
    buffers = {key: as_buffer(value) for key, value in given.items()}
    if len({str(buffer.device) for buffer in buffers.values()}) > 1:
        raise UnsupportedError("the target buffers are on different devices")
    entries = {}
    for name, one in plans.items():
        key, offset = positions[name]
        if key not in buffers:
            given_names = ", ".join(map(repr, buffers))
            raise BadInputError(f"the layout puts {name!r} into {key!r}; the target has {given_names}")
        end = offset + one.size
        buffer = buffers[key].first(end)
        plan.add(one, buffer.part(offset, end))
        entries[name] = (replace(one.index[name], offset=offset), buffer)
    return PlacedTensors(plan, entries, any(buffer.memory is None for buffer in buffers.values()))


def _positions(index: TensorIndex, plans: Mapping[str, ViewPlan], layout: Layout) -> dict[str, tuple[str, int]]:
    """Return the buffer and first byte of every tensor."""
    if layout == "canonical":
        return {name: ("", index[name].offset) for name in plans}
    if layout == "packed":
        return _packed(plans)
    if not isinstance(layout, Mapping):
        raise BadInputError(f"layout={layout!r} is not valid", hint="Use 'view', 'canonical', 'packed' or a mapping.")
    if set(layout) != set(plans):
        odd = sorted(set(layout) ^ set(plans), key=str)
        raise BadInputError(f"the view and the layout name different tensors: {odd[:5]!r}")
    out = {}
    for name, plan in plans.items():
        given = layout[name]
        key, offset = given if isinstance(given, tuple) else ("", given)
        item, position = min(plan.index[name].dtype.item_bytes, ALIGNMENT_BYTES), as_int(offset)
        if position is None or position < 0 or position % item:
            raise BadInputError(f"{name!r} cannot begin at byte {offset!r}; expected a multiple of {item}")
        out[name] = (str(key), position)
    return out


def _packed(plans: Mapping[str, ViewPlan]) -> dict[str, tuple[str, int]]:
    """Put each tensor at the next multiple of its element size."""
    out, cursor = {}, 0
    for name, plan in plans.items():
        item = plan.index[name].dtype.item_bytes
        cursor = -(-cursor // item) * item
        out[name] = ("", cursor)
        cursor += plan.size
    return out


def _check_overlaps(positions: Mapping[str, tuple[str, int]], plans: Mapping[str, ViewPlan]) -> None:
    spans = sorted((*positions[name], plans[name].size, name) for name in plans if plans[name].size)
    for (key, start, size, name), (next_key, next_start, _, next_name) in pairwise(spans):
        if key == next_key and start + size > next_start:
            raise BadInputError(f"{name!r} and {next_name!r} overlap in the layout, at byte {next_start}")


class Deferred:
    """Memory that is allocated now and read by `commit()`, made by `TensorSet.deferred`.

    The arrays and tensors have no defined content before `commit()`.
    """

    def __init__(self, replica: Replica, device: Any, cost: ReadCost | None) -> None:
        self._replica = replica
        self._device = cuda.cuda_device(device)
        self._has_torch = cuda.wants_torch(device)
        self._cost = cost or replica.cost
        self._plan = MultiBufferPlan(replica.index)
        self._is_open = True

    def __repr__(self) -> str:
        state = "open" if self._is_open else "closed"
        return f"Deferred({len(self._plan.buffers)} slices of {self._replica.index_multihash}, {state})"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def slice(self, name: str, dim: int, start: int, length: int) -> Any:
        """Allocate memory for `length` entries of one dimension, from `start`."""
        return self.take(name, Narrow(dim, start, length))

    def take(self, name: str, *ops: Op) -> Any:
        """Allocate memory for a tensor, or for the part that operations keep: an array, or a tensor on a device."""
        self._check_open()
        normal = normalize(self._replica.index, {name: ops}) if ops else NormalView(())
        plan = self._plan.plan_tensor(name, dict(normal.selections).get(name))
        memory, buffer = self._allocate(plan.index[name].shape, name)
        self._plan.add(plan, buffer)
        return memory

    def explain(self, *, verify: bool | None = None) -> ViewExplanation:
        """Return the requests and bytes of `commit()`."""
        plan = self._plan.plan()
        reads = self._replica.plan_reads(plan, self._cost, verify=verify)
        return explain_reads(
            plan,
            reads,
            self._replica.requests(reads),
            on_device=self._device is not None,
            space=self._replica.space,
            threads=self._replica.threads(plan, self._cost, verify=verify),
        )

    def commit(self, *, verify: bool | None = None) -> None:
        """Read everything. `PartialCoverageError` if bytes are missing: then nothing is written."""
        self._check_open()
        task = self._replica.transfer_task(self._plan.plan(), self._cost, verify=verify)
        if self._plan:
            self._replica.engine.fill(task, self._plan.target(on_device=self._device is not None))
        self.close()

    def close(self) -> None:
        """Drop what was not committed. The caller keeps its memory. Safe to call twice."""
        self._is_open = False
        self._plan.release()

    def _check_open(self) -> None:
        if not self._is_open:
            raise UnsupportedError("this deferred load is already committed or closed")

    def _allocate(self, shape: tuple[int, ...], name: str) -> tuple[Any, Any]:
        dtype = self._replica.index[name].dtype
        if self._has_torch:
            host = cuda.empty_tensor(shape, dtype, "cpu")
            return host, host_bytes(cuda.tensor_bytes(host).numpy())
        if self._device is None:
            array = np.empty(shape, numpy_dtype(dtype))
            return array, host_bytes(array)
        tensor = cuda.empty_tensor(shape, dtype, self._device)
        return tensor, cuda.tensor_bytes(tensor)
