"""The calls of the CUDA driver that transfers need, by ctypes.

torch owns contexts, streams and device memory. This module enqueues copies on torch's streams, pins memory and
launches a kernel. Short calls keep the interpreter lock, because to release and reacquire it among many reading
threads takes longer than the call. Calls that wait release it.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from warpdata.errors import StorageError, UnsupportedError

__all__ = ["CudaDriver"]

_LIBRARY = "libcuda.so.1"
_PORTABLE = 1
_BLOCKING_WITHOUT_TIMING = 3
_NOT_READY = 600


class CudaDriver:
    """The driver in the context that is current at construction. `entered()` makes it current in another thread."""

    def __init__(self) -> None:
        try:
            self._short: Any = ctypes.PyDLL(_LIBRARY)
            self._waiting: Any = ctypes.CDLL(_LIBRARY)
        except OSError as error:
            raise UnsupportedError(f"the CUDA driver cannot be loaded: {error}") from error
        short = self._short
        address = ctypes.c_void_p
        short.cuMemcpyHtoDAsync_v2.argtypes = (ctypes.c_uint64, address, ctypes.c_size_t, address)
        short.cuEventRecord.argtypes = (address, address)
        short.cuEventQuery.argtypes = (address,)
        self._copy, self._record, self._query = short.cuMemcpyHtoDAsync_v2, short.cuEventRecord, short.cuEventQuery
        self._context = ctypes.c_void_p()
        self._check(short.cuCtxGetCurrent(ctypes.byref(self._context)), "find a context")

    @property
    def context(self) -> int:
        """The address of the context, which identifies it."""
        return self._context.value or 0

    @contextmanager
    def entered(self) -> Iterator[None]:
        """Make the context current in this thread, and restore the previous one afterwards.

        torch derives its current device from the context, and pool threads serve other devices later.
        """
        previous = ctypes.c_void_p()
        self._check(self._short.cuCtxGetCurrent(ctypes.byref(previous)), "find a context")
        self._check(self._short.cuCtxSetCurrent(self._context), "enter a context")
        try:
            yield
        finally:
            self._short.cuCtxSetCurrent(previous)  # unchecked: an error of the block matters more

    def pin(self, address: int, size: int) -> None:
        done = self._waiting.cuMemHostRegister_v2(ctypes.c_void_p(address), ctypes.c_size_t(size), _PORTABLE)
        self._check(done, f"pin {size} bytes of memory")

    def unpin(self, address: int) -> None:
        self._check(self._waiting.cuMemHostUnregister(ctypes.c_void_p(address)), "unpin memory")

    def copy(self, device_address: int, host_address: int, size: int, stream: int) -> None:
        """Enqueue a copy. The host memory must not change until the copy is done."""
        code = self._copy(device_address, host_address, size, stream)
        if code:
            self._check(code, "copy to the device")

    def make_event(self) -> int:
        event = ctypes.c_void_p()
        self._check(self._short.cuEventCreate(ctypes.byref(event), _BLOCKING_WITHOUT_TIMING), "create an event")
        return event.value or 0

    def drop_event(self, event: int) -> None:
        self._check(self._short.cuEventDestroy_v2(ctypes.c_void_p(event)), "destroy an event")

    def record(self, event: int, stream: int) -> None:
        code = self._record(event, stream)
        if code:
            self._check(code, "record an event")

    def is_done(self, event: int) -> bool:
        code = self._query(event)
        if code and code != _NOT_READY:
            self._check(code, "query an event")
        return bool(code == 0)

    def wait(self, event: int) -> None:
        self._check(self._waiting.cuEventSynchronize(ctypes.c_void_p(event)), "wait for an event")

    def load_function(self, image: bytes, name: str) -> int:
        """Load a function from compiled device code. The code stays loaded as long as the context."""
        module, function = ctypes.c_void_p(), ctypes.c_void_p()
        self._check(self._waiting.cuModuleLoadData(ctypes.byref(module), image), "load device code")
        found = self._waiting.cuModuleGetFunction(ctypes.byref(function), module, name.encode())
        self._check(found, f"find {name} in device code")
        return function.value or 0

    def launch(self, function: int, blocks: int, threads: int, stream: int, arguments: list[int]) -> None:
        """Launch a kernel. Every argument is passed as 64 bits."""
        values = [ctypes.c_uint64(argument) for argument in arguments]
        table = (ctypes.c_void_p * len(values))(*[ctypes.addressof(value) for value in values])
        shape = [ctypes.c_uint(count) for count in (blocks, 1, 1, threads, 1, 1, 0)]
        done = self._waiting.cuLaunchKernel(
            ctypes.c_void_p(function), *shape, ctypes.c_void_p(stream), table, ctypes.c_void_p()
        )
        self._check(done, "launch a kernel")

    def _check(self, code: int, what: str) -> None:
        if code == 0:
            return
        text = ctypes.c_char_p()
        self._short.cuGetErrorString(code, ctypes.byref(text))
        reason = (text.value or b"unknown").decode(errors="replace")
        raise StorageError(f"the CUDA driver failed to {what}: error {code}, {reason}")
