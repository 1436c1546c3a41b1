"""The only module that uses torch: devices, device memory, and bytes as tensors.

torch is imported when a device is first used, never by the import of this package.
"""

from __future__ import annotations

import sys
from bisect import bisect_right
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from warpdata.errors import MissingExtraError, UnsupportedError
from warpdata.formats.tensors.dtypes import TensorDType, dtype_named, numpy_dtype
from warpdata.formats.tensors.index import TensorEntry
from warpdata.primitives.extras import require

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = [
    "DeviceTarget",
    "cuda_device",
    "device_bytes",
    "empty_bytes",
    "empty_tensor",
    "is_cpu",
    "is_torch",
    "item_type",
    "tensor_bytes",
    "tensor_over",
    "to_array",
    "torch_library",
    "wants_torch",
]

_DLPACK_CPU = 1
_ITEM_TYPES = {1: "uint8", 2: "int16", 4: "int32", 8: "int64", 16: "complex128"}


class DeviceTarget:
    """Buffers in device memory, as flat tensors of bytes, each at its position."""

    __slots__ = ("_addresses", "_buffers", "_starts", "device")

    def __init__(self, buffers: Sequence[tuple[int, Any]]) -> None:
        self.device = buffers[0][1].device
        self._starts = [start for start, _ in buffers]
        self._buffers = [buffer for _, buffer in buffers]
        self._addresses = [int(buffer.data_ptr()) for _, buffer in buffers]

    def address(self, position: int) -> int:
        number = bisect_right(self._starts, position) - 1
        return self._addresses[number] + position - self._starts[number]

    def at(self, start: int, size: int) -> Any:
        number = bisect_right(self._starts, start) - 1
        first = start - self._starts[number]
        return self._buffers[number][first : first + size]


def torch_library() -> Any:
    """Import torch. `MissingExtraError` if it is not installed."""
    return require("torch", purpose="a tensor on a device", extra="torch")


def is_cpu(device: Any) -> bool:
    """Return whether this names the CPU. Does not import torch."""
    return device is not None and str(device).partition(":")[0] == "cpu"


def wants_torch(device: Any) -> bool:
    """Return whether new host memory belongs to torch: the caller names the CPU, and torch is installed."""
    if not is_cpu(device):
        return False
    try:
        torch_library()
    except MissingExtraError:
        return False
    return True


def cuda_device(device: Any) -> Any:
    """Return the torch device; None for host memory."""
    if device is None or is_cpu(device):
        return None
    torch = torch_library()
    try:
        found = torch.device(device)
    except (RuntimeError, TypeError) as error:
        raise UnsupportedError(f"{device!r} is not a device name") from error
    if found.type != "cuda":
        raise UnsupportedError(f"tensors cannot be read to {device!r}", hint="Use 'cpu' or 'cuda'.")
    if not torch.cuda.is_available() or (found.index or 0) >= torch.cuda.device_count():
        raise UnsupportedError(f"this machine has no device {str(device)!r}")
    return torch.device("cuda", torch.cuda.current_device() if found.index is None else found.index)


def is_torch(memory: Any) -> bool:
    """Return whether this is a tensor of torch. Does not import torch: a tensor exists only if torch is loaded."""
    torch: Any = sys.modules.get("torch")
    return torch is not None and isinstance(memory, torch.Tensor)


def device_bytes(memory: Any) -> Any | None:
    """Return device memory as a flat tensor of bytes; None for host memory."""
    if not is_torch(memory):
        place = getattr(memory, "__dlpack_device__", None)
        if place is None or int(place()[0]) == _DLPACK_CPU:
            return None
        try:
            memory = torch_library().from_dlpack(memory)
        except (RuntimeError, TypeError, ValueError, BufferError) as error:
            raise UnsupportedError(f"the target cannot be written: {error}") from error
    if memory.device.type == "cpu":
        return None
    if memory.device.type != "cuda":
        raise UnsupportedError(f"tensors cannot be read to {str(memory.device)!r}")
    return tensor_bytes(memory)


def tensor_bytes(tensor: Any) -> Any:
    """Return the memory of a contiguous tensor as a flat tensor of bytes."""
    if not tensor.is_contiguous():
        raise UnsupportedError("the target is not contiguous memory", hint="Pass a contiguous tensor.")
    torch = torch_library()
    return tensor.detach().reshape(-1).view(torch.uint8)


def empty_bytes(size: int, device: Any) -> Any:
    """Allocate a flat tensor of bytes on a device."""
    torch = torch_library()
    return torch.empty(size, dtype=torch.uint8, device=device)


def empty_tensor(shape: Sequence[int], dtype: TensorDType, device: Any) -> Any:
    """Allocate a tensor on a device."""
    return torch_library().empty(tuple(shape), dtype=_torch_type(dtype), device=device)


def tensor_over(entry: TensorEntry, memory: Any) -> Any:
    """Return a tensor over a flat tensor of bytes, without a copy if its elements are aligned."""
    kind, item = _torch_type(entry.dtype), entry.dtype.item_bytes
    if entry.element_count == 0:
        return torch_library().empty(entry.shape, dtype=kind, device=memory.device)
    span = sum((n - 1) * s for n, s in zip(entry.shape, entry.stride, strict=True)) + 1
    first = entry.offset + entry.storage_offset * item
    part = memory[first : first + span * item]
    # torch needs elements at multiples of their size. Tensors begin at multiples of 8, so complex128 may be copied.
    aligned = part if part.storage_offset() % item == 0 else part.clone()
    return aligned.view(kind).as_strided(entry.shape, entry.stride)


def to_array(tensor: Any) -> NDArray[Any]:
    """Return a tensor of torch as an array, copied if it is on a device."""
    torch = torch_library()
    kind = numpy_dtype(dtype_named(str(tensor.dtype)))
    flat = tensor.detach().cpu().contiguous().reshape(-1)
    array: NDArray[Any] = flat.view(torch.uint8).numpy().view(kind)
    return array.reshape(tuple(tensor.shape))


def item_type(item_bytes: int) -> Any:
    """Return an element type of this size, to copy elements of any type."""
    return getattr(torch_library(), _ITEM_TYPES[item_bytes])


def _torch_type(dtype: TensorDType) -> Any:
    found = getattr(torch_library(), dtype.name.removeprefix("torch."), None)
    if found is None:
        raise UnsupportedError(f"the installed torch has no {dtype.name}")
    return found
