"""A fake device in host memory that copies as late as the contract allows.

A real device copies at any time between the call and an event; this one copies at the last moment. So a slot that is
reused or freed too early always shows as wrong bytes in the target.
"""

from __future__ import annotations

import ctypes
import hashlib
import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from warpdata.errors import StorageError
from warpdata.formats.tensors.cuda import DeviceTarget
from warpdata.formats.tensors.plan import Permute

__all__ = ["FakeTensor", "SlowDevice", "target_over"]


class FakeTensor:
    """A flat array with the methods of a flat tensor that a target uses."""

    def __init__(self, array: np.ndarray[Any, Any]) -> None:
        self.array = array
        self.device = "slow"

    def data_ptr(self) -> int:
        return int(self.array.ctypes.data)

    def __getitem__(self, part: slice) -> FakeTensor:
        return FakeTensor(self.array[part])

    def cpu(self) -> FakeTensor:
        return self

    def numpy(self) -> np.ndarray[Any, Any]:
        return self.array


def target_over(*arrays: tuple[int, np.ndarray[Any, Any]]) -> DeviceTarget:
    return DeviceTarget([(start, FakeTensor(array)) for start, array in arrays])


@dataclass
class SlowDevice:
    """Fails after `fail_after` copies. `hashes`: the device can hash."""

    fail_after: int | None = None
    fail_events: bool = False
    hashes: bool = True
    pinned: dict[int, int] = field(default_factory=dict)
    most_pinned: int = 0
    events: dict[int, int] = field(default_factory=dict)
    copies: int = 0
    begun: int = 0
    hashed: int = 0
    _enqueued: list[Callable[[], None]] = field(default_factory=list)
    _done: int = 0
    _names: int = 0
    _lock: Any = field(default_factory=threading.RLock)

    def begin(self) -> None:
        self.begun += 1

    def entered(self) -> AbstractContextManager[None]:
        return nullcontext()

    def finish(self) -> None:
        self._run(len(self._enqueued))

    def pin(self, address: int, size: int) -> None:
        with self._lock:
            self.pinned[address] = size
            self.most_pinned = max(self.most_pinned, sum(self.pinned.values()))

    def unpin(self, address: int) -> None:
        with self._lock:
            assert self._done == len(self._enqueued), "memory is freed while a copy reads it"
            del self.pinned[address]

    def make_event(self) -> int:
        with self._lock:
            self._names += 1
            self.events[self._names] = 0
            return self._names

    def drop_event(self, event: int) -> None:
        del self.events[event]

    def record(self, event: int) -> None:
        with self._lock:
            if self.fail_events and self.copies > 3:
                raise StorageError("the device failed")
            self.events[event] = len(self._enqueued)

    def is_done(self, event: int) -> bool:
        return self.events[event] <= self._done

    def wait(self, event: int) -> None:
        self._run(self.events[event])

    def copy(self, device_address: int, host_address: int, size: int) -> None:
        with self._lock:
            self.copies += 1
            if self.fail_after is not None and self.copies > self.fail_after:
                raise StorageError("the device failed")
            assert any(at <= host_address and host_address + size <= at + n for at, n in self.pinned.items())
            self._enqueue(lambda: ctypes.memmove(device_address, host_address, size))

    def zero(self, place: FakeTensor) -> None:
        self._enqueue(lambda: place.array.fill(0))

    def permute(self, place: FakeTensor, permute: Permute) -> None:
        def change() -> None:
            items = place.array.view(f"V{permute.item_bytes}").reshape(permute.shape)
            moved = items.copy().transpose(permute.order)
            items.reshape(moved.shape)[...] = moved

        self._enqueue(change)

    def copy_blocks(
        self,
        place: FakeTensor,
        host_address: int,
        size: int,
        blocks: tuple[int, tuple[int, ...]],
        strides: Sequence[Any],
    ) -> None:
        block, counts = blocks

        def change() -> None:
            source = np.frombuffer(memoryview((ctypes.c_char * size).from_address(host_address)).cast("B"), np.uint8)
            shape = (*counts, block)
            target = np.lib.stride_tricks.as_strided(place.array, shape, (*strides[0], 1))
            target[...] = np.lib.stride_tricks.as_strided(source, shape, (*strides[1], 1))

        self._enqueue(change)

    def prepare_hashing(self, count: int) -> SlowHashes | None:
        return SlowHashes(self, count) if self.hashes else None

    def _enqueue(self, change: Callable[[], Any]) -> None:
        with self._lock:
            self._enqueued.append(change)

    def _run(self, until: int) -> None:
        with self._lock:
            while self._done < until:
                self._enqueued[self._done]()
                self._done += 1  # an interrupt before this line repeats a copy and loses none, like a real queue


class SlowHashes:
    """Hashes at the last moment, too, after the copies that were enqueued before."""

    def __init__(self, device: SlowDevice, count: int) -> None:
        self._device, self._count = device, count
        self._started = 0
        self._digests: list[bytes] = []

    def start(self, places: Sequence[tuple[int, int]]) -> None:
        self._started += len(places)
        assert self._started <= self._count
        self._device.hashed += len(places)
        self._device._enqueue(lambda: self._digests.extend(map(_hash, places)))

    def digests(self) -> list[bytes]:
        self._device.finish()
        return self._digests


def _hash(place: tuple[int, int]) -> bytes:
    return hashlib.sha256(ctypes.string_at(*place)).digest()
