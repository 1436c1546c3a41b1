"""View specs: the operations of a view, and the normal form that equal specs share.

`narrow` and `transpose` are the operations of version 1: one narrow per tensor, and no mixture of both. `crop` is
the extension: bounds and steps on any axes, and an order of axes, in one operation. All become a
`TensorSelection`. A selection that version 1 can express has its version 1 id. Implements "Specs" of
docs/specs/tensors.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from warpdata.errors import BadInputError
from warpdata.formats.tensors.index import TensorEntry, TensorIndex
from warpdata.limits import MAX_VIEW_OPS
from warpdata.primitives.arguments import check_arguments

__all__ = [
    "Bound",
    "Crop",
    "Narrow",
    "NormalView",
    "Op",
    "TensorSelection",
    "Transpose",
    "ViewSpec",
    "crop",
    "narrow",
    "normalize",
    "transpose",
    "whole",
]


@dataclass(frozen=True, slots=True)
class Narrow:
    """Keep `length` entries of one dimension, from `start`."""

    dim: int
    start: int
    length: int


@dataclass(frozen=True, slots=True)
class Transpose:
    """Swap two dimensions."""

    dim0: int
    dim1: int


@dataclass(frozen=True, slots=True)
class Crop:
    """Keep a slice of each leading dimension, then reorder all dimensions."""

    slices: tuple[slice, ...]
    order: tuple[int, ...] | None = None


Op: TypeAlias = Narrow | Transpose | Crop
ViewSpec: TypeAlias = Mapping[str, Op | Sequence[Op]]


@check_arguments
def narrow(dim: int, start: int, length: int) -> Narrow:
    """Keep `length` entries of dimension `dim`, from `start`. Negative `dim` and `start` count from the end."""
    return Narrow(dim, start, length)


@check_arguments
def transpose(dim0: int, dim1: int) -> Transpose:
    """Swap two dimensions. Negative ones count from the end."""
    return Transpose(dim0, dim1)


def crop(*slices: slice, order: Sequence[int] | None = None) -> Crop:
    """Keep `slices`, one for each leading dimension, then put the dimensions in this order.

    Steps must be positive. Bounds outside of a dimension are an error, not clipped.
    """
    return Crop(tuple(slices), None if order is None else tuple(order))


@dataclass(frozen=True, slots=True)
class Bound:
    """The kept entries of one axis: `length` entries from `start`, every `step`-th."""

    start: int
    length: int
    step: int = 1

    def is_full(self, extent: int) -> bool:
        return self.start == 0 and self.length == extent and self.step == 1


@dataclass(frozen=True, slots=True)
class TensorSelection:
    """The part of one tensor that a view keeps: a bound for every axis, then the order of axes."""

    bounds: tuple[Bound, ...]
    order: tuple[int, ...]

    @property
    def permutes(self) -> bool:
        return self.order != tuple(range(len(self.order)))

    @property
    def cut_shape(self) -> tuple[int, ...]:
        """The shape after the bounds apply, before the axes are reordered."""
        return tuple(bound.length for bound in self.bounds)

    def cuts(self, shape: Sequence[int]) -> list[int]:
        """Return the axes that are not kept whole."""
        return [dim for dim, bound in enumerate(self.bounds) if not bound.is_full(shape[dim])]

    def v1_ops(self, shape: Sequence[int]) -> tuple[Narrow | Transpose, ...] | None:
        """Return the operations of version 1, or None if version 1 cannot express the selection."""
        cut = self.cuts(shape)
        if not self.permutes and len(cut) == 1 and self.bounds[cut[0]].step == 1:
            return (Narrow(cut[0], self.bounds[cut[0]].start, self.bounds[cut[0]].length),)
        return None if cut else _swaps(self.order)


@dataclass(frozen=True, slots=True)
class NormalView:
    """Selections by name, in name order, without identities. Empty: the canonical artifact itself."""

    selections: tuple[tuple[str, TensorSelection], ...]


def whole(entry: TensorEntry) -> TensorSelection:
    """Return the selection that keeps all of a tensor."""
    return TensorSelection(tuple(Bound(0, count) for count in entry.shape), tuple(range(len(entry.shape))))


def normalize(index: TensorIndex, spec: ViewSpec) -> NormalView:
    """Check every operation against the index, and return the normal form."""
    if not isinstance(spec, Mapping):
        raise BadInputError(f"a view spec is a mapping, not {type(spec).__name__}")
    if not spec:
        raise BadInputError("the view spec is empty", hint="Omit the spec to read tensors as they are.")
    selections = []
    for name in spec:
        if not isinstance(name, str):
            raise BadInputError(f"{name!r} is not a tensor name")
        entry = index[name]
        given = spec[name]
        ops = (given,) if isinstance(given, Narrow | Transpose | Crop) else given
        if not isinstance(ops, Sequence) or len(ops) > MAX_VIEW_OPS:
            found = type(ops).__name__
            raise BadInputError(f"{name!r}: expected up to {MAX_VIEW_OPS} operations, not {found}")
        selection = _selection(entry, ops)
        if selection != whole(entry):
            selections.append((name, selection))
    return NormalView(tuple(sorted(selections, key=lambda pair: pair[0])))


def _selection(entry: TensorEntry, ops: Sequence[Op]) -> TensorSelection:
    if len(ops) == 1 and isinstance(ops[0], Crop):
        return _cropped(entry, ops[0])
    bounds, order = list(whole(entry).bounds), list(range(len(entry.shape)))
    narrowed = False
    for op in ops:
        if isinstance(op, Narrow):
            dim = _dimension(entry, op.dim)
            bound = _narrowed(entry, dim, op)
            if not bound.is_full(entry.shape[dim]):
                if narrowed:
                    raise BadInputError(f"{entry.name!r} is narrowed more than once", hint="Use crop().")
                narrowed, bounds[dim] = True, bound
        elif isinstance(op, Transpose):
            one, two = _dimension(entry, op.dim0), _dimension(entry, op.dim1)
            order[one], order[two] = order[two], order[one]
        elif isinstance(op, Crop):
            raise BadInputError(f"{entry.name!r}: crop cannot be combined with other operations")
        else:
            raise BadInputError(f"{entry.name!r}: {op!r} is not an operation")
    if any(isinstance(op, Narrow) for op in ops) and any(isinstance(op, Transpose) for op in ops):
        raise BadInputError(f"{entry.name!r}: narrow and transpose cannot be combined", hint="Use crop().")
    return TensorSelection(tuple(bounds), tuple(order))


def _dimension(entry: TensorEntry, dim: int) -> int:
    rank = len(entry.shape)
    if not _is_int(dim) or not -rank <= dim < rank:
        raise BadInputError(f"{entry.name!r} has {rank} dimensions; {dim!r} is out of range")
    return dim % rank


def _narrowed(entry: TensorEntry, dim: int, op: Narrow) -> Bound:
    extent = entry.shape[dim]
    if not _is_int(op.start) or not _is_int(op.length):
        raise BadInputError(f"{entry.name!r}: start {op.start!r} and length {op.length!r} are not both integers")
    start = op.start + extent if op.start < 0 else op.start
    if not 0 <= start < extent or op.length <= 0 or start + op.length > extent:
        raise BadInputError(
            f"{entry.name!r}: {op.length} entries from {op.start} are outside of dimension {dim}, which has {extent}"
        )
    return Bound(start, op.length)


def _cropped(entry: TensorEntry, op: Crop) -> TensorSelection:
    rank = len(entry.shape)
    if len(op.slices) > rank:
        raise BadInputError(f"{entry.name!r} has {rank} dimensions, but the crop has {len(op.slices)}")
    bounds = list(whole(entry).bounds)
    for dim, part in enumerate(op.slices):
        bounds[dim] = _bound(entry, dim, part)
    order = tuple(range(rank)) if op.order is None else tuple(_dimension(entry, dim) for dim in op.order)
    if sorted(order) != list(range(rank)):
        raise BadInputError(f"{entry.name!r}: {op.order!r} does not name each of {rank} dimensions once")
    return TensorSelection(tuple(bounds), order)


def _bound(entry: TensorEntry, dim: int, part: slice) -> Bound:
    extent = entry.shape[dim]
    values = (part.start, part.stop, part.step) if isinstance(part, slice) else (part,)
    if len(values) != 3 or not all(value is None or _is_int(value) for value in values):
        raise BadInputError(f"{entry.name!r}: {part!r} is not a slice of integers")
    if part == slice(None):
        return Bound(0, extent)
    start, stop = (part.start or 0), (extent if part.stop is None else part.stop)
    start, stop = (start + extent if start < 0 else start), (stop + extent if stop < 0 else stop)
    step = 1 if part.step is None else part.step
    if not 0 <= start < stop <= extent or step < 1:
        raise BadInputError(f"{entry.name!r}: {part!r} is outside of dimension {dim}, which has {extent}")
    length = -(-(stop - start) // step)
    return Bound(start, length, step if length > 1 else 1)


def _swaps(order: Sequence[int]) -> tuple[Transpose, ...]:
    """Return the transposes for an order of axes: from the first position on, swap in the axis that belongs there."""
    axes, out = list(range(len(order))), []
    for position, axis in enumerate(order):
        at = axes.index(axis)
        if at != position:
            out.append(Transpose(position, at))
            axes[position], axes[at] = axes[at], axes[position]
    return tuple(out)


def _is_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
