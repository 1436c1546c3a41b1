"""Transfers: bytes from sources into host memory, from a view back to the canonical ByteSpace, and the engine.

Coverage is checked and the target is large enough and writable before a transfer starts. `cuda` does the transfers
into device memory. Implements "Reads" and "Writing back" of docs/specs/tensors.md.
"""

from __future__ import annotations

import mmap
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from warpdata.errors import BadInputError, CorruptError, StorageError
from warpdata.formats.tensors import cuda
from warpdata.formats.tensors.buffers import HostTarget
from warpdata.formats.tensors.failover import Failover
from warpdata.formats.tensors.leaves import LeafDigests
from warpdata.formats.tensors.plan import Pad, Permute, Run, ViewPlan
from warpdata.formats.tensors.reads import PIECE_BYTES, ReadRequest
from warpdata.formats.tensors.shards import FileShards, gather
from warpdata.formats.tensors.strided_copy import StridedCopy, copy_of, copy_strided
from warpdata.primitives.fork import register_after_fork
from warpdata.primitives.parallel import CPU_POOL, IO_POOL, usable_cores
from warpdata.settings import apply_budgets
from warpdata.storage import (
    ConcurrentSource,
    DirectSource,
    FileRangeSource,
    InvalidatableSource,
    RangeSource,
    retry_corrupt,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Engine", "ScratchBuffer", "TransferTask", "deliver", "fill", "threads_for", "write_back"]

_BYTES_PER_THREAD = 1024**2  # fewer bytes than this are not worth another thread
_STAGING_BYTES = 128 * 1024**2
_ITEM_TYPES = {1: "u1", 2: "u2", 4: "u4", 8: "u8", 16: "c16"}


@dataclass(frozen=True, slots=True)
class TransferTask:
    """The work for one target: the requests to each source, and the padding and permutations of the plan."""

    runs: tuple[Run, ...]
    permutes: tuple[Permute, ...]
    reads: tuple[ReadRequest, ...]
    sources: tuple[RangeSource, ...]
    leaves: LeafDigests | None = None
    failover: Failover | None = None
    direct: tuple[bool, ...] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "direct", tuple(isinstance(source, DirectSource) for source in self.sources))


