"""Which canonical bytes make a view, and where each of them lands. Pure: an index and a normal view in, runs out.

Runs tile the view's ByteSpace from its first byte to its last, without gap or overlap. The same runs read
backwards are the inverse: how a view's bytes go back into the canonical ByteSpace. How bytes are fetched
is the business of `reads`. Implements "View ByteSpace" and "Runs" of docs/specs/tensors.md.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from warpdata.errors import InvalidViewError
from warpdata.formats.tensors.index import TensorEntry, TensorIndex, align, compact_stride
from warpdata.formats.tensors.spec import NormalView, Selection

__all__ = ["Contiguous", "DataRun", "Pad", "Permute", "Run", "Strided", "ViewPlan", "iter_blocks", "make_plan"]


@dataclass(frozen=True, slots=True)
class Pad:
    """Zeros."""

    target: int
    size: int


@dataclass(frozen=True, slots=True)
class Contiguous:
    """`size` bytes from `source` on."""

    name: str
    target: int
    source: int
    size: int


@dataclass(frozen=True, slots=True)
class Strided:
    """Blocks of `block` bytes. `counts` and `strides` (in bytes) go from the outermost axis to the innermost."""

    name: str
    target: int
    source: int
    block: int
    counts: tuple[int, ...]
    strides: tuple[int, ...]

    @property
    def size(self) -> int:
        return self.block * math.prod(self.counts)

    @property
    def span(self) -> int:
        """From the first byte of the first block to the last byte of the last."""
        return sum((n - 1) * s for n, s in zip(self.counts, self.strides, strict=True)) + self.block


DataRun: TypeAlias = Contiguous | Strided
Run: TypeAlias = Pad | DataRun


@dataclass(frozen=True, slots=True)
class Permute:
    """After its run: the `shape` that lies at `target` gets its axes in this order.

    The inverse, before writing back: the permuted shape gets its axes in `inverse_order`.
    """

    name: str
    target: int
    shape: tuple[int, ...]
    order: tuple[int, ...]
    item_bytes: int

    @property
    def size(self) -> int:
        return math.prod(self.shape) * self.item_bytes

    @property
    def permuted_shape(self) -> tuple[int, ...]:
        return tuple(self.shape[dim] for dim in self.order)

    @property
    def inverse_order(self) -> tuple[int, ...]:
        return tuple(self.order.index(dim) for dim in range(len(self.order)))


@dataclass(frozen=True, slots=True)
class ViewPlan:
    """A view's own index, its runs in target order, and the transforms that follow them."""

    index: TensorIndex
    names: tuple[str, ...]
    runs: tuple[Run, ...]
    permutes: tuple[Permute, ...]
    size: int

    @property
    def data_runs(self) -> tuple[DataRun, ...]:
        return tuple(run for run in self.runs if not isinstance(run, Pad))


def make_plan(index: TensorIndex, view: NormalView, names: Sequence[str] | None = None) -> ViewPlan:
    """The plan of a view, or of some of its tensors packed in the order given.

    The identity of all tensors is the canonical ByteSpace itself.
    """
    if names is None and not view.selections:
        return _canonical_plan(index)
    chosen = tuple(index.names() if names is None else names)
    if len(set(chosen)) != len(chosen):
        raise InvalidViewError("a tensor is named twice in one view")
    selections = dict(view.selections)
    runs: list[Run] = []
    permutes: list[Permute] = []
    entries: list[TensorEntry] = []
    cursor = 0
    for name in chosen:
        source = index[name]
        start = align(cursor)
        if start > cursor:
            runs.append(Pad(cursor, start - cursor))
        entry, run, permute = _place(source, selections.get(name), start)
        entries.append(entry)
        cursor = start + entry.size
        if entry.size:
            runs.append(run)
        if permute is not None:
            permutes.append(permute)
    ordered = tuple(sorted(entries, key=lambda entry: entry.name))
    return ViewPlan(TensorIndex(ordered), chosen, tuple(runs), tuple(permutes), cursor)


def iter_blocks(run: DataRun) -> Iterator[tuple[int, int, int]]:
    """Every block of a run as (source, target, size), in target order."""
    if isinstance(run, Contiguous):
        yield run.source, run.target, run.size
        return
    starts = [run.source]
    for count, stride in zip(run.counts, run.strides, strict=True):
        starts = [start + step * stride for start in starts for step in range(count)]
    for position, start in enumerate(starts):
        yield start, run.target + position * run.block, run.block


def _canonical_plan(index: TensorIndex) -> ViewPlan:
    runs: list[Run] = []
    cursor = 0
    storages = {(entry.offset, entry.size): entry.name for entry in reversed(index.entries) if entry.size}
    for (offset, size), name in sorted(storages.items()):
        if offset > cursor:
            runs.append(Pad(cursor, offset - cursor))
        runs.append(Contiguous(name, offset, offset, size))
        cursor = offset + size
    if index.total_size > cursor:
        runs.append(Pad(cursor, index.total_size - cursor))
    return ViewPlan(index, tuple(index.names()), tuple(runs), (), index.total_size)


def _place(source: TensorEntry, selection: Selection | None, start: int) -> tuple[TensorEntry, DataRun, Permute | None]:
    """Where one tensor goes: a whole storage as it is, or what is selected, in row-major order."""
    if selection is None:
        kept = TensorEntry(
            source.name, start, source.size, source.shape, source.stride, source.dtype, source.storage_offset
        )
        return kept, Contiguous(source.name, start, source.offset, source.size), None
    item = source.dtype.item_bytes
    cut = selection.cut_shape
    shape = tuple(cut[dim] for dim in selection.order)
    entry = TensorEntry(source.name, start, math.prod(cut) * item, shape, compact_stride(shape), source.dtype)
    run = _gather(source, selection, start)
    if not selection.permutes or not entry.size:
        return entry, run, None
    return entry, run, Permute(source.name, start, cut, selection.order, item)


def _gather(source: TensorEntry, selection: Selection, target: int) -> DataRun:
    """The selected elements in row-major order, as few and as large blocks as the strides allow."""
    item = source.dtype.item_bytes
    first = source.storage_offset + sum(
        bound.start * stride for bound, stride in zip(selection.bounds, source.stride, strict=True)
    )
    block = item
    axes: list[tuple[int, int]] = []
    for bound, stride in zip(reversed(selection.bounds), reversed(source.stride), strict=True):
        step = bound.step * stride * item
        if bound.length == 1:
            continue
        if not axes and step == block:
            block *= bound.length
        elif axes and step == axes[-1][0] * axes[-1][1]:
            axes[-1] = (axes[-1][0] * bound.length, axes[-1][1])
        else:
            axes.append((bound.length, step))
    begin = source.offset + first * item
    if not axes:
        return Contiguous(source.name, target, begin, block)
    counts, strides = zip(*reversed(axes), strict=True)
    return Strided(source.name, target, begin, block, counts, strides)
