"""Bytes on their way: from sources into a target, and from a view back into canonical bytes.

The only module that touches a target. By the time it is called, coverage has been checked and the target
is large enough and writable. Implements "Reads" and "Writing back" of docs/specs/tensors.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from warpdata.errors import StorageError
from warpdata.tensors.plan import Contiguous, DataRun, Pad, Permute, ViewPlan
from warpdata.tensors.reads import Read, ReadPlan
from warpdata.tensors.sources import ByteSource, DirectSource

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["fill", "write_back"]

_WORDS = (8, 4, 2)
_ITEMS = {1: "u1", 2: "u2", 4: "u4", 8: "u8", 16: "c16"}


def fill(plan: ViewPlan, reads: ReadPlan, sources: Sequence[ByteSource], target: memoryview) -> None:
    """Make `target` (exactly the view's size) the view's ByteSpace."""
    for run in plan.runs:
        if isinstance(run, Pad):
            target[run.target : run.target + run.size] = bytes(run.size)
    for read in reads.reads:
        _serve(read, sources[read.source], target)
    for permute in plan.permutes:
        _permute(target, permute, permute.shape, permute.order)


def write_back(plan: ViewPlan, data: memoryview, canonical: memoryview) -> None:
    """The inverse of a plan: put a view's bytes where they belong in the canonical ByteSpace.

    `data` is not changed. Bytes that the view does not cover are left alone.
    """
    permutes = {permute.name: permute for permute in plan.permutes}
    for run in plan.data_runs:
        block = data[run.target : run.target + run.size]
        permute = permutes.get(run.name)
        if permute is not None:
            copy = memoryview(bytearray(block))
            _permute(copy, permute, permute.permuted_shape, permute.inverse_order, start=0)
            block = copy
        _scatter(run, block, canonical)


def _serve(read: Read, source: ByteSource, target: memoryview) -> None:
    vectors = _vectors(read, target) if isinstance(source, DirectSource) else None
    if vectors is not None and isinstance(source, DirectSource):
        source.read_into(read.start, vectors)
        return
    data = memoryview(source.read_range(read.start, read.end)).cast("B")
    if len(data) != read.end - read.start:
        raise StorageError(f"a source gave {len(data)} bytes for the range {read.start}…{read.end}")
    for part in read.parts:
        _gather(part, part.source - read.start, data, target)


def _vectors(read: Read, target: memoryview) -> list[memoryview] | None:
    """The places a read fills, in its own order; `None` where its bytes must be packed or used twice."""
    out: list[memoryview] = []
    at = read.start
    for part in read.parts:
        if not isinstance(part, Contiguous) or part.source < at:
            return None
        if part.source > at:
            out.append(memoryview(bytearray(part.source - at)))
        out.append(target[part.target : part.target + part.size])
        at = part.source + part.size
    return out


def _gather(part: DataRun, start: int, data: memoryview, target: memoryview) -> None:
    if isinstance(part, Contiguous):
        target[part.target : part.target + part.size] = data[start : start + part.size]
        return
    packed = np.frombuffer(target, np.uint8, part.size, part.target)
    source, shape, word = _strided(part, start, data)
    np.copyto(packed.view(word).reshape(shape), source)


def _scatter(run: DataRun, block: memoryview, canonical: memoryview) -> None:
    if isinstance(run, Contiguous):
        canonical[run.source : run.source + run.size] = block
        return
    place, shape, word = _strided(run, run.source, canonical)
    place[...] = np.frombuffer(block, np.uint8).view(word).reshape(shape)


def _strided(run: DataRun, start: int, data: memoryview) -> tuple[NDArray[Any], tuple[int, ...], str]:
    """The blocks of a strided run as an array over `data`, in the largest words that fit them."""
    assert not isinstance(run, Contiguous)
    size = next((word for word in _WORDS if run.block % word == 0), 1)
    word, shape = _ITEMS[size], (*run.counts, run.block // size)
    return np.ndarray(shape, word, data, start, (*run.strides, size)), shape, word


def _permute(
    data: memoryview, permute: Permute, shape: tuple[int, ...], order: tuple[int, ...], start: int | None = None
) -> None:
    """In place, by way of a copy of this one tensor."""
    at = permute.target if start is None else start
    span = np.frombuffer(data, np.uint8, permute.size, at)
    items = _ITEMS[permute.item_bytes]
    moved = span.copy().view(items).reshape(shape).transpose(order)
    np.copyto(span.view(items).reshape(moved.shape), moved)
