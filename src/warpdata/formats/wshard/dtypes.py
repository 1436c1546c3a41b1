"""The 13 element types, conversion between bytes and arrays, and packed residual bits.

Elements are little-endian. Decoding makes a view if the bytes are aligned, and a copy otherwise. Implements
"Element types" and "Residuals" of docs/specs/wshard.md.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from enum import StrEnum
from math import prod
from typing import TYPE_CHECKING, Any, TypeAlias

from warpdata.errors import BadInputError, CorruptError
from warpdata.primitives.extras import require

if TYPE_CHECKING:
    import numpy as np
else:
    np = require("numpy", purpose="the WShard format", extra="wshard")

__all__ = ["Array", "DType", "decode_array", "encode_array", "np", "pack_residual", "unpack_residual"]

Array: TypeAlias = "np.ndarray[Any, np.dtype[Any]]"


class DType(StrEnum):
    """An element type, by its name in files."""

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
        """The NumPy dtype; for bf16 that of `ml_dtypes`, or uint16 if that library is not installed."""
        if self is DType.BF16:
            return _bfloat16() or np.dtype("<u2")
        return np.dtype(_CODES[self])

    @classmethod
    def of(cls, dtype: np.dtype[Any]) -> DType:
        """Return the element type of an array. uint16 is u16, never bf16: only a declaration can say bf16."""
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


def _bfloat16() -> np.dtype[Any] | None:
    try:
        import ml_dtypes
    except ImportError:
        return None
    found: np.dtype[Any] = np.dtype(str(ml_dtypes.bfloat16.__name__))
    return found


def decode_array(data: memoryview | bytes, dtype: DType, shape: Sequence[int]) -> Array:
    """Return an array over the bytes, a read-only view if they are aligned, else a copy.

    Any non-zero byte is a true boolean. `CorruptError` if the bytes do not fill the shape.
    """
    view = memoryview(data)
    if prod(shape) * dtype.size_bytes != view.nbytes:
        raise CorruptError(f"{view.nbytes} bytes do not fill the shape {tuple(shape)} of {dtype}")
    try:
        if dtype is DType.BOOL:
            flat = np.frombuffer(view, np.uint8)
            has_other_bytes = flat.size and int(flat.max()) > 1
            return ((flat != 0) if has_other_bytes else flat.view(np.bool_)).reshape(shape)
        array: Array = np.frombuffer(view, dtype.numpy)
        return (array if array.flags.aligned else array.copy()).reshape(shape)
    except ValueError as error:
        raise CorruptError(f"the shape {tuple(shape)} of {dtype} is impossible: {error}") from error


def encode_array(data: Array, dtype: DType) -> memoryview:
    """Return the array's bytes in C order, little-endian; a view if the array already has that layout."""
    array = np.ascontiguousarray(data)
    fits = {dtype.numpy, np.dtype("<u2")} if dtype is DType.BF16 else {dtype.numpy}
    if array.dtype.newbyteorder("<") not in fits:
        raise BadInputError(f"an array of {array.dtype} cannot be stored as {dtype}")
    if array.dtype.byteorder == ">" or (array.dtype.byteorder == "=" and sys.byteorder == "big"):
        array = array.astype(array.dtype.newbyteorder("<"))
    return array.reshape(-1).view(np.uint8).data


def pack_residual(signal: Array) -> Array:
    """Pack the sign of the second difference of a signal of [T] or [T, D]: ceil(T/8) bytes for each dimension.

    A bit is 1 exactly if 2·x[i] > x[i−1] + x[i+1], computed in float64. The first and the last step are 0.
    """
    signal = _numeric(signal)
    if signal.ndim not in (1, 2):
        raise BadInputError(f"a residual needs a signal of [T] or [T, D], not of {list(signal.shape)}")
    if not signal.size:
        return np.zeros(0, np.uint8)
    rows = np.asarray(signal, np.float64).reshape(len(signal), -1).T
    bits = np.zeros(rows.shape, np.bool_)
    if rows.shape[1] > 2:
        with np.errstate(invalid="ignore", over="ignore"):
            bits[:, 1:-1] = 2 * rows[:, 1:-1] - rows[:, :-2] - rows[:, 2:] > 0
    return np.packbits(bits, axis=1, bitorder="little").reshape(-1)


def unpack_residual(packed: Array, length: int) -> Array:
    """Return the bits as booleans of [D, T].

    The number of bytes determines D; some writers pack the first dimension only. Without steps, D is 0.
    """
    if isinstance(length, bool) or not isinstance(length, int):
        raise BadInputError(f"length={length!r} is not a number of steps")
    width = -(-length // 8)
    flat = _numeric(packed).astype(np.uint8).reshape(-1)
    if length == flat.size == 0:
        return np.zeros((0, 0), np.bool_)
    if width < 1 or flat.size % width:
        raise CorruptError(f"{flat.size} bytes are not residuals of {length} steps, {width} bytes each")
    return np.unpackbits(flat.reshape(-1, width), axis=1, count=length, bitorder="little").view(np.bool_)


def _numeric(values: object) -> Array:
    """Return an array of numbers from an array or a list."""
    try:
        array: Array = np.asarray(values)
    except (TypeError, ValueError, RuntimeError) as error:
        raise BadInputError(f"the values cannot be read as an array: {error}") from error
    if array.dtype.kind not in "biuf" and array.dtype.name != "bfloat16":
        raise BadInputError(f"the values of {array.dtype} are not numbers")
    return array
