"""Strided copies: blocks of bytes with strides in the source and in the target.

A `StridedCopy` is a run of a plan, or any part of one. Splitting and clipping are pure; `copy_strided` moves the
bytes, and NumPy releases the interpreter lock meanwhile.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from warpdata.formats.tensors.plan import Contiguous, DataRun

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["StridedCopy", "clip_copy", "copy_of", "copy_strided", "iter_copy_blocks", "split_copy"]

_WORDS = (8, 4, 2)


class StridedCopy(NamedTuple):
    """Blocks of `block` bytes, `counts` of them along each axis; `strides` and `target_strides` are in bytes.

    A named tuple, because a large load has many thousands of them.
    """

    source: int
    target: int
    block: int
    counts: tuple[int, ...] = ()
    strides: tuple[int, ...] = ()
    target_strides: tuple[int, ...] = ()

    @property
    def is_plain(self) -> bool:
        """True for a single block."""
        return not self.counts

    @property
    def size(self) -> int:
        return self.block * math.prod(self.counts)

    @property
    def span(self) -> int:
        """Bytes from the first to the last, in the source."""
        return sum((n - 1) * s for n, s in zip(self.counts, self.strides, strict=True)) + self.block

    @property
    def target_span(self) -> int:
        return sum((n - 1) * s for n, s in zip(self.counts, self.target_strides, strict=True)) + self.block

    def moved(self, source: int, target: int = 0) -> StridedCopy:
        """Return the same blocks, shifted in source and target."""
        return self._replace(source=self.source + source, target=self.target + target)


def copy_of(run: DataRun) -> StridedCopy:
    """Return the copy of a whole run, whose target is dense."""
    if isinstance(run, Contiguous):
        return StridedCopy(run.source, run.target, run.size)
    return StridedCopy(run.source, run.target, run.block, run.counts, run.strides, _dense(run.counts, run.block))


def split_copy(copy: StridedCopy, max_bytes: int) -> Iterator[StridedCopy]:
    """Yield parts of at most `max_bytes` each, in the order of the axes. A long block is cut, too."""
    if copy.size <= max_bytes:
        yield copy
    elif copy.is_plain:
        for at in range(0, copy.block, max_bytes):
            yield StridedCopy(copy.source + at, copy.target + at, min(max_bytes, copy.block - at))
    else:
        count, below = copy.counts[0], copy.size // copy.counts[0]
        group = max(1, max_bytes // below)
        for first in range(0, count, group):
            steps = min(group, count - first)
            part = copy.moved(first * copy.strides[0], first * copy.target_strides[0])
            if steps > 1:
                yield part._replace(counts=(steps, *copy.counts[1:]))
            else:
                yield from split_copy(_without_axis(part), max_bytes)


def clip_copy(copy: StridedCopy, start: int, end: int) -> Iterator[StridedCopy]:
    """Yield the part of a copy inside of a window of the source, in as few copies as its shape allows."""
    yield from _clip(_by_stride(copy), start, end)


def iter_copy_blocks(copy: StridedCopy) -> Iterator[tuple[int, int, int]]:
    """Yield every block of a copy as (source, target, size)."""
    starts = [(copy.source, copy.target)]
    for count, stride, target_stride in zip(copy.counts, copy.strides, copy.target_strides, strict=True):
        starts = [(s + n * stride, t + n * target_stride) for s, t in starts for n in range(count)]
    for source, target in starts:
        yield source, target, copy.block


def copy_strided(copy: StridedCopy, source: memoryview, source_at: int, target: memoryview, target_at: int) -> None:
    """Copy the blocks. `source_at` and `target_at` are the positions of the first byte of each buffer."""
    word = next((size for size in _WORDS if copy.block % size == 0), 1)
    shape = (*copy.counts, copy.block // word)

    def blocks(buffer: memoryview, offset: int, strides: tuple[int, ...]) -> NDArray[np.unsignedinteger[Any]]:
        return np.ndarray(shape, f"u{word}", buffer, offset, (*strides, word))

    np.copyto(
        blocks(target, copy.target - target_at, copy.target_strides),
        blocks(source, copy.source - source_at, copy.strides),
    )


def _dense(counts: tuple[int, ...], block: int) -> tuple[int, ...]:
    strides, step = [], block
    for count in reversed(counts):
        strides.append(step)
        step *= count
    return tuple(reversed(strides))


def _without_axis(copy: StridedCopy) -> StridedCopy:
    """Return the first step of the outermost axis."""
    return copy._replace(counts=copy.counts[1:], strides=copy.strides[1:], target_strides=copy.target_strides[1:])


def _by_stride(copy: StridedCopy) -> StridedCopy:
    """Sort the axes by source stride, largest first, so that a window cuts as few of them as possible."""
    axes = sorted(zip(copy.strides, copy.counts, copy.target_strides, strict=True), reverse=True)
    if not axes:
        return copy
    strides, counts, targets = zip(*axes, strict=True)
    return copy._replace(counts=counts, strides=strides, target_strides=targets)


def _clip(copy: StridedCopy, start: int, end: int) -> Iterator[StridedCopy]:
    stop = copy.source + copy.span
    if start <= copy.source and stop <= end:
        yield copy
        return
    if stop <= start or copy.source >= end:
        return
    if copy.is_plain:
        first, last = max(start, copy.source), min(end, stop)
        yield StridedCopy(first, copy.target + first - copy.source, last - first)
        return
    inner, count, stride = _without_axis(copy), copy.counts[0], copy.strides[0]
    if stride == 0:
        for part in _clip(inner, start, end):
            yield _with_axis(part, count, 0, copy.target_strides[0])
        return
    # Steps of the outermost axis that touch the window, and among them those inside of it.
    touched = _steps(copy.source, stride, count, (start - inner.span + 1, end - 1))
    whole = _steps(copy.source, stride, count, (start, end - inner.span))
    if not whole:
        whole = range(touched.stop, touched.stop)
    for step in (*range(touched.start, whole.start), *range(whole.stop, touched.stop)):
        yield from _clip(inner.moved(step * stride, step * copy.target_strides[0]), start, end)
    if whole:
        part = inner.moved(whole.start * stride, whole.start * copy.target_strides[0])
        yield _with_axis(part, len(whole), stride, copy.target_strides[0])


def _steps(origin: int, stride: int, count: int, window: tuple[int, int]) -> range:
    """Return the steps that begin in a window, both ends included."""
    first = max(0, -(-(window[0] - origin) // stride))
    last = min(count - 1, (window[1] - origin) // stride)
    return range(first, max(first, last + 1))


def _with_axis(copy: StridedCopy, count: int, stride: int, target_stride: int) -> StridedCopy:
    if count == 1:
        return copy
    return copy._replace(
        counts=(count, *copy.counts),
        strides=(stride, *copy.strides),
        target_strides=(target_stride, *copy.target_strides),
    )
