"""Bytes on their way into the memory of a device: files are read into staging while it is copied from.

Many threads read; their copies are enqueued in any order. A slot of staging is written again only after an event
says that its copies are done. Blocks that must be packed, and tensors whose axes change places, are handled on the
device, tensors as soon as all of them is there. Which leaves are hashed on the way, and which there, is the business
of `device_checks`. Whatever happens, everything that was enqueued is waited for before the call ends. Implements
"Devices" of docs/specs/tensors.md.
"""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

from warpdata.formats.tensors.cuda.pinned_pool import Pinner, Slot, Staging
from warpdata.formats.tensors.cuda.torch_interop import DeviceTarget
from warpdata.formats.tensors.cuda.verify import DeviceChecks, Hasher
from warpdata.formats.tensors.plan import Pad, Permute
from warpdata.formats.tensors.reads import Read
from warpdata.formats.tensors.strided_copy import Patch
from warpdata.formats.tensors.transfer import Scratch, Work, deliver, threads_for
from warpdata.formats.tensors.workers import for_each

__all__ = ["Device", "fill_device", "slot_bytes_for"]

_PAD_BELOW = 8
_FEW_PADS = 16


class Device(Pinner, Hasher, Protocol):
    """What loading needs of a device. `Cuda` is the real one."""

    def begin(self) -> None: ...

    def enter(self) -> None: ...

    def copy(self, device_address: int, host_address: int, size: int) -> None: ...

    def zero(self, place: Any) -> None: ...

    def permute(self, place: Any, permute: Permute) -> None: ...

    def copy_blocks(
        self, place: Any, host_address: int, size: int, blocks: tuple[int, tuple[int, ...]], strides: Sequence[Any]
    ) -> None: ...


def fill_device(
    work: Work, target: DeviceTarget, staging: Staging, device: Device, *, threads: int | None = None
) -> None:
    """Make the target what the runs say. When this returns, or raises, the device is done with it."""
    load = _Load(work, target, staging, device)
    crew = threads_for(work, threads, spare=work.leaves is None)
    checks = load.checks(crew)
    device.begin()
    try:
        load.zero_pads()
        with checks.preparing():
            for_each(checks.reads, crew, lambda: load.reading(checks))
            checks.finish()
    finally:
        device.finish()


def slot_bytes_for(reads: Sequence[Read]) -> int:
    """How large slots must be: all of a request, or its parts with padding between them."""
    return max((max(read.size, read.kept + _PAD_BELOW * (len(read.parts) - 1)) for read in reads), default=0)


class _Load:
    def __init__(self, work: Work, target: DeviceTarget, staging: Staging, device: Device) -> None:
        self._work, self._target, self._staging, self._device = work, target, staging, device
        self._lock = threading.Lock()
        self._pads = {run.target: run.size for run in work.runs if isinstance(run, Pad)}
        self._permutes = sorted(work.permutes, key=lambda permute: permute.target)
        self._starts = [permute.target for permute in self._permutes]
        self._left = [permute.size for permute in self._permutes]

    def checks(self, threads: int) -> DeviceChecks:
        """Of leaves that are not to be moved on the device."""
        placed = [read for read in self._work.reads if read.placed and self._permute_of(read.parts[0]) is None]
        return DeviceChecks(self._work, self._target, self._device, placed, threads)

    def zero_pads(self) -> None:
        if len(self._pads) > _FEW_PADS:
            last = self._work.runs[-1]
            self._device.zero(self._target.at(0, last.target + last.size))
            return
        for start, size in self._pads.items():
            self._device.zero(self._target.at(start, size))

    @contextmanager
    def reading(self, checks: DeviceChecks) -> Iterator[Callable[[Read], None]]:
        self._device.enter()
        scratch = Scratch()

        yield lambda read: checks.move(read, lambda read, check: self._move(read, scratch, check))

    def _move(self, read: Read, scratch: Scratch, check: bool) -> None:
        slot = self._staging.take()
        try:
            part = read.parts[0]
            if len(read.parts) == 1 and part.target_span == part.size and (part.is_plain or read.gathers):
                deliver(read, self._work, lambda part: slot.view[: part.size], check=check, scratch=scratch)
                self._device.copy(self._target.address(part.target), slot.address, part.size)
            elif all(part.is_plain for part in read.parts):
                self._move_plain(read, slot, check, scratch)
            else:
                self._move_wide(read, slot, check)
        finally:
            self._staging.give(slot)
        if self._permutes:
            self._count_down(read)

    def _move_plain(self, read: Read, slot: Slot, check: bool, scratch: Scratch) -> None:
        """Parts that lie side by side in the target go over together, with the padding between them."""
        clusters = _clusters(read.parts, slot, self._pads)
        starts = [start for start, _, _ in clusters]

        def place(part: Patch) -> memoryview:
            start, _, offset = clusters[bisect_right(starts, part.target) - 1]
            first = offset + part.target - start
            return slot.view[first : first + part.size]

        deliver(read, self._work, place, check=check, scratch=scratch)
        for start, end, offset in clusters:
            self._device.copy(self._target.address(start), slot.address + offset, end - start)

    def _move_wide(self, read: Read, slot: Slot, check: bool) -> None:
        """All of a request goes over as it is, and the device picks its blocks out."""
        size = read.end - read.start
        whole = Read(read.source, read.start, read.end, (Patch(read.start, 0, size),), leaves=read.leaves)
        deliver(whole, self._work, lambda part: slot.view[: part.size], check=check, scratch=Scratch())
        for part in read.parts:
            place = self._target.at(part.target, part.target_span)
            here = slot.address + part.source - read.start
            self._device.copy_blocks(
                place, here, part.span, (part.block, part.counts), (part.target_strides, part.strides)
            )

    def _permute_of(self, part: Patch) -> int | None:
        number = bisect_right(self._starts, part.target) - 1
        if number < 0:
            return None
        permute = self._permutes[number]
        return number if part.target < permute.target + permute.size else None

    def _count_down(self, read: Read) -> None:
        """Permute what has become complete. Its bytes are enqueued before this is called."""
        for part in read.parts:
            number = self._permute_of(part)
            if number is None:
                continue
            with self._lock:
                self._left[number] -= part.size
                if self._left[number] == 0:
                    permute = self._permutes[number]
                    self._device.permute(self._target.at(permute.target, permute.size), permute)


def _clusters(parts: Sequence[Patch], slot: Slot, pads: Mapping[int, int]) -> list[tuple[int, int, int]]:
    """(start, end, offset in the slot), ascending. Padding between parts is zeroed in the slot."""
    out: list[tuple[int, int, int]] = []
    offset = 0
    for part in sorted(parts, key=lambda part: part.target):
        end = part.target + part.size
        start, last, begin = out[-1] if out else (0, -1, 0)
        gap = part.target - last
        # Anything but padding between two parts belongs to another request.
        if out and (gap == 0 or (gap < _PAD_BELOW and pads.get(last) == gap)):
            slot.view[offset : offset + gap] = bytes(gap)
            out[-1] = (start, end, begin)
            offset += gap + part.size
        else:
            out.append((part.target, end, offset))
            offset += part.size
    return out
