"""Memory that holds a view: whose it is, how it is filled, and how it shows as arrays or tensors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from warpdata.errors import ViewPreconditionError
from warpdata.formats.tensors.cuda.torch_interop import (
    DeviceTarget,
    device_bytes,
    empty_bytes,
    is_torch,
    tensor_bytes,
    tensor_over,
)
from warpdata.formats.tensors.dtypes import numpy_dtype
from warpdata.formats.tensors.index import TensorEntry
from warpdata.formats.tensors.targets import HostTarget, host_bytes

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Region", "array_over", "new_region", "region_of"]


class Region:
    """Bytes here (`memory`), bytes on a device (`tensor`), or both names for the same bytes of torch."""

    __slots__ = ("memory", "tensor")

    def __init__(self, memory: memoryview | None, tensor: Any = None) -> None:
        self.memory = memory
        self.tensor = tensor

    @property
    def size(self) -> int:
        return len(self.memory) if self.memory is not None else int(self.tensor.numel())

    @property
    def contents(self) -> Any:
        """As the caller may look at it: bytes, or a flat tensor of bytes."""
        return self.memory if self.tensor is None else self.tensor

    def first(self, size: int) -> Region:
        """The beginning of it; refused if it is too small or can not be written."""
        if self.memory is not None and self.memory.readonly:
            raise ViewPreconditionError(
                "the target can not be written to",
                hint="Pass memory that may be changed; what only DLPack shows can be since NumPy 2.3.",
            )
        if self.size < size:
            raise ViewPreconditionError(f"the target has {self.size} bytes, and the view {size}")
        memory = None if self.memory is None else self.memory[:size]
        return Region(memory, None if self.tensor is None else self.tensor[:size])

    @property
    def device(self) -> Any:
        """`None` for this machine's memory."""
        return None if self.memory is not None else self.tensor.device

    def part(self, start: int, end: int) -> Any:
        """Some of its bytes, as a target takes them."""
        return self.tensor[start:end] if self.memory is None else self.memory[start:end]

    def target(self) -> HostTarget | DeviceTarget:
        return DeviceTarget([(0, self.tensor)]) if self.memory is None else HostTarget([(0, self.memory)])

    def show(self, entry: TensorEntry) -> Any:
        """A tensor that looks into it, in the library that the region is of."""
        if self.tensor is not None:
            return tensor_over(entry, self.tensor)
        assert self.memory is not None
        return array_over(entry, self.memory)

    def to_host(self) -> memoryview:
        """Its bytes on this machine, copied if they are elsewhere."""
        return self.memory if self.memory is not None else memoryview(self.tensor.cpu().numpy())


def region_of(memory: Any) -> Region:
    """Whatever a caller hands over, as long as it is memory in one piece."""
    tensor = device_bytes(memory)
    if tensor is not None:
        return Region(None, tensor)
    if is_torch(memory):
        tensor = tensor_bytes(memory)
        return Region(host_bytes(tensor.numpy()), tensor)
    return Region(host_bytes(memory))


def new_region(size: int, device: Any) -> Region:
    """`device` is one of torch, or `None` for numpy."""
    return Region(host_bytes(np.empty(size, np.uint8))) if device is None else Region(None, empty_bytes(size, device))


def array_over(entry: TensorEntry, region: memoryview) -> NDArray[Any]:
    """A tensor as an array that looks into `region`."""
    dtype, item = numpy_dtype(entry.dtype), entry.dtype.item_bytes
    if entry.element_count == 0:
        return np.empty(entry.shape, dtype)
    strides = tuple(stride * item for stride in entry.stride)
    return np.ndarray(entry.shape, dtype, region, entry.offset + entry.storage_offset * item, strides)
