"""Leaves that are hashed where they land, on the device, while others are still on their way.

A device takes much longer for one leaf than a processor does, and for hundreds no longer than for one. So it gets
the leaves that are read first, a batch at a time, each as soon as all of it is there. The last ones would be done
too late there: reading threads hash them on the way, as many as they get done while the device is busy with its own.
Implements "Devices" of docs/specs/tensors.md.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from typing import Protocol

from warpdata.formats.tensors.cuda.torch_interop import DeviceTarget
from warpdata.formats.tensors.reads import Read
from warpdata.formats.tensors.transfer import Work
from warpdata.formats.tensors.verified_read import Leaves
from warpdata.formats.tensors.workers import for_each, processors
from warpdata.limits import VIEW_DEVICE_BATCH_LEAVES, VIEW_DEVICE_CHECK_LEAVES

__all__ = ["DeviceChecks", "Hasher", "Hashes"]

_LEAVES_MEANWHILE = 9
"""That a thread reads and hashes, beside others, while a device hashes one: 5.8 ms for 4 MiB here, 56 ms there."""


class Hashes(Protocol):
    """Places on a device that are hashed there, some at a time, after the copies enqueued before."""

    def start(self, places: Sequence[tuple[int, int]]) -> None: ...

    def digests(self) -> list[bytes]: ...


class Hasher(Protocol):
    """What hashing in place needs of a device."""

    def finish(self) -> None: ...

    def prepare_hashing(self, count: int) -> Hashes | None: ...


class DeviceChecks:
    """Which requests are checked on the device, and how far it is with them. Safe to share between threads."""

    def __init__(self, work: Work, target: DeviceTarget, device: Hasher, placed: Sequence[Read], threads: int) -> None:
        """`placed`: requests whose leaves stay where they land. `threads` read, and hash."""
        self._work, self._target, self._device = work, target, device
        self._lock = threading.Lock()
        self._chosen = {id(read): read for read in _for_device(work, placed, threads)}
        self._left = len(self._chosen)
        self._batch: list[tuple[int, int]] = []
        self._ready: list[list[tuple[int, int]]] = []
        self._started: list[tuple[int, int]] = []
        self._hashes: Future[Hashes | None] = Future()

    @property
    def reads(self) -> Sequence[Read]:
        """All requests, in the order to read them in: what the device checks comes first."""
        if not self._chosen:
            return self._work.reads
        return [*self._chosen.values(), *(read for read in self._work.reads if id(read) not in self._chosen)]

    @contextmanager
    def preparing(self) -> Iterator[None]:
        """The code that hashes is compiled while bytes are read."""
        if not self._chosen:
            yield
            return
        with ThreadPoolExecutor(1) as pool:
            count = sum(len(read.leaves) for read in self._chosen.values())
            self._hashes = pool.submit(self._device.prepare_hashing, count)
            yield

    def move(self, read: Read, move: Callable[[Read, bool], None]) -> None:
        """Let a request be moved, with its leaves checked on the way or, once its copies are enqueued, there."""
        there = id(read) in self._chosen
        move(read, bool(read.leaves) and not there)
        if there:
            self._arrived(read)

    def finish(self) -> None:
        """When all are moved. `TensorsCorruptedError` if a hash is another."""
        leaves = self._work.leaves
        if not self._chosen or leaves is None:
            return
        hashes = self._hashes.result()
        if hashes is None:
            self._check_here(leaves)
            return
        self._start(hashes)
        for (number, _), digest in zip(self._started, hashes.digests(), strict=True):
            leaves.compare(number, digest)

    def _arrived(self, read: Read) -> None:
        with self._lock:
            self._left -= 1
            self._batch += zip(read.leaves, read.placed, strict=True)
            if self._left and len(self._batch) < VIEW_DEVICE_BATCH_LEAVES:
                return
            self._ready.append(self._batch)
            self._batch = []
            if self._hashes.done():
                self._start(self._hashes.result())

    def _start(self, hashes: Hashes | None) -> None:
        leaves = self._work.leaves
        if hashes is None or leaves is None:
            return
        while self._ready:
            batch = self._ready.pop()
            spans = (leaves.span(number) for number, _ in batch)
            hashes.start(
                [(self._target.address(at), end - start) for (_, at), (start, end) in zip(batch, spans, strict=True)]
            )
            self._started += batch

    def _check_here(self, leaves: Leaves) -> None:
        """Without device code: what is on the device comes back to be hashed."""
        self._device.finish()

        def check(one: tuple[int, int]) -> None:
            number, place = one
            start, end = leaves.span(number)
            held = self._target.at(place, end - start).cpu().numpy()
            leaves.check(range(number, number + 1), memoryview(held))

        for_each([one for batch in self._ready for one in batch], processors(), lambda: nullcontext(check))


def _for_device(work: Work, placed: Sequence[Read], threads: int) -> list[Read]:
    """Those that may, if they are many, but for the last, which threads hash while the device is busy."""
    count = sum(len(read.leaves) for read in placed)
    if work.leaves is None or count < VIEW_DEVICE_CHECK_LEAVES:
        return []
    chosen = list(placed)
    here = sum(len(read.leaves) for read in work.reads) - count
    while chosen and here < _LEAVES_MEANWHILE * threads:
        here += len(chosen.pop().leaves)
    return chosen
