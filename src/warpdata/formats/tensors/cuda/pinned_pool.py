"""A pool of pinned memory slots that files are read into and a device copies from.

A slot is reused only after every copy from it is done. Slots are allocated on first need, so that small loads pin
little. `close()` frees them.
"""

from __future__ import annotations

import contextlib
import mmap
import threading
from collections.abc import Callable, Iterator
from queue import SimpleQueue
from typing import Protocol

import numpy as np

from warpdata.errors import StorageError
from warpdata.primitives.fork import register_after_fork

__all__ = ["PinnedPool", "PinnedSlot", "PinningDevice"]


class PinningDevice(Protocol):
    """The device operations of a pool. An event is recorded after the copies that were enqueued before it."""

    def pin(self, address: int, size: int) -> None: ...

    def unpin(self, address: int) -> None: ...

    def make_event(self) -> int: ...

    def drop_event(self, event: int) -> None: ...

    def record(self, event: int) -> None: ...

    def is_done(self, event: int) -> bool: ...

    def wait(self, event: int) -> None: ...


class PinnedSlot:
    """Pinned memory. Reads write to `view`, and copies to the device read from `address`."""

    __slots__ = ("_memory", "address", "event", "in_use", "view")

    def __init__(self, size: int, device: PinningDevice) -> None:
        self._memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        if hasattr(mmap, "MADV_HUGEPAGE"):
            with contextlib.suppress(OSError):
                self._memory.madvise(mmap.MADV_HUGEPAGE)
        self.view = memoryview(self._memory)
        self.address = int(np.frombuffer(self.view, np.uint8).ctypes.data)
        self.event = device.make_event()
        self.in_use = False
        try:
            device.pin(self.address, size)
        except BaseException:
            device.drop_event(self.event)
            raise


class PinnedPool:
    """Slots of one size, at most `count` of them. Safe to share between threads."""

    def __init__(self, device: PinningDevice, slot_bytes: int, count: int) -> None:
        self.slot_bytes = slot_bytes
        self.count = count
        self._device = device
        self._reset()
        register_after_fork(self._reset)

    @property
    def pinned_bytes(self) -> int:
        return len(self._slots) * self.slot_bytes

    def acquire(self) -> PinnedSlot:
        """Return a slot that no copy reads from: a new one up to `count`, else the one released longest ago."""
        while True:
            if self._reserved < self.count and self._reserve():
                return self._allocate()
            slot = self._idle.get()
            if slot is None:
                continue  # an allocation failed in another thread, so a new slot may be allocated again
            if slot.in_use:
                self._wait_for(slot)
            return slot

    @contextlib.contextmanager
    def slot_later(self) -> Iterator[Callable[[], PinnedSlot]]:
        """Yield a function that takes a slot on its first call. The slot is released when the block ends."""
        taken: list[PinnedSlot] = []

        def take() -> PinnedSlot:
            if not taken:
                taken.append(self.acquire())
            return taken[0]

        try:
            yield take
        finally:
            for slot in taken:
                self.release(slot)

    def release(self, slot: PinnedSlot) -> None:
        """Return a slot to the pool, for reuse once every copy enqueued so far is done."""
        slot.in_use = True
        try:
            self._device.record(slot.event)
        finally:
            # A waiting thread must get a slot, if only to see that the device has failed.
            self._idle.put(slot)

    def close(self) -> None:
        """Wait for copies, and unpin and free the memory."""
        slots = self._slots
        self._reset()
        for slot in slots:
            # The memory of a failed device is freed, too.
            with contextlib.suppress(StorageError):
                if slot.in_use:
                    self._device.wait(slot.event)
            with contextlib.suppress(StorageError):
                self._device.unpin(slot.address)
            with contextlib.suppress(StorageError):
                self._device.drop_event(slot.event)

    def _reset(self) -> None:
        """Forget all slots. In a forked child they belong to the parent process."""
        self._slots: list[PinnedSlot] = []
        self._reserved = 0
        self._idle: SimpleQueue[PinnedSlot | None] = SimpleQueue()
        self._lock = threading.Lock()

    def _wait_for(self, slot: PinnedSlot) -> None:
        try:
            if not self._device.is_done(slot.event):
                self._device.wait(slot.event)
        except BaseException:
            self._idle.put(slot)
            raise
        slot.in_use = False

    def _reserve(self) -> bool:
        with self._lock:
            is_free = self._reserved < self.count
            self._reserved += is_free
        return is_free

    def _allocate(self) -> PinnedSlot:
        try:
            slot = PinnedSlot(self.slot_bytes, self._device)
        except BaseException:
            with self._lock:
                self._reserved -= 1
            self._idle.put(None)
            raise
        self._slots.append(slot)
        return slot
