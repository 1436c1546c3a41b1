"""A CUDA device with streams for copies, permutations and hashing.

A thread uses one of the two copy streams, so that an event it records follows its own copies. torch owns the streams
and the device memory. Everything that was enqueued is done when `finish` returns.
"""

from __future__ import annotations

import itertools
import math
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from warpdata.formats.tensors.cuda.driver import CudaDriver
from warpdata.formats.tensors.cuda.sha256 import DeviceSha256, compile_kernel
from warpdata.formats.tensors.cuda.torch_interop import item_type, torch_library
from warpdata.formats.tensors.plan import Permute

__all__ = ["CudaDevice"]

_COPY_STREAMS = 2
_HASH_STREAMS = 5
"""Hashing a batch takes as long as copying five. All streams together use no more than the 8 queues of a device."""


class CudaDevice:
    """One device in this process. Methods that enqueue may be called from any thread inside of `entered`."""

    def __init__(self, device: Any) -> None:
        torch = torch_library()
        self._device = device
        with torch.cuda.device(device):
            torch.cuda.current_stream().synchronize()
            self._driver = CudaDriver()
            self._copies = tuple(torch.cuda.Stream() for _ in range(_COPY_STREAMS))
            self._permutes = torch.cuda.Stream()
            self._hashes = tuple(torch.cuda.Stream() for _ in range(_HASH_STREAMS))
        self._turn = itertools.count()
        self._thread = threading.local()
        self.pin, self.unpin = self._driver.pin, self._driver.unpin
        self.make_event, self.drop_event = self._driver.make_event, self._driver.drop_event
        self.is_done, self.wait = self._driver.is_done, self._driver.wait

    def begin(self) -> None:
        """Let copies wait for the caller's own work on its memory."""
        current = torch_library().cuda.current_stream(self._device)
        for stream in self._copies:
            stream.wait_stream(current)

    def finish(self) -> None:
        for stream in (*self._copies, self._permutes, *self._hashes):
            stream.synchronize()

    @contextmanager
    def entered(self) -> Iterator[None]:
        """Use the device in this thread, on one of the copy streams."""
        with self._driver.entered():
            self._thread.stream = self._copies[next(self._turn) % _COPY_STREAMS]
            self._thread.handle = int(self._thread.stream.cuda_stream)
            yield

    def copy(self, device_address: int, host_address: int, size: int) -> None:
        self._driver.copy(device_address, host_address, size, self._thread.handle)

    def record(self, event: int) -> None:
        self._driver.record(event, self._thread.handle)

    def zero(self, place: Any) -> None:
        """Zero memory before any copy that follows."""
        with torch_library().cuda.stream(self._copies[0]):
            place.zero_()
        for stream in self._copies[1:]:
            stream.wait_stream(self._copies[0])

    def permute(self, place: Any, permute: Permute) -> None:
        """Reorder the axes of the tensor at `place`, after all copies so far."""
        torch = torch_library()
        for stream in self._copies:
            self._permutes.wait_stream(stream)
        with torch.cuda.stream(self._permutes):
            # Elements are at multiples of 8 of the target, which may begin at any address.
            word = math.gcd(permute.item_bytes, int(place.data_ptr()), int(place.storage_offset()), 8)
            target = place.view(item_type(word)).reshape(*permute.shape, permute.item_bytes // word)
            moved = target.clone().permute(*permute.order, len(permute.order))
            target.reshape(moved.shape).copy_(moved)

    def copy_blocks(
        self, place: Any, host_address: int, size: int, blocks: tuple[int, tuple[int, ...]], strides: Sequence[Any]
    ) -> None:
        """Copy `size` bytes to the device, then their blocks to `place`.

        `blocks` are (block, counts), `strides` those of the target and of the source.
        """
        torch = torch_library()
        block, counts = blocks
        target_strides, source_strides = strides
        with torch.cuda.stream(self._thread.stream):
            copied = torch.empty(size, dtype=torch.uint8, device=self._device)
            self.copy(int(copied.data_ptr()), host_address, size)
            word = math.gcd(block, int(place.data_ptr()), *target_strides, *source_strides, 8)
            shape = (*counts, block // word)
            target = _as_blocks(place, word, shape, target_strides)
            target.copy_(_as_blocks(copied, word, shape, source_strides))

    def prepare_hashing(self, count: int) -> DeviceSha256 | None:
        """Return a hasher for `count` places; None without a compiler. Device code is compiled once per process."""
        major, minor = torch_library().cuda.get_device_capability(self._device)
        code = compile_kernel(f"sm_{major}{minor}")
        if code is None:
            return None
        with self._driver.entered():
            return DeviceSha256(self._driver, code, count, streams=self._hashes, after=self._copies)


def _as_blocks(memory: Any, word: int, shape: tuple[int, ...], strides: Sequence[int]) -> Any:
    words = memory[: memory.numel() // word * word].view(item_type(word))
    return words.as_strided(shape, (*(stride // word for stride in strides), 1))
