"""View plans: the canonical bytes of a view, and the position of each in the view's ByteSpace. Pure.

Runs tile the view's ByteSpace without gap or overlap. Their inverse writes a view back into the canonical ByteSpace.
`reads` decides how bytes are fetched. Implements "View ByteSpace" and "Runs" of docs/specs/tensors.md.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from warpdata.errors import BadInputError
from warpdata.formats.tensors.index import TensorEntry, TensorIndex, align, compact_stride
from warpdata.formats.tensors.spec import NormalView, TensorSelection

__all__ = ["Contiguous", "DataRun", "Pad", "Permute", "Run", "Strided", "ViewPlan", "iter_blocks", "make_plan"]


@dataclass(frozen=True, slots=True)
class Pad:
    """`size` zero bytes."""

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
        """Bytes from the begin of the first block to the end of the last."""
        return sum((n - 1) * s for n, s in zip(self.counts, self.strides, strict=True)) + self.block


DataRun: TypeAlias = Contiguous | Strided
Run: TypeAlias = Pad | DataRun


@dataclass(frozen=True, slots=True)
class Permute:
    """Reorder the axes of the tensor of `shape` at `target`, after its run has been read.

    The inverse, before a write, reorders the axes of `permuted_shape` by `inverse_order`.
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


@dataclass(frozen=True, slots=True, repr=False)
class ViewPlan:
    """The index of a view, its runs in target order, and the permutations that follow them."""

    index: TensorIndex
    names: tuple[str, ...]
    runs: tuple[Run, ...]
    permutes: tuple[Permute, ...]
    size: int

    def __repr__(self) -> str:
        return f"ViewPlan({len(self.names)} tensors, {len(self.runs)} runs, {self.size:,} bytes)"

    @property
    def data_runs(self) -> tuple[DataRun, ...]:
        return tuple(run for run in self.runs if not isinstance(run, Pad))


def make_plan(index: TensorIndex, view: NormalView, names: Sequence[str] | None = None) -> ViewPlan:
    """Return the plan of a view, or of some of its tensors, packed in the order given.

    The identity of all tensors is the canonical ByteSpace itself.
    """
    if names is None and not view.selections:
        return _canonical_plan(index)
    chosen = tuple(index.names() if names is None else names)
    if len(set(chosen)) != len(chosen):
        raise BadInputError("a view names a tensor twice")
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
    """Yield every block of a run as (source, target, size), in target order."""
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


def _place(
    source: TensorEntry, selection: TensorSelection | None, start: int
) -> tuple[TensorEntry, DataRun, Permute | None]:
    """Place one tensor at `start`: its whole storage, or the selected elements in row-major order."""
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


def _gather(source: TensorEntry, selection: TensorSelection, target: int) -> DataRun:
    """Return the selected elements in row-major order, in the largest blocks that the strides allow."""
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
