"""Memory first, bytes later: slices that are promised one by one and read together at the end.

What a model asks for while it is being built becomes one plan, so that neighbours share requests and every
byte is read once. Implements "Deferred" of docs/specs/tensors.md.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Self

import numpy as np

from warpdata.errors import ViewPreconditionError
from warpdata.tensors.devices import DeviceTarget, cuda_device, empty_tensor, tensor_bytes
from warpdata.tensors.dtypes import numpy_dtype
from warpdata.tensors.index import ALIGNMENT_BYTES, TensorIndex, align
from warpdata.tensors.plan import Permute, Run, ViewPlan, make_plan
from warpdata.tensors.reads import ReadCost
from warpdata.tensors.replica import Replica
from warpdata.tensors.spec import Narrow, NormalView, Op, normalize, whole
from warpdata.tensors.targets import HostTarget, host_bytes
from warpdata.tensors.view import Explanation, explain

__all__ = ["Deferred"]


class Deferred:
    """Made by `Tensors.deferred`. What it hands out holds nothing of use before `commit()`."""

    def __init__(self, replica: Replica, device: Any, cost: ReadCost | None) -> None:
        self._replica = replica
        self._device = cuda_device(device)
        self._cost = cost or ReadCost()
        self._runs: list[Run] = []
        self._permutes: list[Permute] = []
        self._regions: list[tuple[int, Any]] = []
        self._names: list[str] = []
        self._cursor = 0
        self._open = True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def slice(self, name: str, dim: int, start: int, length: int) -> Any:
        """Memory for `length` entries of one dimension, from `start`."""
        return self.take(name, Narrow(dim, start, length))

    def take(self, name: str, *ops: Op) -> Any:
        """Memory for a tensor, or what operations keep of it. An array, or a tensor of torch on a device."""
        if not self._open:
            raise ViewPreconditionError("nothing can be promised any more: it was committed or left")
        entry = self._replica.index[name]
        normal = normalize(self._replica.index, {name: ops}) if ops else NormalView(())
        # A tensor that stays as it is gets its elements alone, and not the storage it lies in.
        selection = dict(normal.selections).get(name, whole(entry))
        plan = make_plan(self._replica.index, NormalView(((name, selection),)), (name,))
        memory, contents = self._allocate(plan.index[name].shape, name)
        if plan.size:
            self._runs += [replace(run, target=run.target + self._cursor) for run in plan.runs]
            self._permutes += [replace(one, target=one.target + self._cursor) for one in plan.permutes]
            self._regions.append((self._cursor, contents))
            self._names.append(name)
            # Room between regions, so that nothing is ever copied across.
            self._cursor = align(self._cursor + plan.size) + ALIGNMENT_BYTES
        return memory

    def explain(self, *, verify: bool = False) -> Explanation:
        """What committing will do."""
        plan = self._plan()
        reads = self._replica.plan_reads(plan, self._cost, verify=verify)
        return explain(plan, reads, device=self._device is not None)

    def commit(self, *, verify: bool = False) -> None:
        """Read everything that was promised. `PartialCoverageError` if bytes are missing: then nothing is written."""
        if not self._open:
            raise ViewPreconditionError("it was committed or left before")
        work = self._replica.work(self._plan(), self._cost, verify=verify)
        if self._regions:
            target = HostTarget(self._regions) if self._device is None else DeviceTarget(self._regions)
            self._replica.engine.fill(work, target)
        self.close()

    def close(self) -> None:
        """Forget what was promised and not committed. Memory that was handed out stays its holder's."""
        self._open = False
        self._regions = []

    def _allocate(self, shape: tuple[int, ...], name: str) -> tuple[Any, Any]:
        dtype = self._replica.index[name].dtype
        if self._device is None:
            array = np.empty(shape, numpy_dtype(dtype))
            return array, host_bytes(array)
        tensor = empty_tensor(shape, dtype, self._device)
        return tensor, tensor_bytes(tensor)

    def _plan(self) -> ViewPlan:
        return ViewPlan(TensorIndex(()), tuple(self._names), tuple(self._runs), tuple(self._permutes), self._cursor)
