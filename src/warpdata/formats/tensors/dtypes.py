"""Element types of tensors, and their names in the index, in safetensors files and in NumPy.

The index uses torch's names, but torch is not needed. `ml_dtypes` provides the types that NumPy lacks. It is
imported when such a tensor becomes an array; plans and transfers do not need it. Implements "Types" of
docs/specs/tensors.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from warpdata.errors import UnsupportedError
from warpdata.primitives.extras import require

if TYPE_CHECKING:
    import numpy as np

__all__ = ["DTYPES", "TensorDType", "dtype_named", "dtype_of_numpy", "dtype_of_safetensors", "numpy_dtype"]


@dataclass(frozen=True, slots=True, repr=False)
class TensorDType:
    """One element type. `safetensors` is empty if that format has no code for the type."""

    name: str
    item_bytes: int
    numpy: str
    safetensors: str
    needs_ml_dtypes: bool = False

    def __repr__(self) -> str:
        return self.name


DTYPES: tuple[TensorDType, ...] = (
    TensorDType("torch.bool", 1, "bool", "BOOL"),
    TensorDType("torch.uint8", 1, "uint8", "U8"),
    TensorDType("torch.int8", 1, "int8", "I8"),
    TensorDType("torch.uint16", 2, "uint16", "U16"),
    TensorDType("torch.int16", 2, "int16", "I16"),
    TensorDType("torch.uint32", 4, "uint32", "U32"),
    TensorDType("torch.int32", 4, "int32", "I32"),
    TensorDType("torch.uint64", 8, "uint64", "U64"),
    TensorDType("torch.int64", 8, "int64", "I64"),
    TensorDType("torch.float16", 2, "float16", "F16"),
    TensorDType("torch.float32", 4, "float32", "F32"),
    TensorDType("torch.float64", 8, "float64", "F64"),
    TensorDType("torch.complex64", 8, "complex64", "C64"),
    TensorDType("torch.complex128", 16, "complex128", ""),
    TensorDType("torch.bfloat16", 2, "bfloat16", "BF16", needs_ml_dtypes=True),
    TensorDType("torch.float8_e4m3fn", 1, "float8_e4m3fn", "F8_E4M3", needs_ml_dtypes=True),
    TensorDType("torch.float8_e5m2", 1, "float8_e5m2", "F8_E5M2", needs_ml_dtypes=True),
    TensorDType("torch.float8_e4m3fnuz", 1, "float8_e4m3fnuz", "F8_E4M3FNUZ", needs_ml_dtypes=True),
    TensorDType("torch.float8_e5m2fnuz", 1, "float8_e5m2fnuz", "F8_E5M2FNUZ", needs_ml_dtypes=True),
    TensorDType("torch.float8_e8m0fnu", 1, "float8_e8m0fnu", "F8_E8M0", needs_ml_dtypes=True),
)

_BY_NAME = {dtype.name: dtype for dtype in DTYPES}
_BY_NUMPY = {dtype.numpy: dtype for dtype in DTYPES}
_BY_SAFETENSORS = {dtype.safetensors: dtype for dtype in DTYPES if dtype.safetensors}


def dtype_named(name: str) -> TensorDType:
    """Return the type with this torch name, such as `torch.bfloat16`."""
    found = _BY_NAME.get(name)
    if found is None:
        raise UnsupportedError(f"element type {name!r} is not supported")
    return found


def dtype_of_safetensors(code: str) -> TensorDType:
    found = _BY_SAFETENSORS.get(code)
    if found is None:
        raise UnsupportedError(f"safetensors element type {code!r} is not supported")
    return found


def dtype_of_numpy(dtype: np.dtype[Any]) -> TensorDType:
    """Return the type of an array. Big-endian arrays are not supported; the caller converts them."""
    found = _BY_NUMPY.get(dtype.name)
    if found is None or dtype.byteorder == ">":
        raise UnsupportedError(f"arrays of {dtype.str} ({dtype.name}) cannot be tensors")
    return found


def numpy_dtype(dtype: TensorDType) -> np.dtype[Any]:
    """Return the little-endian NumPy type. `MissingExtraError` if it needs `ml_dtypes`, which is not installed."""
    import numpy as np

    if not dtype.needs_ml_dtypes:
        return np.dtype(dtype.numpy).newbyteorder("<")
    extra = require("ml_dtypes", purpose=f"{dtype.name} as an array")
    found: np.dtype[Any] = np.dtype(getattr(extra, dtype.numpy))
    return found
