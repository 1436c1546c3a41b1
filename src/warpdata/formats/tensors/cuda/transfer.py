"""Transfers into device memory: requests are read into pinned slots, and the device copies from there.

Many threads read, and their copies are enqueued in any order. A slot is reused only after an event says that its
copies are done. The device packs blocks of wide reads, and permutes a tensor as soon as all of it has arrived.
`cuda.verify` decides where leaves are hashed. Everything that was enqueued is done when the call ends, also with an
error. Implements "Devices" of docs/specs/tensors.md.
"""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Protocol

from warpdata.formats.tensors.cuda.pinned_pool import PinnedPool, PinnedSlot, PinningDevice
from warpdata.formats.tensors.cuda.torch_interop import DeviceTarget
from warpdata.formats.tensors.cuda.verify import DeviceVerifier, HashingDevice
from warpdata.formats.tensors.plan import Pad, Permute
from warpdata.formats.tensors.reads import ReadRequest
from warpdata.formats.tensors.strided_copy import StridedCopy
from warpdata.formats.tensors.transfer import ScratchBuffer, TransferTask, deliver, threads_for
from warpdata.primitives.parallel import IO_POOL, usable_cores

__all__ = ["TransferDevice", "fill_device", "slot_bytes_for"]

_MAX_PAD_BYTES = 7  # padding between two tensors
_MAX_PADS = 16  # more pads than this are zeroed together with everything else


class TransferDevice(PinningDevice, HashingDevice, Protocol):
    """The device operations of a transfer, which `CudaDevice` implements."""

    def begin(self) -> None: ...

    def entered(self) -> AbstractContextManager[None]: ...

    def copy(self, device_address: int, host_address: int, size: int) -> None: ...

    def zero(self, place: Any) -> None: ...

    def permute(self, place: Any, permute: Permute) -> None: ...

    def copy_blocks(
        self, place: Any, host_address: int, size: int, blocks: tuple[int, tuple[int, ...]], strides: Sequence[Any]
    ) -> None: ...


def fill_device(
    task: TransferTask, target: DeviceTarget, pool: PinnedPool, device: TransferDevice, *, threads: int | None = None
) -> None:
    """Carry out a task in device memory. The device is done with the target when this returns or raises."""
    transfer = _DeviceTransfer(task, target, pool, device)
    limit = threads_for(task, threads, spare=task.leaves is None)
    verifier = transfer.verifier(min(limit, usable_cores()))  # more threads hash no faster
    with device.entered():
        device.begin()
        try:
            transfer.zero_pads()
            with verifier.compiling():
                IO_POOL.for_each(verifier.reads, lambda: transfer.reader(verifier), limit=limit)
                verifier.finish(transfer.move_again)
        finally:
            device.finish()


def slot_bytes_for(reads: Sequence[ReadRequest]) -> int:
    """Return the slot size for requests: all bytes of one, or its parts with padding between them."""
    return max((max(read.size, read.kept + (_MAX_PAD_BYTES + 1) * (len(read.parts) - 1)) for read in reads), default=0)


