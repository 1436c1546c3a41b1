"""Values of callers as arrays: NumPy arrays, torch tensors, lists, tuples and scalars.

An array keeps its element type. A list has none, so it takes that of its channel if every value fits. Nothing is
dropped silently: masked elements, ragged lists and values out of range are errors that name the channel.
"""

from __future__ import annotations

import sys
from typing import Any

from warpdata.errors import BadInputError
from warpdata.formats.wshard.dtypes import Array, DType, np

__all__ = ["is_bf16_tensor", "to_array"]

_FLOATS = frozenset({DType.F16, DType.F32, DType.F64, DType.BF16})
_NUMERIC_KINDS = "biuf"
_MAX_LIST_DEPTH = 16


def to_array(value: object, what: str, dtype: DType | None = None) -> Array:
    """Return the value as an array; `what` names it in errors.

    Tensors are detached and copied to the CPU; bf16 keeps its bits. `dtype` is the element type of lists and Python
    scalars, whose floats may be rounded. `BadInputError` if a value does not fit.
    """
    if isinstance(value, np.ndarray | np.generic):
        _refuse_masked(value, what, 0)
        return np.asarray(value)
    if _is_tensor(value):
        return _from_tensor(value, what)
    _refuse_masked(value, what, 0)
    try:
        array: Array = np.asarray(value)
    except (TypeError, ValueError, RuntimeError, OverflowError) as error:
        raise BadInputError(f"{what} cannot be read as an array: {error}") from error
    if array.dtype.kind not in _NUMERIC_KINDS:
        raise BadInputError(f"{what} is a {type(value).__name__} that does not hold numbers in a regular shape")
    if dtype is None or hasattr(value, "__array__"):
        return array
    return _cast(array, dtype, what)


def is_bf16_tensor(value: object) -> bool:
    """Return whether the value is a torch tensor of bf16, whose bits `to_array` may return as uint16."""
    return _is_tensor(value) and str(getattr(value, "dtype", "")) == "torch.bfloat16"


def _is_tensor(value: object) -> bool:
    # A tensor exists only if its owner has imported torch, so this does not import it.
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def _from_tensor(tensor: Any, what: str) -> Array:
    try:
        plain = tensor.detach().cpu().resolve_conj().resolve_neg()
        if not is_bf16_tensor(tensor):
            array: Array = plain.numpy()
            return array
        bits: Array = plain.contiguous().view(sys.modules["torch"].int16).numpy()
        return bits.view(DType.BF16.numpy)
    except (TypeError, ValueError, RuntimeError, NotImplementedError) as error:
        raise BadInputError(f"{what} is a tensor of {tensor.dtype} that NumPy cannot hold: {error}") from error


def _refuse_masked(value: object, what: str, depth: int) -> None:
    """Refuse masked elements: a file has no mask, and the values below it are arbitrary."""
    if isinstance(value, np.ma.MaskedArray):
        if np.ma.is_masked(value):
            raise BadInputError(
                f"{what} has masked elements, which an episode cannot hold",
                hint="Fill them with `.filled(value)`, and record the mask as a channel of its own.",
            )
    elif isinstance(value, list | tuple) and depth < _MAX_LIST_DEPTH:
        for item in value:
            if isinstance(item, list | tuple | np.ma.MaskedArray):
                _refuse_masked(item, what, depth + 1)


def _cast(array: Array, dtype: DType, what: str) -> Array:
    """Convert the values of a list. Floats are rounded; everything else must be exact."""
    target = dtype.numpy
    if dtype is DType.BF16 and target.kind == "u":
        raise BadInputError(f"{what} is a list, and bf16 needs ml_dtypes", hint="pip install ml_dtypes")
    if array.size and (array.dtype.kind == "b") != (dtype is DType.BOOL):
        raise BadInputError(f"{what} has values of {array.dtype}, which {dtype} cannot hold")
    with np.errstate(all="ignore"):
        cast: Array = array.astype(target)
        if dtype in _FLOATS:
            is_kept = np.isfinite(cast.astype(np.float64)) | ~np.isfinite(array.astype(np.float64))
        elif array.dtype.kind == "f" and array.size:
            raise BadInputError(f"{what} has fractions, which {dtype} cannot hold")
        else:
            is_kept = (cast == array) & ((cast < 0) == (array < 0))
    if not bool(np.all(is_kept)):
        raise BadInputError(f"{what} has the value {array[~is_kept].flat[0]}, which {dtype} cannot hold")
    return cast
