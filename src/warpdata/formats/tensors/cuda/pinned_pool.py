"""Memory that a device reads from while files are read into it: a bounded number of slots, pinned once, used again.

A slot is handed out only after every copy that reads from it is done. Slots are made when they are first
needed, so small loads pin little. Pinned memory is given back by `close()`, and by nothing else before.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import threading
from queue import SimpleQueue
from typing import Protocol

import numpy as np

from warpdata.errors import StorageError

__all__ = ["Pinner", "Slot", "Staging"]


class Pinner(Protocol):
    """What staging needs of a device. Events are recorded behind the copies that were enqueued before."""

    def pin(self, address: int, size: int) -> None: ...

    def unpin(self, address: int) -> None: ...

    def make_event(self) -> int: ...

    def drop_event(self, event: int) -> None: ...

    def record(self, event: int) -> None: ...

    def is_done(self, event: int) -> bool: ...

    def wait(self, event: int) -> None: ...


class Slot:
    """One piece of pinned memory. `view` is written here, `address` is what a copy reads from."""

    __slots__ = ("_memory", "address", "event", "in_use", "view")

    def __init__(self, size: int, pinner: Pinner) -> None:
        self._memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        if hasattr(mmap, "MADV_HUGEPAGE"):
            with contextlib.suppress(OSError):
                self._memory.madvise(mmap.MADV_HUGEPAGE)
        self.view = memoryview(self._memory)
        self.address = int(np.frombuffer(self.view, np.uint8).ctypes.data)
        self.event = pinner.make_event()
        self.in_use = False
        try:
            pinner.pin(self.address, size)
        except BaseException:
            pinner.drop_event(self.event)
            raise


class Staging:
    """Slots of one size, at most `count` of them. Safe to share between threads."""

    def __init__(self, pinner: Pinner, slot_bytes: int, count: int) -> None:
        self.slot_bytes = slot_bytes
        self.count = count
        self._pinner = pinner
        self._all: list[Slot] = []
        self._promised = 0
        self._idle: SimpleQueue[Slot | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._process = os.getpid()

    @property
    def pinned_bytes(self) -> int:
        return len(self._all) * self.slot_bytes

    def take(self) -> Slot:
        """A slot that nobody reads from: a new one while there may be more, else the one given back longest ago."""
        while True:
            if self._promised < self.count and self._promise():
                return self._make()
            slot = self._idle.get()
            if slot is None:
                # A slot could not be made by somebody else: there is room for a new one again.
                continue
            if slot.in_use:
                self._await(slot)
            return slot

    def give(self, slot: Slot) -> None:
        """Back, to be taken again once every copy enqueued so far is done."""
        slot.in_use = True
        try:
            self._pinner.record(slot.event)
        finally:
            # Whoever waits for a slot must get one, if only to find out that the device has failed.
            self._idle.put(slot)

    def close(self) -> None:
        """Wait for copies, unpin, and free. After a fork this belongs to the other process, and is left alone."""
        slots, self._all = self._all, []
        self._idle = SimpleQueue()
        self._promised = 0
        if self._process != os.getpid():
            return
        for slot in slots:
            # A device that has failed can not be waited for; its memory is let go of all the same.
            with contextlib.suppress(StorageError):
                if slot.in_use:
                    self._pinner.wait(slot.event)
            with contextlib.suppress(StorageError):
                self._pinner.unpin(slot.address)
            with contextlib.suppress(StorageError):
                self._pinner.drop_event(slot.event)

    def _await(self, slot: Slot) -> None:
        try:
            if not self._pinner.is_done(slot.event):
                self._pinner.wait(slot.event)
        except BaseException:
            self._idle.put(slot)
            raise
        slot.in_use = False

    def _promise(self) -> bool:
        with self._lock:
            promised = self._promised < self.count
            self._promised += promised
        return promised

    def _make(self) -> Slot:
        try:
            slot = Slot(self.slot_bytes, self._pinner)
        except BaseException:
            with self._lock:
                self._promised -= 1
            self._idle.put(None)
            raise
        self._all.append(slot)
        return slot
