"""Which kinds of numbers a tensor may hold: their names here, in safetensors files and in numpy.

Names are those of torch, because the index is defined by them; torch itself is not needed. Types that
numpy lacks come from `ml_dtypes`, which is asked for only when such a tensor becomes an array: planning
and moving bytes needs nothing. Implements "Types" of docs/specs/tensors.md.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from warpdata.errors import MissingExtraError, UnsupportedFormatError

if TYPE_CHECKING:
    import numpy as np

__all__ = ["DTYPES", "DType", "dtype_named", "dtype_of_numpy", "dtype_of_safetensors", "numpy_dtype"]


@dataclass(frozen=True, slots=True)
class DType:
    """One element type. `safetensors` is empty where that format has no code for it."""

    name: str
    item_bytes: int
    numpy: str
    safetensors: str
    needs_ml_dtypes: bool = False


DTYPES: tuple[DType, ...] = (
    DType("torch.bool", 1, "bool", "BOOL"),
    DType("torch.uint8", 1, "uint8", "U8"),
    DType("torch.int8", 1, "int8", "I8"),
    DType("torch.uint16", 2, "uint16", "U16"),
    DType("torch.int16", 2, "int16", "I16"),
    DType("torch.uint32", 4, "uint32", "U32"),
    DType("torch.int32", 4, "int32", "I32"),
    DType("torch.uint64", 8, "uint64", "U64"),
    DType("torch.int64", 8, "int64", "I64"),
    DType("torch.float16", 2, "float16", "F16"),
    DType("torch.float32", 4, "float32", "F32"),
    DType("torch.float64", 8, "float64", "F64"),
    DType("torch.complex64", 8, "complex64", "C64"),
    DType("torch.complex128", 16, "complex128", ""),
    DType("torch.bfloat16", 2, "bfloat16", "BF16", needs_ml_dtypes=True),
    DType("torch.float8_e4m3fn", 1, "float8_e4m3fn", "F8_E4M3", needs_ml_dtypes=True),
    DType("torch.float8_e5m2", 1, "float8_e5m2", "F8_E5M2", needs_ml_dtypes=True),
    DType("torch.float8_e4m3fnuz", 1, "float8_e4m3fnuz", "F8_E4M3FNUZ", needs_ml_dtypes=True),
    DType("torch.float8_e5m2fnuz", 1, "float8_e5m2fnuz", "F8_E5M2FNUZ", needs_ml_dtypes=True),
    DType("torch.float8_e8m0fnu", 1, "float8_e8m0fnu", "F8_E8M0", needs_ml_dtypes=True),
)

_BY_NAME = {dtype.name: dtype for dtype in DTYPES}
_BY_NUMPY = {dtype.numpy: dtype for dtype in DTYPES}
_BY_SAFETENSORS = {dtype.safetensors: dtype for dtype in DTYPES if dtype.safetensors}


def dtype_named(name: str) -> DType:
    """The type of an index, by its torch name."""
    found = _BY_NAME.get(name)
    if found is None:
        raise UnsupportedFormatError(f"element type {name!r} is not known here")
    return found


def dtype_of_safetensors(code: str) -> DType:
    found = _BY_SAFETENSORS.get(code)
    if found is None:
        raise UnsupportedFormatError(f"the safetensors element type {code!r} is not known here")
    return found


def dtype_of_numpy(dtype: np.dtype[Any]) -> DType:
    """The type of an array. Big-endian arrays have no name here; their owner converts them."""
    found = _BY_NUMPY.get(dtype.name)
    if found is None or dtype.byteorder == ">":
        raise UnsupportedFormatError(f"arrays of {dtype.str} ({dtype.name}) can not be tensors")
    return found


def numpy_dtype(dtype: DType) -> np.dtype[Any]:
    """As numpy knows it, little-endian as the bytes are. `MissingExtraError` without `ml_dtypes`."""
    import numpy as np

    if not dtype.needs_ml_dtypes:
        return np.dtype(dtype.numpy).newbyteorder("<")
    try:
        extra = importlib.import_module("ml_dtypes")
    except ImportError as error:
        raise MissingExtraError(
            f"{dtype.name} as an array needs the package ml-dtypes", hint="pip install ml-dtypes"
        ) from error
    found: np.dtype[Any] = np.dtype(getattr(extra, dtype.numpy))
    return found