class _DeviceTransfer:
    def __init__(self, task: TransferTask, target: DeviceTarget, pool: PinnedPool, device: TransferDevice) -> None:
        self._task, self._target, self._pool, self._device = task, target, pool, device
        self._lock = threading.Lock()
        self._pads = {run.target: run.size for run in task.runs if isinstance(run, Pad)}
        self._permutes = sorted(task.permutes, key=lambda permute: permute.target)
        self._starts = [permute.target for permute in self._permutes]
        self._remaining = [permute.size for permute in self._permutes]

    def verifier(self, threads: int) -> DeviceVerifier:
        """Return the verifier. Leaves of a permuted tensor are not hashed on the device."""
        placed = [
            read
            for read in self._task.reads
            if read.placed and all(self._permute_of(part) is None for part in read.parts)
        ]
        return DeviceVerifier(self._task, self._target, self._device, placed, threads)

    def zero_pads(self) -> None:
        if len(self._pads) > _MAX_PADS:
            last = self._task.runs[-1]
            self._device.zero(self._target.at(0, last.target + last.size))
            return
        for start, size in self._pads.items():
            self._device.zero(self._target.at(start, size))

    @contextmanager
    def reader(self, verifier: DeviceVerifier) -> Iterator[Callable[[ReadRequest], None]]:
        scratch = ScratchBuffer()
        with self._device.entered():
            yield lambda read: verifier.move(read, lambda read, verify: self._move(read, scratch, verify))

    def move_again(self, read: ReadRequest) -> None:
        """Repeat a request whose bytes failed verification on the device, now verified by this thread."""
        self._move(read, ScratchBuffer(), True)

    def _move(self, read: ReadRequest, scratch: ScratchBuffer, verify: bool) -> None:
        """Move one request. A slot is taken when bytes are there to be copied, or a source can read into it."""
        with self._pool.slot_later() as take_slot:
            part = read.parts[0]
            if len(read.parts) == 1 and part.target_span == part.size and (part.is_plain or read.gathers):
                first = part.target

                def destination(part: StridedCopy) -> memoryview:
                    return take_slot().view[part.target - first : part.target - first + part.target_span]

                deliver(read, self._task, destination, verify=verify, scratch=scratch)
                self._device.copy(self._target.address(part.target), take_slot().address, part.size)
            elif all(part.is_plain for part in read.parts):
                self._move_plain(read, take_slot, verify, scratch)
            else:
                self._move_wide(read, take_slot, verify)
        if self._permutes:
            self._permute_completed(read)

    def _move_plain(
        self, read: ReadRequest, take_slot: Callable[[], PinnedSlot], verify: bool, scratch: ScratchBuffer
    ) -> None:
        """Copy neighbours in the target together, with the padding between them."""
        clusters, gaps = _clusters(read.parts, self._pads)
        starts = [start for start, _, _ in clusters]

        def destination(part: StridedCopy) -> memoryview:
            start, _, offset = clusters[bisect_right(starts, part.target) - 1]
            first = offset + part.target - start
            return take_slot().view[first : first + part.size]

        deliver(read, self._task, destination, verify=verify, scratch=scratch)
        slot = take_slot()
        for offset, gap in gaps:
            slot.view[offset : offset + gap] = bytes(gap)
        for start, end, offset in clusters:
            self._device.copy(self._target.address(start), slot.address + offset, end - start)

    def _move_wide(self, read: ReadRequest, take_slot: Callable[[], PinnedSlot], verify: bool) -> None:
        """Copy all bytes of a request to the device, which picks the blocks."""
        size = read.end - read.start
        part = StridedCopy(read.start, 0, size)
        whole = ReadRequest(read.source, read.start, read.end, (part,), leaves=read.leaves)

        def destination(part: StridedCopy) -> memoryview:
            return take_slot().view[part.target : part.target + part.size]

        deliver(whole, self._task, destination, verify=verify, scratch=ScratchBuffer())
        slot = take_slot()
        for part in read.parts:
            self._device.copy_blocks(
                self._target.at(part.target, part.target_span),
                slot.address + part.source - read.start,
                part.span,
                (part.block, part.counts),
                (part.target_strides, part.strides),
            )

    def _permute_of(self, part: StridedCopy) -> int | None:
        number = bisect_right(self._starts, part.target) - 1
        if number < 0:
            return None
        permute = self._permutes[number]
        return number if part.target < permute.target + permute.size else None

    def _permute_completed(self, read: ReadRequest) -> None:
        """Permute the tensors that this read completed. Its copies are already enqueued."""
        for part in read.parts:
            number = self._permute_of(part)
            if number is None:
                continue
            with self._lock:
                self._remaining[number] -= part.size
                if self._remaining[number] == 0:
                    permute = self._permutes[number]
                    self._device.permute(self._target.at(permute.target, permute.size), permute)


def _clusters(
    parts: Sequence[StridedCopy], pads: Mapping[int, int]
) -> tuple[list[tuple[int, int, int]], list[tuple[int, int]]]:
    """Return (start, end, offset in the slot), ascending, and (offset, size) of the padding between parts."""
    out: list[tuple[int, int, int]] = []
    gaps: list[tuple[int, int]] = []
    offset = 0
    for part in sorted(parts, key=lambda part: part.target):
        end = part.target + part.size
        start, last, begin = out[-1] if out else (0, -1, 0)
        gap = part.target - last
        # Any other bytes than padding between two parts belong to another request.
        if out and (gap == 0 or (gap <= _MAX_PAD_BYTES and pads.get(last) == gap)):
            gaps.append((offset, gap))
            out[-1] = (start, end, begin)
            offset += gap + part.size
        else:
            out.append((part.target, end, offset))
            offset += part.size
    return out, gaps
