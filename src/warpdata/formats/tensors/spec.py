"""View specs: the operations of a view, and the normal form that equal specs share.

The operations of a tensor apply one after another and fold into one `TensorSelection`: bounds of every axis, and an
order of axes. Version 1 of the view identity knows one narrow, or transposes. A selection that it can express has
its version 1 id, however it was written. Implements "Specs" of docs/specs/tensors.md.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from warpdata.errors import BadInputError
from warpdata.formats.tensors.display import list_names
from warpdata.formats.tensors.index import TensorEntry, TensorIndex
from warpdata.limits import MAX_VIEW_OPS

__all__ = [
    "Bound",
    "Crop",
    "Narrow",
    "NormalView",
    "Op",
    "TensorSelection",
    "Transpose",
    "ViewSpec",
    "as_int",
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


def narrow(dim: int, start: int, length: int) -> Narrow:
    """Keep `length` entries of dimension `dim`, from `start`. Negative `dim` and `start` count from the end."""
    return Narrow(dim, start, length)


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

    def part(self, start: int, length: int, step: int = 1) -> Bound:
        """Return the bound of some of the kept entries; `start` and `step` count kept entries."""
        return Bound(self.start + start * self.step, length, self.step * step if length > 1 else 1)


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


@dataclass(frozen=True, slots=True, repr=False)
class NormalView:
    """Selections by name, in name order, without identities. Empty: the canonical artifact itself."""

    selections: tuple[tuple[str, TensorSelection], ...]

    def __repr__(self) -> str:
        return f"NormalView({list_names([name for name, _ in self.selections])})"


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
        fold = _Fold(entry)
        for op in ops:
            fold.apply(op)
        selection = TensorSelection(tuple(fold.bounds), tuple(fold.order))
        if selection != whole(entry):
            selections.append((name, selection))
    return NormalView(tuple(sorted(selections, key=lambda pair: pair[0])))


class _Fold:
    """The result of some operations on one tensor: its bounds, and the axis at each position."""

    def __init__(self, entry: TensorEntry) -> None:
        self._name = entry.name
        self.bounds = list(whole(entry).bounds)
        self.order = list(range(len(entry.shape)))

    def apply(self, op: Op) -> None:
        if isinstance(op, Narrow):
            axis = self._axis(op.dim)
            self.bounds[axis] = self._narrowed(axis, op)
        elif isinstance(op, Transpose):
            one, two = self._position(op.dim0), self._position(op.dim1)
            self.order[one], self.order[two] = self.order[two], self.order[one]
        elif isinstance(op, Crop):
            self._crop(op)
        else:
            raise BadInputError(f"{self._name!r}: {op!r} is not an operation")

    def _crop(self, op: Crop) -> None:
        rank = len(self.order)
        if len(op.slices) > rank:
            raise BadInputError(f"{self._name!r} has {rank} dimensions, but the crop has {len(op.slices)}")
        for axis, part in zip(self.order, op.slices, strict=False):
            self.bounds[axis] = self._sliced(axis, part)
        if op.order is None:
            return
        positions = [self._position(dim) for dim in op.order]
        if sorted(positions) != list(range(rank)):
            raise BadInputError(f"{self._name!r}: {op.order!r} does not name each of {rank} dimensions once")
        self.order = [self.order[position] for position in positions]

    def _position(self, dim: int) -> int:
        rank, position = len(self.order), as_int(dim)
        if position is None or not -rank <= position < rank:
            raise BadInputError(f"{self._name!r} has {rank} dimensions; {dim!r} is out of range")
        return position % rank

    def _axis(self, dim: int) -> int:
        return self.order[self._position(dim)]

    def _narrowed(self, axis: int, op: Narrow) -> Bound:
        bound, given, length = self.bounds[axis], as_int(op.start), as_int(op.length)
        if given is None or length is None:
            found = f"start {op.start!r} and length {op.length!r}"
            raise BadInputError(f"{self._name!r}: {found} are not both integers")
        start = given + bound.length if given < 0 else given
        if not 0 <= start < bound.length or length <= 0 or start + length > bound.length:
            raise BadInputError(
                f"{self._name!r}: {length} entries from {given} are outside of dimension {op.dim}, "
                f"which has {bound.length}"
            )
        return bound.part(start, length)

    def _sliced(self, axis: int, part: slice) -> Bound:
        bound = self.bounds[axis]
        values = (part.start, part.stop, part.step) if isinstance(part, slice) else (part,)
        numbers = [None if value is None else as_int(value) for value in values]
        if len(values) != 3 or [value is None for value in values] != [number is None for number in numbers]:
            raise BadInputError(f"{self._name!r}: {part!r} is not a slice of integers")
        if numbers == [None, None, None]:
            return bound
        start, stop, step = numbers[0] or 0, numbers[1], 1 if numbers[2] is None else numbers[2]
        stop = bound.length if stop is None else stop
        start, stop = (start + bound.length if start < 0 else start), (stop + bound.length if stop < 0 else stop)
        if not 0 <= start < stop <= bound.length or step < 1:
            raise BadInputError(f"{self._name!r}: {part!r} is outside of a dimension with {bound.length} entries")
        return bound.part(start, -(-(stop - start) // step), step)


def as_int(value: object) -> int | None:
    """Return an integer of Python or NumPy; None for any other value, such as a bool."""
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        return None
    try:
        return operator.index(value)
    except TypeError:  # an array with several elements, or a bool of NumPy
        return None


def _swaps(order: Sequence[int]) -> tuple[Transpose, ...]:
    """Return the transposes for an order of axes: from the first position on, swap in the axis that belongs there."""
    axes, out = list(range(len(order))), []
    for position, axis in enumerate(order):
        at = axes.index(axis)
        if at != position:
            out.append(Transpose(position, at))
            axes[position], axes[at] = axes[at], axes[position]
    return tuple(out)
