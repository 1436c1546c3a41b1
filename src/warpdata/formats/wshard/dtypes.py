"""The 13 element types, and how bytes become arrays of them.

Elements are little-endian. A view is made where the bytes lie well for it, a copy otherwise; either way
the values are the same. Implements "Element types" of docs/specs/wshard.md.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from enum import StrEnum
from math import prod
from typing import Any, TypeAlias

from warpdata.errors import BadInputError, EpisodeCorruptedError
from warpdata.formats.wshard.libraries import bfloat16, np

__all__ = ["Array", "DType", "decode_array", "encode_array"]

Array: TypeAlias = "np.ndarray[Any, np.dtype[Any]]"


class DType(StrEnum):
    """An element type, by the name that files use."""

    F32 = "f32"
    F64 = "f64"
    F16 = "f16"
    BF16 = "bf16"
    I64 = "i64"
    I32 = "i32"
    I16 = "i16"
    I8 = "i8"
    U64 = "u64"
    U32 = "u32"
    U16 = "u16"
    U8 = "u8"
    BOOL = "bool"

    @property
    def size_bytes(self) -> int:
        return _SIZES[self]

    @property
    def numpy(self) -> np.dtype[Any]:
        """The NumPy dtype; for bf16 that of `ml_dtypes`, or uint16 where it is not installed."""
        if self is DType.BF16:
            return bfloat16() or np.dtype("<u2")
        return np.dtype(_CODES[self])

    @classmethod
    def of(cls, dtype: np.dtype[Any]) -> DType:
        """The element type of an array. uint16 is u16, never bf16: only a declaration can say that."""
        if dtype.name == "bfloat16":
            return cls.BF16
        for name, code in _CODES.items():
            if np.dtype(code) == dtype.newbyteorder("<"):
                return cls(name)
        raise BadInputError(f"the NumPy dtype {dtype} has no counterpart in episode files")


_CODES = {
    "f32": "<f4",
    "f64": "<f8",
    "f16": "<f2",
    "i64": "<i8",
    "i32": "<i4",
    "i16": "<i2",
    "i8": "i1",
    "u64": "<u8",
    "u32": "<u4",
    "u16": "<u2",
    "u8": "u1",
    "bool": "?",
}
_SIZES = {DType(name): np.dtype(code).itemsize for name, code in _CODES.items()} | {DType.BF16: 2}


def decode_array(data: memoryview | bytes, dtype: DType, shape: Sequence[int]) -> Array:
    """An array over the bytes, without a copy where they are aligned. Read-only when it is a view.

    Any byte but 0 is a true boolean. `EpisodeCorruptedError` if the bytes do not fill the shape.
    """
    view = memoryview(data)
    if prod(shape) * dtype.size_bytes != view.nbytes:
        raise EpisodeCorruptedError(f"{view.nbytes} bytes do not fill the shape {tuple(shape)} of {dtype}")
    try:
        if dtype is DType.BOOL:
            flat = np.frombuffer(view, np.uint8)
            odd = flat.size and int(flat.max()) > 1
            return ((flat != 0) if odd else flat.view(np.bool_)).reshape(shape)
        array: Array = np.frombuffer(view, dtype.numpy)
        return (array if array.flags.aligned else array.copy()).reshape(shape)
    except ValueError as error:
        raise EpisodeCorruptedError(f"the shape {tuple(shape)} of {dtype} is impossible: {error}") from error


def encode_array(data: Array, dtype: DType) -> memoryview:
    """The array's bytes as a file holds them, in C order; a view where it already lies so."""
    array = np.ascontiguousarray(data)
    fits = {dtype.numpy, np.dtype("<u2")} if dtype is DType.BF16 else {dtype.numpy}
    if array.dtype.newbyteorder("<") not in fits:
        raise BadInputError(f"an array of {array.dtype} cannot be stored as {dtype}")
    if array.dtype.byteorder == ">" or (array.dtype.byteorder == "=" and sys.byteorder == "big"):
        array = array.astype(array.dtype.newbyteorder("<"))
    return array.reshape(-1).view(np.uint8).data
