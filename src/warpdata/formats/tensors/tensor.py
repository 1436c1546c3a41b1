"""One tensor, lazily: slicing makes a smaller one, and only `numpy()` reads. Made by `Tensors[name]`."""

from __future__ import annotations

import operator
from dataclasses import dataclass, replace
from types import EllipsisType
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from warpdata.errors import InvalidViewError
from warpdata.formats.tensors.dtypes import numpy_dtype
from warpdata.formats.tensors.index import TensorEntry
from warpdata.formats.tensors.replica import Replica
from warpdata.formats.tensors.spec import Bound, NormalView, Selection
from warpdata.formats.tensors.view import View

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Tensor"]

_Key: TypeAlias = "int | slice | EllipsisType"


@dataclass(frozen=True, slots=True)
class Tensor:
    """Part of a tensor, or all of it. Reads what `numpy()` needs and no more."""

    entry: TensorEntry
    _replica: Replica
    _bounds: tuple[Bound, ...]
    _axes: tuple[int, ...]

    @property
    def name(self) -> str:
        return self.entry.name

    @property
    def dtype(self) -> str:
        return self.entry.dtype.name

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self._bounds[axis].length for axis in self._axes)

    def __len__(self) -> int:
        if not self._axes:
            raise TypeError(f"{self.name!r} is a scalar")
        return self.shape[0]

    def __getitem__(self, key: _Key | tuple[_Key, ...]) -> Tensor:
        """As numpy slices, with positive steps. An integer takes its axis away."""
        keys = _expand(key if isinstance(key, tuple) else (key,), len(self._axes), self.name)
        bounds, axes = list(self._bounds), []
        for axis, part in zip(self._axes, keys, strict=True):
            bounds[axis] = _inside(bounds[axis], part, self.name)
            if isinstance(part, slice):
                axes.append(axis)
        return replace(self, _bounds=tuple(bounds), _axes=tuple(axes))

    def numpy(self, *, verify: bool | None = None) -> NDArray[Any]:
        """Read it, into new memory."""
        if 0 in self.shape:
            return np.empty(self.shape, numpy_dtype(self.entry.dtype))
        selection = Selection(self._bounds, tuple(range(len(self._bounds))))
        view = View(self._replica, NormalView(((self.name, selection),)), names=(self.name,))
        array: NDArray[Any] = view.materialize(verify=verify)[self.name]
        return array.reshape(self.shape)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        array = self.numpy()
        return array if dtype is None else array.astype(dtype)


def _expand(keys: tuple[_Key, ...], rank: int, name: str) -> list[int | slice]:
    """One key for each axis; `...` stands for those left out."""
    dots = [at for at, key in enumerate(keys) if key is Ellipsis]
    given: list[Any] = [key for key in keys if key is not Ellipsis]
    if len(dots) > 1 or len(given) > rank:
        raise InvalidViewError(f"{name!r} has {rank} axes here, and {len(given)} were indexed")
    at = dots[0] if dots else len(given)
    return [*given[:at], *[slice(None)] * (rank - len(given)), *given[at:]]


def _inside(bound: Bound, part: int | slice, name: str) -> Bound:
    """What is left of a bound; positions count within it."""
    if isinstance(part, slice):
        try:
            start, stop, step = part.indices(bound.length)
        except (TypeError, ValueError) as error:
            raise InvalidViewError(f"{name!r}: {part!r} is not a slice: {error}") from error
        if step < 1:
            raise InvalidViewError(f"{name!r}: a step of {step} goes backwards")
        length = max(0, -(-(stop - start) // step))
        return Bound(bound.start + start * bound.step, length, bound.step * step if length > 1 else 1)
    try:
        position = operator.index(part)
    except TypeError as error:
        raise InvalidViewError(f"{name!r}: {part!r} is not an integer or a slice") from error
    if not -bound.length <= position < bound.length:
        raise InvalidViewError(f"{name!r}: {position} is outside of {bound.length}")
    return Bound(bound.start + position % bound.length * bound.step, 1)
