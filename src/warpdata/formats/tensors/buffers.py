"""Memory that holds a view: memory of the caller or new memory, of the host or of a device.

`HostTarget` is the write side: one or more buffers in one space of positions. `Buffer` is the read side, which shows
tensors as arrays of NumPy or tensors of torch.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from warpdata.errors import UnsupportedError
from warpdata.formats.tensors import cuda
from warpdata.formats.tensors.dtypes import numpy_dtype
from warpdata.formats.tensors.index import TensorEntry

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Buffer", "HostTarget", "array_over", "as_buffer", "host_bytes", "new_buffer"]

_DLPACK_CPU = 1


class HostTarget:
    """Buffers in host memory, each at its position. A range is always inside of one buffer."""

    __slots__ = ("_buffers", "_starts")

    def __init__(self, buffers: Sequence[tuple[int, memoryview]]) -> None:
        self._starts = [start for start, _ in buffers]
        self._buffers = [buffer for _, buffer in buffers]

    def at(self, start: int, size: int) -> memoryview:
        number = bisect_right(self._starts, start) - 1
        first = start - self._starts[number]
        return self._buffers[number][first : first + size]


class Buffer:
    """Bytes of the host (`memory`) or of a device (`tensor`). Host memory of torch has both."""

    __slots__ = ("memory", "tensor")

    def __init__(self, memory: memoryview | None, tensor: Any = None) -> None:
        self.memory = memory
        self.tensor = tensor

    @property
    def size(self) -> int:
        return len(self.memory) if self.memory is not None else int(self.tensor.numel())

    @property
    def contents(self) -> Any:
        """The bytes as a memoryview, or as a flat tensor of torch."""
        return self.memory if self.tensor is None else self.tensor

    @property
    def device(self) -> Any:
        """The torch device; None for host memory."""
        return None if self.memory is not None else self.tensor.device

    def first(self, size: int) -> Buffer:
        """Return the first bytes. `UnsupportedError` if the buffer is too small or read-only."""
        if self.memory is not None and self.memory.readonly:
            raise UnsupportedError(
                "the target is read-only",
                hint="Pass writable memory. Memory that only has DLPack is writable since NumPy 2.3.",
            )
        if self.size < size:
            raise UnsupportedError(f"the target has {self.size} bytes, but the view needs {size}")
        memory = None if self.memory is None else self.memory[:size]
        return Buffer(memory, None if self.tensor is None else self.tensor[:size])

    def part(self, start: int, end: int) -> Any:
        """Return a range of the bytes, in the form that a target takes."""
        return self.tensor[start:end] if self.memory is None else self.memory[start:end]

    def target(self) -> HostTarget | cuda.DeviceTarget:
        return cuda.DeviceTarget([(0, self.tensor)]) if self.memory is None else HostTarget([(0, self.memory)])

    def show(self, entry: TensorEntry) -> Any:
        """Return a tensor of torch or an array of NumPy over this memory, without a copy."""
        if self.tensor is not None:
            return cuda.tensor_over(entry, self.tensor)
        assert self.memory is not None
        return array_over(entry, self.memory)

    def to_host(self) -> memoryview:
        """Return the bytes in host memory, copied if they are on a device."""
        return self.memory if self.memory is not None else memoryview(self.tensor.cpu().numpy())


def as_buffer(memory: Any) -> Buffer:
    """Return the buffer of any contiguous memory: buffer protocol, torch or DLPack."""
    tensor = cuda.device_bytes(memory)
    if tensor is not None:
        return Buffer(None, tensor)
    if cuda.is_torch(memory):
        tensor = cuda.tensor_bytes(memory)
        return Buffer(host_bytes(tensor.numpy()), tensor)
    return Buffer(host_bytes(memory))


def new_buffer(size: int, device: Any) -> Buffer:
    """Allocate memory with NumPy, or with torch if the caller names a device, the CPU included."""
    found = cuda.cuda_device(device)
    if found is not None:
        return Buffer(None, cuda.empty_bytes(size, found))
    if cuda.wants_torch(device):
        tensor = cuda.empty_bytes(size, "cpu")
        return Buffer(host_bytes(tensor.numpy()), tensor)
    return Buffer(host_bytes(np.empty(size, np.uint8)))


def array_over(entry: TensorEntry, memory: memoryview) -> NDArray[Any]:
    """Return a tensor as an array over `memory`, without a copy."""
    dtype, item = numpy_dtype(entry.dtype), entry.dtype.item_bytes
    if entry.element_count == 0:
        return np.empty(entry.shape, dtype)
    strides = tuple(stride * item for stride in entry.stride)
    return np.ndarray(entry.shape, dtype, memory, entry.offset + entry.storage_offset * item, strides)


def host_bytes(memory: Any) -> memoryview:
    """Return contiguous host memory as bytes, by the buffer protocol or by DLPack."""
    try:
        if not isinstance(memory, np.ndarray) and _has_only_dlpack(memory):
            memory = np.from_dlpack(memory)
        if isinstance(memory, np.ndarray):
            memory = memory.reshape(-1).view(np.uint8) if memory.flags.c_contiguous else None
        view = memoryview(memory)
        return view.cast("B") if view.nbytes else memoryview(bytearray())
    except (TypeError, ValueError, BufferError) as error:
        raise UnsupportedError("the target is not contiguous memory", hint="Pass a contiguous array.") from error


def _has_only_dlpack(memory: Any) -> bool:
    """Return whether this is host memory with DLPack and without the buffer protocol."""
    try:
        memoryview(memory)
    except TypeError:
        device = getattr(memory, "__dlpack_device__", None)
        return device is not None and int(device()[0]) == _DLPACK_CPU
    return False
