"""Memory first, bytes later: slices that are promised one by one and read together at the end.

What a model asks for while it is being built becomes one plan, so that neighbours share requests and every
byte is read once. Implements "Deferred" of docs/specs/tensors.md.
"""

from __future__ import annotations

from typing import Any, Self

import numpy as np

from warpdata.errors import ViewPreconditionError
from warpdata.formats.tensors.cuda.torch_interop import cuda_device, empty_tensor, tensor_bytes
from warpdata.formats.tensors.dtypes import numpy_dtype
from warpdata.formats.tensors.multi_buffer import Assembly
from warpdata.formats.tensors.reads import ReadCost
from warpdata.formats.tensors.replica import Replica
from warpdata.formats.tensors.spec import Narrow, NormalView, Op, normalize
from warpdata.formats.tensors.targets import host_bytes
from warpdata.formats.tensors.view import Explanation, explain

__all__ = ["Deferred"]


class Deferred:
    """Made by `Tensors.deferred`. What it hands out holds nothing of use before `commit()`."""

    def __init__(self, replica: Replica, device: Any, cost: ReadCost | None) -> None:
        self._replica = replica
        self._device = cuda_device(device)
        self._cost = cost or replica.cost
        self._assembly = Assembly(replica.index)
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
        normal = normalize(self._replica.index, {name: ops}) if ops else NormalView(())
        piece = self._assembly.piece(name, dict(normal.selections).get(name))
        memory, contents = self._allocate(piece.index[name].shape, name)
        self._assembly.add(piece, contents)
        return memory

    def explain(self, *, verify: bool | None = None) -> Explanation:
        """What committing will do."""
        plan = self._assembly.plan()
        reads = self._replica.plan_reads(plan, self._cost, verify=verify)
        return explain(plan, reads, self._replica.requests(reads), device=self._device is not None)

    def commit(self, *, verify: bool | None = None) -> None:
        """Read everything that was promised. `PartialCoverageError` if bytes are missing: then nothing is written."""
        if not self._open:
            raise ViewPreconditionError("it was committed or left before")
        work = self._replica.work(self._assembly.plan(), self._cost, verify=verify)
        if self._assembly:
            self._replica.engine.fill(work, self._assembly.target(on_device=self._device is not None))
        self.close()

    def close(self) -> None:
        """Forget what was promised and not committed. Memory that was handed out stays its holder's."""
        self._open = False
        self._assembly.forget()

    def _allocate(self, shape: tuple[int, ...], name: str) -> tuple[Any, Any]:
        dtype = self._replica.index[name].dtype
        if self._device is None:
            array = np.empty(shape, numpy_dtype(dtype))
            return array, host_bytes(array)
        tensor = empty_tensor(shape, dtype, self._device)
        return tensor, tensor_bytes(tensor)
