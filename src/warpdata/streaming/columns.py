"""Samples column by column: numbers as arrays of their own type, everything else as lists."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from warpdata.kinds.artifacts import FutureBytes
from warpdata.query import as_numpy

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray

__all__ = ["Columns", "Values", "pick"]

Values: TypeAlias = "list[Any] | NDArray[Any]"
"""One for each sample, along the first axis."""


@dataclass(frozen=True, slots=True)
class Columns:
    """`contents` wait for what references lead to, where that is on its way."""

    values: dict[str, Values]
    contents: dict[str, Sequence[FutureBytes | None]]
    row_bytes: int = 0
    """What the rows took in memory, media aside."""

    def __len__(self) -> int:
        return len(next(iter(self.values.values()), ()))

    @staticmethod
    def of(rows: pa.Table, contents: dict[str, Sequence[FutureBytes | None]]) -> Columns:
        return Columns({name: _values(rows[name]) for name in rows.schema.names}, contents, rows.nbytes)

    @staticmethod
    def placed(count: int, parts: Sequence[tuple[Sequence[int], Columns]]) -> Columns:
        """`count` samples, of parts that each say where theirs belong."""
        names = [name for _, part in parts[:1] for name in part.values]
        values = {name: _placed(count, [(at, part.values[name]) for at, part in parts]) for name in names}
        contents: dict[str, Sequence[FutureBytes | None]] = {}
        for name in names:
            if all(name in part.contents for _, part in parts):
                held: list[FutureBytes | None] = [None] * count
                for positions, part in parts:
                    _put(held, positions, part.contents[name])
                contents[name] = held
        return Columns(values, contents, sum(part.row_bytes for _, part in parts))

    @staticmethod
    def joined(parts: Sequence[Columns]) -> Columns:
        """One after the other."""
        if len(parts) == 1:
            return parts[0]
        ends = [0, *accumulate(map(len, parts))]
        placed = [(range(*span), part) for span, part in zip(pairwise(ends), parts, strict=True)]
        return Columns.placed(ends[-1], placed)


def pick(values: Values, positions: Sequence[int]) -> Values:
    """Some of them, in this order."""
    return values[list(positions)] if isinstance(values, np.ndarray) else [values[at] for at in positions]


def _values(column: pa.ChunkedArray) -> Values:
    """Numbers, and vectors of numbers of one length, as arrays that may be changed; what has a null as a list."""
    import pyarrow as pa

    listed: list[Any]

    kind, depth = column.type, 0
    while pa.types.is_fixed_size_list(kind):
        kind, depth = kind.value_type, depth + 1
    if not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)) or column.null_count:
        listed = column.to_pylist()
        return listed
    flat, shape = column.combine_chunks(), [len(column)]
    for _ in range(depth):
        shape.append(flat.type.list_size)
        flat = flat.flatten()
        if flat.null_count or len(flat) != int(np.prod(shape)):
            listed = column.to_pylist()
            return listed
    return as_numpy(flat).reshape(shape).copy()


def _placed(count: int, parts: Sequence[tuple[Sequence[int], Values]]) -> Values:
    arrays = [values for _, values in parts if isinstance(values, np.ndarray)]
    if len(arrays) == len(parts) and len({(array.dtype, array.shape[1:]) for array in arrays}) == 1:
        out = np.empty((count, *arrays[0].shape[1:]), arrays[0].dtype)
        for positions, array in zip((at for at, _ in parts), arrays, strict=True):
            out[list(positions)] = array
        return out
    held: list[Any] = [None] * count
    for positions, values in parts:
        _put(held, positions, values.tolist() if isinstance(values, np.ndarray) else values)
    return held


def _put(held: list[Any], positions: Sequence[int], values: Sequence[Any]) -> None:
    for position, value in zip(positions, values, strict=True):
        held[position] = value
