"""A CUDA device, as loading sees it: copies on two streams, changes on another, hashing on a few, and events between.

A thread keeps to one of the two, so that an event it records is behind its own copies.

torch owns the streams and the memory that bytes go to. Everything enqueued here is done when `finish` returns.
"""

from __future__ import annotations

import itertools
import math
import threading
from collections.abc import Sequence
from typing import Any

from warpdata.formats.tensors.cuda.driver import Driver
from warpdata.formats.tensors.cuda.sha256 import LeafHashes, compile_kernel
from warpdata.formats.tensors.cuda.torch_interop import item_type, torch_library
from warpdata.formats.tensors.plan import Permute

__all__ = ["Cuda"]

_COPY_STREAMS = 2
_HASH_STREAMS = 5
"""Hashing a batch takes as long as copying five. With the others no more streams than a device has queues, 8."""


class Cuda:
    """One device in this process. Methods that enqueue may be called from any thread that has entered."""

    def __init__(self, device: Any) -> None:
        torch = torch_library()
        self._device = device
        with torch.cuda.device(device):
            torch.cuda.current_stream().synchronize()
            self._driver = Driver()
            self._copies = tuple(torch.cuda.Stream() for _ in range(_COPY_STREAMS))
            self._changes = torch.cuda.Stream()
            self._hashing = tuple(torch.cuda.Stream() for _ in range(_HASH_STREAMS))
        self._turn = itertools.count()
        self._mine = threading.local()
        self.pin, self.unpin = self._driver.pin, self._driver.unpin
        self.make_event, self.drop_event = self._driver.make_event, self._driver.drop_event
        self.is_done, self.wait = self._driver.is_done, self._driver.wait

    def begin(self) -> None:
        """Nothing is written before the caller's own work on its memory is done."""
        current = torch_library().cuda.current_stream(self._device)
        for stream in self._copies:
            stream.wait_stream(current)

    def finish(self) -> None:
        for stream in (*self._copies, self._changes, *self._hashing):
            stream.synchronize()

    def enter(self) -> None:
        self._driver.enter()
        self._mine.stream = self._copies[next(self._turn) % _COPY_STREAMS]
        self._mine.handle = int(self._mine.stream.cuda_stream)

    def copy(self, device_address: int, host_address: int, size: int) -> None:
        self._driver.copy(device_address, host_address, size, self._mine.handle)

    def record(self, event: int) -> None:
        self._driver.record(event, self._mine.handle)

    def zero(self, place: Any) -> None:
        """Before any copy that follows."""
        with torch_library().cuda.stream(self._copies[0]):
            place.zero_()
        for stream in self._copies[1:]:
            stream.wait_stream(self._copies[0])

    def permute(self, place: Any, permute: Permute) -> None:
        """After all copies so far: give the axes of the tensor at `place` their order."""
        torch = torch_library()
        for stream in self._copies:
            self._changes.wait_stream(stream)
        with torch.cuda.stream(self._changes):
            # Elements may lie at any multiple of 8, or wherever the caller's memory begins.
            word = math.gcd(permute.item_bytes, int(place.data_ptr()), int(place.storage_offset()), 8)
            there = place.view(item_type(word)).reshape(*permute.shape, permute.item_bytes // word)
            moved = there.clone().permute(*permute.order, len(permute.order))
            there.reshape(moved.shape).copy_(moved)

    def copy_blocks(
        self, place: Any, host_address: int, size: int, blocks: tuple[int, tuple[int, ...]], strides: Sequence[Any]
    ) -> None:
        """Copy `size` bytes over, then blocks of them to `place`: (block, counts), and strides there and here."""
        torch = torch_library()
        block, counts = blocks
        there_strides, here_strides = strides
        with torch.cuda.stream(self._mine.stream):
            here = torch.empty(size, dtype=torch.uint8, device=self._device)
            self.copy(int(here.data_ptr()), host_address, size)
            word = math.gcd(block, int(place.data_ptr()), *there_strides, *here_strides, 8)
            shape = (*counts, block // word)
            there = _as_blocks(place, word, shape, there_strides)
            there.copy_(_as_blocks(here, word, shape, here_strides))

    def prepare_hashing(self, count: int) -> LeafHashes | None:
        """For so many places. Device code is compiled once in a process; `None` where there is no compiler."""
        major, minor = torch_library().cuda.get_device_capability(self._device)
        code = compile_kernel(f"sm_{major}{minor}")
        if code is None:
            return None
        self._driver.enter()
        return LeafHashes(self._driver, code, count, streams=self._hashing, after=self._copies)


def _as_blocks(memory: Any, word: int, shape: tuple[int, ...], strides: Sequence[int]) -> Any:
    words = memory[: memory.numel() // word * word].view(item_type(word))
    return words.as_strided(shape, (*(stride // word for stride in strides), 1))
