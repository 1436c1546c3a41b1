"""Views in the memory of a CUDA device: pinned memory, copies, verification on the device, and torch.

The only module of this package that the rest imports. Everything is loaded on first use, and torch when a device is
first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from warpdata.formats.tensors.cuda.pinned_pool import PinnedPool
    from warpdata.formats.tensors.cuda.streams import CudaDevice
    from warpdata.formats.tensors.cuda.torch_interop import (
        DeviceTarget,
        cuda_device,
        device_bytes,
        empty_bytes,
        empty_tensor,
        is_cpu,
        is_torch,
        tensor_bytes,
        tensor_over,
        to_array,
        torch_library,
        wants_torch,
    )
    from warpdata.formats.tensors.cuda.transfer import TransferDevice, fill_device, slot_bytes_for

__all__ = [
    "CudaDevice",
    "DeviceTarget",
    "PinnedPool",
    "TransferDevice",
    "cuda_device",
    "device_bytes",
    "empty_bytes",
    "empty_tensor",
    "fill_device",
    "is_cpu",
    "is_torch",
    "slot_bytes_for",
    "tensor_bytes",
    "tensor_over",
    "to_array",
    "torch_library",
    "wants_torch",
]

_MODULES = {
    "CudaDevice": "streams",
    "PinnedPool": "pinned_pool",
    "TransferDevice": "transfer",
    "fill_device": "transfer",
    "slot_bytes_for": "transfer",
}
"""The module of each name; those that are not listed are in `torch_interop`."""


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{_MODULES.get(name, 'torch_interop')}"), name)
    globals()[name] = value
    return value
