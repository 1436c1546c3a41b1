"""Bytes on their way through this machine's memory: from sources into a target, and from a view back.

By the time it is called, coverage has been checked and the target is large enough and writable. How bytes get
into the memory of another device is the business of `device_movement`. Implements "Reads" and "Writing back" of
docs/specs/tensors.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from warpdata.errors import StorageError, TensorsCorruptedError
from warpdata.formats.tensors.plan import Pad, Permute, Run, ViewPlan
from warpdata.formats.tensors.reads import Read
from warpdata.formats.tensors.shards import FileShards
from warpdata.formats.tensors.sources import ByteSource, DirectSource, DoubtedSource, FileSource, ParallelSource
from warpdata.formats.tensors.strided_copy import Patch, copy_patch, patch_of
from warpdata.formats.tensors.targets import HostTarget
from warpdata.formats.tensors.verified_read import Leaves
from warpdata.formats.tensors.workers import for_each, processors
from warpdata.limits import VIEW_THREAD_BYTES, VIEW_THREADS

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Scratch", "Work", "deliver", "fill", "threads_for", "write_back"]

_ITEMS = {1: "u1", 2: "u2", 4: "u4", 8: "u8", 16: "c16"}


@dataclass(frozen=True, slots=True)
class Work:
    """Everything there is to do for one target: what to read from where, and what follows."""

    runs: tuple[Run, ...]
    permutes: tuple[Permute, ...]
    reads: tuple[Read, ...]
    sources: tuple[ByteSource, ...]
    leaves: Leaves | None = None
    direct: tuple[bool, ...] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "direct", tuple(isinstance(source, DirectSource) for source in self.sources))


def fill(work: Work, target: HostTarget, threads: int | None = None) -> None:
    """Make the target what the runs say."""
    for run in work.runs:
        if isinstance(run, Pad):
            target.at(run.target, run.size)[:] = bytes(run.size)
    crew = threads_for(work, threads)

    def place(part: Patch) -> memoryview:
        return target.at(part.target, part.target_span)

    @contextmanager
    def reading() -> Iterator[Callable[[Read], None]]:
        scratch = Scratch()
        yield lambda read: deliver(read, work, place, check=bool(read.leaves), scratch=scratch)

    @contextmanager
    def permuting() -> Iterator[Callable[[tuple[NDArray[Any], NDArray[Any]]], None]]:
        yield lambda pair: np.copyto(*pair)

    for_each(work.reads, crew, reading)
    for permute in work.permutes:
        memory = target.at(permute.target, permute.size)
        for_each(_bands(memory, permute, permute.shape, permute.order), crew, permuting)


def threads_for(work: Work, wanted: int | None = None, *, spare: bool = False) -> int:
    """How many threads to read with: as the sources like it, and no more than there is work for.

    `spare`: some processors are left to whoever copies what was read.
    """
    liked = [source.concurrency if isinstance(source, ParallelSource) else 1 for source in work.sources]
    most = min(min(liked, default=1) if 1 in liked else max(liked, default=1), VIEW_THREADS)
    if wanted is not None:
        most = wanted if most > 1 else 1
    elif spare and most == processors():
        most -= most // 4
    if all(isinstance(source, FileSource | FileShards) for source in work.sources):
        most = min(most, -(-sum(read.size for read in work.reads) // VIEW_THREAD_BYTES))
    return max(1, min(most, len(work.reads)))


def write_back(plan: ViewPlan, data: memoryview, canonical: memoryview) -> None:
    """The inverse of a plan: put a view's bytes where they belong in the canonical ByteSpace.

    `data` is not changed. Bytes that the view does not cover are left alone.
    """
    permutes = {permute.name: permute for permute in plan.permutes}
    for run in plan.data_runs:
        block = data[run.target : run.target + run.size]
        permute = permutes.get(run.name)
        if permute is not None:
            block = memoryview(bytearray(block))
            for there, here in _bands(block, permute, permute.permuted_shape, permute.inverse_order):
                np.copyto(there, here)
        patch = patch_of(run)
        turned = patch._replace(
            source=0,
            target=patch.source,
            strides=patch.target_strides,
            target_strides=patch.strides,
        )
        copy_patch(turned, block, 0, canonical, 0)


def deliver(read: Read, work: Work, place: Callable[[Patch], memoryview], *, check: bool, scratch: Scratch) -> None:
    """Fetch one request and put its parts where `place` says. Straight, where the source and the parts allow it."""
    source: Any = work.sources[read.source]
    part, size = read.parts[0], read.end - read.start
    if read.gathers:
        source.gather(part, place(part), part.target)
        return
    whole = len(read.parts) == 1 and part.block == size
    vectors = None if check or whole or not work.direct[read.source] else _vectors(read, place)
    if vectors is not None:
        source.read_into(read.start, vectors)
        return
    if work.direct[read.source]:
        data = place(part) if whole else scratch.take(size)
        source.read_into(read.start, [data])
    else:
        whole = False
        data = memoryview(source.read_range(read.start, read.end)).cast("B")
        if len(data) != size:
            raise StorageError(f"a source gave {len(data)} bytes for the range {read.start}…{read.end}")
    if check and work.leaves is not None:
        data = _checked(read, source, work.leaves, data)
    if not whole:
        for piece in read.parts:
            copy_patch(piece, data, read.start, place(piece), piece.target)


def _checked(read: Read, source: Any, leaves: Leaves, data: memoryview) -> memoryview:
    """The bytes of a request, if they are what they should be; once more, where a nearer copy was to blame."""
    try:
        leaves.check(read.leaves, data)
    except TensorsCorruptedError:
        if not isinstance(source, DoubtedSource) or not source.invalidate(read.start, read.end):
            raise
        data = memoryview(source.read_range(read.start, read.end)).cast("B")
        leaves.check(read.leaves, data)
    return data


class Scratch:
    """Memory of one thread for bytes on their way, kept from one request to the next."""

    __slots__ = ("_memory",)

    def __init__(self) -> None:
        self._memory = memoryview(bytearray())

    def take(self, size: int) -> memoryview:
        if len(self._memory) < size:
            self._memory = memoryview(bytearray(size))
        return self._memory[:size]


def _vectors(read: Read, place: Callable[[Patch], memoryview]) -> list[memoryview] | None:
    """The places a read fills, in its own order; `None` where its bytes must be packed or used twice."""
    out: list[memoryview] = []
    at = read.start
    for part in read.parts:
        if not part.is_plain or part.source < at:
            return None
        if part.source > at:
            out.append(memoryview(bytearray(part.source - at)))
        out.append(place(part))
        at = part.source + part.block
    return out


def _bands(
    place: memoryview, permute: Permute, shape: tuple[int, ...], order: tuple[int, ...]
) -> list[tuple[NDArray[Any], NDArray[Any]]]:
    """Permute in place, by way of a copy of this one tensor: pairs of (there, here), for any order of copying."""
    span = np.frombuffer(place, np.uint8)
    items = _ITEMS[permute.item_bytes]
    here = span.copy().view(items).reshape(shape).transpose(order)
    there = span.view(items).reshape(here.shape)
    rows = max(1, VIEW_THREAD_BYTES * len(there) // max(1, permute.size))
    return [(there[at : at + rows], here[at : at + rows]) for at in range(0, len(there), rows)]
