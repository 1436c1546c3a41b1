"""The few calls of the CUDA driver that moving bytes needs, without anything around them.

torch owns contexts, streams and device memory; this module only enqueues copies on its streams, pins memory and
launches a kernel. Calls that return at once keep the interpreter lock, because giving it up and getting it back
among many reading threads takes longer than they do; calls that wait give it up.
"""

from __future__ import annotations

import ctypes
from typing import Any

from warpdata.errors import StorageError, ViewPreconditionError

__all__ = ["Driver"]

_LIBRARY = "libcuda.so.1"
_PORTABLE = 1
_BLOCKING_WITHOUT_TIMING = 3
_NOT_READY = 600


class Driver:
    """Calls in the context that is current when this is made; `enter()` makes it current in another thread."""

    def __init__(self) -> None:
        try:
            self._brief: Any = ctypes.PyDLL(_LIBRARY)
            self._waiting: Any = ctypes.CDLL(_LIBRARY)
        except OSError as error:
            raise ViewPreconditionError(f"there is no CUDA driver here: {error}") from error
        brief = self._brief
        address = ctypes.c_void_p
        brief.cuMemcpyHtoDAsync_v2.argtypes = (ctypes.c_uint64, address, ctypes.c_size_t, address)
        brief.cuEventRecord.argtypes = (address, address)
        brief.cuEventQuery.argtypes = (address,)
        self._copy, self._record, self._query = brief.cuMemcpyHtoDAsync_v2, brief.cuEventRecord, brief.cuEventQuery
        self._context = ctypes.c_void_p()
        self._check(brief.cuCtxGetCurrent(ctypes.byref(self._context)), "find a context")

    @property
    def context(self) -> int:
        """Tells contexts apart."""
        return self._context.value or 0

    def enter(self) -> None:
        self._check(self._brief.cuCtxSetCurrent(self._context), "enter a context")

    def pin(self, address: int, size: int) -> None:
        done = self._waiting.cuMemHostRegister_v2(ctypes.c_void_p(address), ctypes.c_size_t(size), _PORTABLE)
        self._check(done, f"pin {size} bytes of memory")

    def unpin(self, address: int) -> None:
        self._check(self._waiting.cuMemHostUnregister(ctypes.c_void_p(address)), "let go of pinned memory")

    def copy(self, device_address: int, host_address: int, size: int, stream: int) -> None:
        """Enqueue. The host memory must stay as it is until the copy is done."""
        code = self._copy(device_address, host_address, size, stream)
        if code:
            self._check(code, "copy to the device")

    def make_event(self) -> int:
        event = ctypes.c_void_p()
        self._check(self._brief.cuEventCreate(ctypes.byref(event), _BLOCKING_WITHOUT_TIMING), "make an event")
        return event.value or 0

    def drop_event(self, event: int) -> None:
        self._check(self._brief.cuEventDestroy_v2(ctypes.c_void_p(event)), "drop an event")

    def record(self, event: int, stream: int) -> None:
        code = self._record(event, stream)
        if code:
            self._check(code, "record an event")

    def is_done(self, event: int) -> bool:
        code = self._query(event)
        if code and code != _NOT_READY:
            self._check(code, "look at an event")
        return bool(code == 0)

    def wait(self, event: int) -> None:
        self._check(self._waiting.cuEventSynchronize(ctypes.c_void_p(event)), "wait for an event")

    def load_function(self, image: bytes, name: str) -> int:
        """From compiled device code, which stays loaded for as long as the context lives."""
        module, function = ctypes.c_void_p(), ctypes.c_void_p()
        self._check(self._waiting.cuModuleLoadData(ctypes.byref(module), image), "load device code")
        found = self._waiting.cuModuleGetFunction(ctypes.byref(function), module, name.encode())
        self._check(found, f"find {name} in device code")
        return function.value or 0

    def launch(self, function: int, blocks: int, threads: int, stream: int, arguments: list[int]) -> None:
        """Every argument is passed as 64 bits."""
        values = [ctypes.c_uint64(argument) for argument in arguments]
        table = (ctypes.c_void_p * len(values))(*[ctypes.addressof(value) for value in values])
        shape = [ctypes.c_uint(count) for count in (blocks, 1, 1, threads, 1, 1, 0)]
        done = self._waiting.cuLaunchKernel(
            ctypes.c_void_p(function), *shape, ctypes.c_void_p(stream), table, ctypes.c_void_p()
        )
        self._check(done, "start device code")

    def _check(self, code: int, what: str) -> None:
        if code == 0:
            return
        text = ctypes.c_char_p()
        self._brief.cuGetErrorString(code, ctypes.byref(text))
        told = (text.value or b"unknown").decode(errors="replace")
        raise StorageError(f"the device could not {what}: error {code}, {told}")
