"""Blocks of bytes that lie apart in a source, in a target, or in both: cut, clipped to a window, and copied.

A run of a plan says where bytes of the view come from; a patch is any part of a run, so it has strides on
both sides. Arithmetic is pure; `copy_patch` is the one place where bytes are packed and unpacked. numpy lets
other threads run meanwhile.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from warpdata.formats.tensors.plan import Contiguous, DataRun

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Patch", "clip_patch", "copy_patch", "patch_of", "split_patch"]

_WORDS = (8, 4, 2)


class Patch(NamedTuple):
    """Blocks of `block` bytes, `counts` of them along each axis; `strides` and `target_strides` are in bytes.

    A named tuple, because large loads are made of many thousands of them.
    """

    source: int
    target: int
    block: int
    counts: tuple[int, ...] = ()
    strides: tuple[int, ...] = ()
    target_strides: tuple[int, ...] = ()

    @property
    def is_plain(self) -> bool:
        """One block."""
        return not self.counts

    @property
    def size(self) -> int:
        return self.block * math.prod(self.counts)

    @property
    def span(self) -> int:
        """From the first byte to the last, in the source."""
        return sum((n - 1) * s for n, s in zip(self.counts, self.strides, strict=True)) + self.block

    @property
    def target_span(self) -> int:
        return sum((n - 1) * s for n, s in zip(self.counts, self.target_strides, strict=True)) + self.block

    def moved(self, source: int, target: int = 0) -> Patch:
        """The same blocks, that much further on."""
        return self._replace(source=self.source + source, target=self.target + target)


def patch_of(run: DataRun) -> Patch:
    """A whole run: its target is dense."""
    if isinstance(run, Contiguous):
        return Patch(run.source, run.target, run.size)
    return Patch(run.source, run.target, run.block, run.counts, run.strides, _dense(run.counts, run.block))


def split_patch(patch: Patch, most: int) -> Iterator[Patch]:
    """In parts of at most `most` bytes each, in the order of its axes. One block may be cut, too."""
    if patch.size <= most:
        yield patch
    elif patch.is_plain:
        for at in range(0, patch.block, most):
            yield Patch(patch.source + at, patch.target + at, min(most, patch.block - at))
    else:
        count, below = patch.counts[0], patch.size // patch.counts[0]
        group = max(1, most // below)
        for first in range(0, count, group):
            steps = min(group, count - first)
            part = patch.moved(first * patch.strides[0], first * patch.target_strides[0])
            if steps > 1:
                yield part._replace(counts=(steps, *patch.counts[1:]))
            else:
                yield from split_patch(_without_axis(part), most)


def clip_patch(patch: Patch, start: int, end: int) -> Iterator[Patch]:
    """What of a patch lies in a window of the source, as few patches as its shape allows."""
    yield from _clip(_by_stride(patch), start, end)


def copy_patch(patch: Patch, source: memoryview, source_at: int, target: memoryview, target_at: int) -> None:
    """Copy blocks; `source_at` and `target_at` are the places in the two buffers that positions 0 stand for."""
    word = next((size for size in _WORDS if patch.block % size == 0), 1)
    shape = (*patch.counts, patch.block // word)
    there = _over(target, f"u{word}", shape, (patch.target - target_at, patch.target_strides))
    here = _over(source, f"u{word}", shape, (patch.source - source_at, patch.strides))
    np.copyto(there, here)


def _over(
    buffer: memoryview, word: str, shape: tuple[int, ...], place: tuple[int, tuple[int, ...]]
) -> NDArray[np.unsignedinteger[Any]]:
    return np.ndarray(shape, word, buffer, place[0], (*place[1], np.dtype(word).itemsize))


def _dense(counts: tuple[int, ...], block: int) -> tuple[int, ...]:
    strides, step = [], block
    for count in reversed(counts):
        strides.append(step)
        step *= count
    return tuple(reversed(strides))


def _without_axis(patch: Patch) -> Patch:
    """The first step of the outermost axis."""
    return patch._replace(counts=patch.counts[1:], strides=patch.strides[1:], target_strides=patch.target_strides[1:])


def _by_stride(patch: Patch) -> Patch:
    """Axes with the largest distance in the source outermost, so that a window cuts as few of them as possible."""
    axes = sorted(zip(patch.strides, patch.counts, patch.target_strides, strict=True), reverse=True)
    if not axes:
        return patch
    strides, counts, targets = zip(*axes, strict=True)
    return patch._replace(counts=counts, strides=strides, target_strides=targets)


def _clip(patch: Patch, start: int, end: int) -> Iterator[Patch]:
    stop = patch.source + patch.span
    if start <= patch.source and stop <= end:
        yield patch
        return
    if stop <= start or patch.source >= end:
        return
    if patch.is_plain:
        first, last = max(start, patch.source), min(end, stop)
        yield Patch(first, patch.target + first - patch.source, last - first)
        return
    inner, count, stride = _without_axis(patch), patch.counts[0], patch.strides[0]
    if stride == 0:
        for part in _clip(inner, start, end):
            yield _with_axis(part, count, 0, patch.target_strides[0])
        return
    # Steps of the outermost axis that touch the window, and among them those that lie in it as a whole.
    touched = _steps(patch.source, stride, count, (start - inner.span + 1, end - 1))
    whole = _steps(patch.source, stride, count, (start, end - inner.span))
    if not whole:
        whole = range(touched.stop, touched.stop)
    for step in (*range(touched.start, whole.start), *range(whole.stop, touched.stop)):
        yield from _clip(inner.moved(step * stride, step * patch.target_strides[0]), start, end)
    if whole:
        part = inner.moved(whole.start * stride, whole.start * patch.target_strides[0])
        yield _with_axis(part, len(whole), stride, patch.target_strides[0])


def _steps(origin: int, stride: int, count: int, window: tuple[int, int]) -> range:
    """The steps that begin in a window, both ends included."""
    first = max(0, -(-(window[0] - origin) // stride))
    last = min(count - 1, (window[1] - origin) // stride)
    return range(first, max(first, last + 1))


def _with_axis(patch: Patch, count: int, stride: int, target_stride: int) -> Patch:
    if count == 1:
        return patch
    return patch._replace(
        counts=(count, *patch.counts),
        strides=(stride, *patch.strides),
        target_strides=(target_stride, *patch.target_strides),
    )
