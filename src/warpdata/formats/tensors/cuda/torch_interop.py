"""The home of torch: which device is meant, memory on it, and bytes of it as tensors.

torch is loaded when a device is first asked for, never by importing this package.
"""

from __future__ import annotations

import importlib
import sys
from bisect import bisect_right
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from warpdata.errors import MissingExtraError, UnsupportedFormatError, ViewPreconditionError
from warpdata.formats.tensors.dtypes import DType, dtype_named, numpy_dtype
from warpdata.formats.tensors.index import TensorEntry

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = [
    "DeviceTarget",
    "cuda_device",
    "device_bytes",
    "empty_bytes",
    "empty_tensor",
    "is_torch",
    "item_type",
    "tensor_bytes",
    "tensor_over",
    "to_array",
    "torch_library",
]

_DLPACK_CPU = 1
_ITEMS = {1: "uint8", 2: "int16", 4: "int32", 8: "int64", 16: "complex128"}


class DeviceTarget:
    """Regions of a device's memory, as flat tensors of bytes, by the position each begins at."""

    __slots__ = ("_addresses", "_regions", "_starts", "device")

    def __init__(self, regions: Sequence[tuple[int, Any]]) -> None:
        self.device = regions[0][1].device
        self._starts = [start for start, _ in regions]
        self._regions = [region for _, region in regions]
        self._addresses = [int(region.data_ptr()) for _, region in regions]

    def address(self, position: int) -> int:
        number = bisect_right(self._starts, position) - 1
        return self._addresses[number] + position - self._starts[number]

    def at(self, start: int, size: int) -> Any:
        number = bisect_right(self._starts, start) - 1
        first = start - self._starts[number]
        return self._regions[number][first : first + size]


def torch_library() -> Any:
    try:
        return importlib.import_module("torch")
    except ImportError as error:
        raise MissingExtraError(
            "tensors on a device need the package torch", hint="pip install 'warpdata[torch]'"
        ) from error


def cuda_device(device: Any) -> Any:
    """The device meant, as torch names it; `None` for this machine's own memory."""
    if device is None or str(device) == "cpu":
        return None
    torch = torch_library()
    try:
        found = torch.device(device)
    except (RuntimeError, TypeError) as error:
        raise ViewPreconditionError(f"{device!r} is not the name of a device") from error
    if found.type != "cuda":
        raise ViewPreconditionError(f"tensors can not be read to {device!r}", hint="use 'cpu' or 'cuda'")
    if not torch.cuda.is_available() or (found.index or 0) >= torch.cuda.device_count():
        raise ViewPreconditionError(f"there is no device {str(device)!r} here")
    return torch.device("cuda", torch.cuda.current_device() if found.index is None else found.index)


def is_torch(region: Any) -> bool:
    """Whether it is a tensor of torch. Whoever has one has loaded torch."""
    torch: Any = sys.modules.get("torch")
    return torch is not None and isinstance(region, torch.Tensor)


def device_bytes(region: Any) -> Any | None:
    """The memory behind anything on a device, as a flat tensor of bytes; `None` if it is on no device."""
    if not is_torch(region):
        place = getattr(region, "__dlpack_device__", None)
        if place is None or int(place()[0]) == _DLPACK_CPU:
            return None
        try:
            region = torch_library().from_dlpack(region)
        except (RuntimeError, TypeError, ValueError, BufferError) as error:
            raise ViewPreconditionError(f"the target can not be written to: {error}") from error
    if region.device.type == "cpu":
        return None
    if region.device.type != "cuda":
        raise ViewPreconditionError(f"tensors can not be read to {str(region.device)!r}")
    return tensor_bytes(region)


def tensor_bytes(tensor: Any) -> Any:
    """A tensor's own memory, as bytes."""
    if not tensor.is_contiguous():
        raise ViewPreconditionError("the target is not memory in one piece", hint="pass a contiguous tensor")
    torch = torch_library()
    return tensor.detach().reshape(-1).view(torch.uint8)


def empty_bytes(size: int, device: Any) -> Any:
    torch = torch_library()
    return torch.empty(size, dtype=torch.uint8, device=device)


def empty_tensor(shape: Sequence[int], dtype: DType, device: Any) -> Any:
    return torch_library().empty(tuple(shape), dtype=_torch_type(dtype), device=device)


def tensor_over(entry: TensorEntry, region: Any) -> Any:
    """A tensor that looks into a region of bytes."""
    kind, item = _torch_type(entry.dtype), entry.dtype.item_bytes
    if entry.element_count == 0:
        return torch_library().empty(entry.shape, dtype=kind, device=region.device)
    span = sum((n - 1) * s for n, s in zip(entry.shape, entry.stride, strict=True)) + 1
    first = entry.offset + entry.storage_offset * item
    part = region[first : first + span * item]
    # torch wants elements at multiples of their size. Tensors begin at multiples of 8, so a few are copied.
    aligned = part if part.storage_offset() % item == 0 else part.clone()
    return aligned.view(kind).as_strided(entry.shape, entry.stride)


def to_array(tensor: Any) -> NDArray[Any]:
    """A tensor of torch as an array, copied to this machine if it is elsewhere."""
    torch = torch_library()
    kind = numpy_dtype(dtype_named(str(tensor.dtype)))
    flat = tensor.detach().cpu().contiguous().reshape(-1)
    array: NDArray[Any] = flat.view(torch.uint8).numpy().view(kind)
    return array.reshape(tuple(tensor.shape))


def item_type(item_bytes: int) -> Any:
    """Some type of this size, for moving elements whatever they mean."""
    return getattr(torch_library(), _ITEMS[item_bytes])


def _torch_type(dtype: DType) -> Any:
    found = getattr(torch_library(), dtype.name.removeprefix("torch."), None)
    if found is None:
        raise UnsupportedFormatError(f"this version of torch has no {dtype.name}")
    return found
