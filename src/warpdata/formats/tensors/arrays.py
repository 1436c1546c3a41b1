"""Arrays in memory as an artifact: numpy, or tensors of torch, looked at where they are and never copied whole."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from warpdata.errors import BadInputError
from warpdata.formats.tensors.cuda.torch_interop import is_torch, tensor_bytes
from warpdata.formats.tensors.dtypes import DType, dtype_named, dtype_of_numpy
from warpdata.formats.tensors.extents import Extent, Extents
from warpdata.formats.tensors.index import pack_index
from warpdata.formats.tensors.replica import Replica
from warpdata.formats.tensors.workers import processors

__all__ = ["array_type", "replica_of_arrays"]


def replica_of_arrays(tensors: Mapping[str, Any]) -> Replica:
    """Laid out in name order, each with a storage of its own, whatever memory they share."""
    named = {name: _checked(name, array) for name, array in tensors.items()}
    index = pack_index({name: (array_type(array), tuple(array.shape)) for name, array in named.items()})
    sources = tuple(_ArraySource(named[entry.name], entry.dtype.item_bytes) for entry in index)
    extents = [Extent(entry.offset, entry.offset + entry.size, number, 0) for number, entry in enumerate(index)]
    return Replica.of(index, sources, Extents(extents))


def array_type(array: Any) -> DType:
    return dtype_named(str(array.dtype)) if is_torch(array) else dtype_of_numpy(array.dtype)


class _ArraySource:
    """The elements of one array in row-major order. What does not lie so is copied part by part, as it is asked for."""

    def __init__(self, array: Any, item_bytes: int) -> None:
        self._array = array
        self._item = item_bytes

    @property
    def concurrency(self) -> int:
        return processors()

    def read_range(self, start: int, end: int) -> memoryview:
        first, last = start // self._item, -(-end // self._item)
        pieces = [_bytes_of(piece) for piece in _pieces(self._array, first, last)]
        whole = pieces[0] if len(pieces) == 1 else memoryview(b"".join(pieces))
        return whole[start - first * self._item : end - first * self._item]


def _pieces(array: Any, start: int, stop: int) -> Iterator[Any]:
    """Elements number `start` to `stop`, in row-major order, as views of the array."""
    if start >= stop:
        return
    if len(array.shape) < 2:
        yield array.reshape(-1)[start:stop] if len(array.shape) == 0 else array[start:stop]
        return
    row = int(np.prod(array.shape[1:]))
    first, last = -(-start // row), stop // row
    if first > last:
        yield from _pieces(array[last], start - last * row, stop - last * row)
        return
    if start < first * row:
        yield from _pieces(array[first - 1], start - (first - 1) * row, row)
    if first < last:
        yield array[first:last]
    if stop > last * row:
        yield from _pieces(array[last], 0, stop - last * row)


def _bytes_of(piece: Any) -> memoryview:
    if is_torch(piece):
        plain = piece.detach().resolve_conj().resolve_neg().cpu().contiguous()
        # With one entry in it, a dimension may have any stride, and torch still calls the whole contiguous.
        return memoryview(tensor_bytes(plain.as_strided((plain.numel(),), (1,))).numpy())
    flat: Any = np.ascontiguousarray(piece).reshape(-1)
    return memoryview(flat.view(np.uint8))


def _checked(name: Any, array: Any) -> Any:
    if not isinstance(name, str):
        raise BadInputError(f"{name!r} is not the name of a tensor")
    if is_torch(array):
        if str(array.layout) != "torch.strided" or array.device.type == "meta" or array.is_quantized:
            kind = f"{array.layout} on {array.device}"
            raise BadInputError(f"{name!r} is a tensor of {kind}, which has no plain elements to store")
    elif not isinstance(array, np.ndarray | np.generic):
        raise BadInputError(
            f"{name!r} is a {type(array).__name__}, not an array", hint="pass arrays of numpy or tensors of torch"
        )
    return array