class Engine:
    """Runs transfers, for one artifact or several: the number of threads, and the bound on pinned memory.

    Pinned memory is allocated by the first transfer to a device and kept, because pinning takes as long as filling
    the memory many times. `close()` frees it, and so does every error. Costs nothing until it is used.
    """

    def __init__(self, *, threads: int | None = None, staging_bytes: int = _STAGING_BYTES) -> None:
        if (threads is not None and threads < 1) or staging_bytes < 1:
            raise BadInputError(f"threads={threads} and staging_bytes={staging_bytes} must be at least 1")
        apply_budgets()
        self.threads = threads
        self.staging_bytes = staging_bytes
        self._lock = threading.Lock()
        self._devices: dict[int, tuple[cuda.PinnedPool, cuda.TransferDevice]] = {}
        self._close = weakref.finalize(self, _close_pools, self._devices)
        register_after_fork(self._reset_after_fork)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Engine(threads={self.threads}, staging_bytes={self.staging_bytes})"

    @property
    def pinned_bytes(self) -> int:
        """Pinned memory that the engine holds now."""
        return sum(pool.pinned_bytes for pool, _ in self._devices.values())

    def fill(self, task: TransferTask, target: HostTarget | cuda.DeviceTarget) -> None:
        """Carry out the task. Transfers to devices run one at a time."""
        if isinstance(target, HostTarget):
            fill(task, target, self.threads)
            return
        with self._lock:
            try:
                pool, device = self._pinned_pool(target.device, cuda.slot_bytes_for(task.reads))
                cuda.fill_device(task, target, pool, device, threads=self.threads)
            except BaseException:
                _close_pools(self._devices)
                raise

    def close(self) -> None:
        """Free pinned memory. The engine stays usable; safe to call twice."""
        with self._lock:
            _close_pools(self._devices)

    def _pinned_pool(self, device: Any, slot_bytes: int) -> tuple[cuda.PinnedPool, cuda.TransferDevice]:
        """Return a pool on this device with slots of at least this size."""
        known = self._devices.get(device.index)
        if known is not None and known[0].slot_bytes >= slot_bytes:
            return known
        if known is not None:
            known[0].close()
        cuda_device = known[1] if known is not None else cuda.CudaDevice(device)
        size = -(-max(slot_bytes, PIECE_BYTES) // mmap.PAGESIZE) * mmap.PAGESIZE
        made = (cuda.PinnedPool(cuda_device, size, max(2, self.staging_bytes // size)), cuda_device)
        self._devices[device.index] = made
        return made

    def _reset_after_fork(self) -> None:
        """Forget devices and pinned memory, which belong to the parent process."""
        self._lock = threading.Lock()
        self._devices.clear()


def _close_pools(devices: dict[int, tuple[cuda.PinnedPool, cuda.TransferDevice]]) -> None:
    for pool, _ in devices.values():
        pool.close()
    devices.clear()


def fill(task: TransferTask, target: HostTarget, threads: int | None = None) -> None:
    """Carry out a task in host memory."""
    for run in task.runs:
        if isinstance(run, Pad):
            target.at(run.target, run.size)[:] = bytes(run.size)
    limit = threads_for(task, threads)

    def destination(part: StridedCopy) -> memoryview:
        return target.at(part.target, part.target_span)

    @contextmanager
    def reader() -> Iterator[Callable[[ReadRequest], None]]:
        scratch = ScratchBuffer()
        yield lambda read: deliver(read, task, destination, verify=bool(read.leaves), scratch=scratch)

    IO_POOL.for_each(task.reads, reader, limit=limit)
    for permute in task.permutes:
        bands = _bands(target.at(permute.target, permute.size), permute, permute.shape, permute.order)
        CPU_POOL.for_each(bands, lambda: nullcontext(_copy_band), limit=limit)


def threads_for(task: TransferTask, threads: int | None = None, *, spare: bool = False) -> int:
    """Return the number of reading threads: what the sources allow, and no more than there is work for.

    `spare` leaves a quarter of the cores to the threads that copy what was read.
    """
    allowed = [source.concurrency if isinstance(source, ConcurrentSource) else 1 for source in task.sources]
    most = 1 if 1 in allowed else max(allowed, default=1)
    if threads is not None:
        most = threads if most > 1 else 1
    elif spare and most == usable_cores():
        most -= most // 4
    if all(isinstance(source, FileRangeSource | FileShards) for source in task.sources):
        most = min(most, -(-sum(read.size for read in task.reads) // _BYTES_PER_THREAD))
    return max(1, min(most, len(task.reads)))


def write_back(plan: ViewPlan, data: memoryview, canonical: memoryview) -> None:
    """Write the bytes of a view to their positions in the canonical ByteSpace: the inverse of a plan.

    `data` is not changed. Bytes outside of the view are left alone.
    """
    permutes = {permute.name: permute for permute in plan.permutes}
    for run in plan.data_runs:
        block = data[run.target : run.target + run.size]
        permute = permutes.get(run.name)
        if permute is not None:
            block = memoryview(bytearray(block))
            for band in _bands(block, permute, permute.permuted_shape, permute.inverse_order):
                _copy_band(band)
        copy = copy_of(run)
        inverse = copy._replace(source=0, target=copy.source, strides=copy.target_strides, target_strides=copy.strides)
        copy_strided(inverse, block, 0, canonical, 0)


def deliver(
    read: ReadRequest,
    task: TransferTask,
    destination: Callable[[StridedCopy], memoryview],
    *,
    verify: bool,
    scratch: ScratchBuffer,
) -> None:
    """Fetch one request and copy its parts to their destinations, without a copy in between where possible.

    With `verify`, a request whose leaves are corrupt is read again if the source can drop a cached copy. If the
    source fails and the artifact has others, the bytes come from them.
    """

    def attempt() -> None:
        _deliver(read, task, destination, verify=verify, scratch=scratch)

    if task.failover is None:
        attempt()
    else:
        task.failover.deliver(read, attempt, destination, verify=verify)


def _deliver(
    read: ReadRequest,
    task: TransferTask,
    destination: Callable[[StridedCopy], memoryview],
    *,
    verify: bool,
    scratch: ScratchBuffer,
) -> None:
    source: Any = task.sources[read.source]
    part, size = read.parts[0], read.end - read.start
    if read.gathers:
        gather(source, part, destination(part), part.target)
        return
    is_direct = task.direct[read.source]
    is_whole = is_direct and len(read.parts) == 1 and part.block == size
    if is_direct and not is_whole and not verify:
        vectors = _vectors(read, destination)
        if vectors is not None:
            source.read_into(read.start, vectors)
            return

    def fetch() -> memoryview:
        if is_direct:
            data = destination(part) if is_whole else scratch.take(size)
            source.read_into(read.start, [data])
        else:
            data = memoryview(source.read_range(read.start, read.end)).cast("B")
            if len(data) != size:
                raise StorageError(f"a source returned {len(data)} bytes for the range {read.start}…{read.end}")
        if verify and task.leaves is not None:
            task.leaves.check(read.leaves, data)
        return data

    def invalidate() -> bool:
        return isinstance(source, InvalidatableSource) and source.invalidate(read.start, read.end)

    data = retry_corrupt(fetch, invalidate, CorruptError)
    if not is_whole:
        for piece in read.parts:
            copy_strided(piece, data, read.start, destination(piece), piece.target)


class ScratchBuffer:
    """Memory of one thread for bytes in transit, reused from request to request."""

    __slots__ = ("_memory",)

    def __init__(self) -> None:
        self._memory = memoryview(bytearray())

    def take(self, size: int) -> memoryview:
        if len(self._memory) < size:
            self._memory = memoryview(bytearray(size))
        return self._memory[:size]


def _vectors(read: ReadRequest, destination: Callable[[StridedCopy], memoryview]) -> list[memoryview] | None:
    """Return the destinations of a read in source order; None if bytes must be packed or are used twice."""
    out: list[memoryview] = []
    at = read.start
    for part in read.parts:
        if not part.is_plain or part.source < at:
            return None
        if part.source > at:
            out.append(memoryview(bytearray(part.source - at)))
        out.append(destination(part))
        at = part.source + part.block
    return out


def _bands(
    memory: memoryview, permute: Permute, shape: tuple[int, ...], order: tuple[int, ...]
) -> list[tuple[NDArray[Any], NDArray[Any]]]:
    """Return (target, source) pairs that permute a tensor in place, in any order, by a copy of this tensor."""
    flat = np.frombuffer(memory, np.uint8)
    items = _ITEM_TYPES[permute.item_bytes]
    source = flat.copy().view(items).reshape(shape).transpose(order)
    target = flat.view(items).reshape(source.shape)
    rows = max(1, _BYTES_PER_THREAD * len(target) // max(1, permute.size))
    return [(target[at : at + rows], source[at : at + rows]) for at in range(0, len(target), rows)]


def _copy_band(band: tuple[NDArray[Any], NDArray[Any]]) -> None:
    np.copyto(*band)
