"""Arrow arrays built from buffers, and NumPy views of Arrow arrays.

Arrow's own conversions import pandas where it is installed, which takes ten times as long as a short query. Where
pandas is missing, some versions of Arrow cannot map a type to NumPy. Buffers avoid both.
"""

from __future__ import annotations

import functools
from datetime import date
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc
    from numpy.typing import NDArray

__all__ = ["as_arrow", "as_bits", "as_bools", "as_numpy", "scalar_of", "take_unchecked"]


def as_arrow(numbers: NDArray[np.int64]) -> pa.Array:
    """Return the numbers as an Arrow array. Shares memory if they are contiguous."""
    import numpy as np
    import pyarrow as pa

    data = np.ascontiguousarray(numbers, dtype=np.int64)
    return pa.Array.from_buffers(pa.int64(), len(data), [None, pa.py_buffer(data)])


def as_bits(bools: NDArray[np.bool_]) -> pa.BooleanArray:
    """Return the booleans as an Arrow array, one bit each."""
    import numpy as np
    import pyarrow as pa

    packed = pa.py_buffer(np.packbits(bools, bitorder="little"))
    return pa.Array.from_buffers(pa.bool_(), len(bools), [None, packed])


def as_bools(bits: pa.BooleanArray) -> NDArray[np.bool_]:
    """Return an Arrow array without nulls as NumPy booleans."""
    import numpy as np

    packed = np.frombuffer(bits.buffers()[1] if len(bits) else b"", np.uint8)
    unpacked = np.unpackbits(packed, bitorder="little", count=bits.offset + len(bits))
    return unpacked[bits.offset :].view(np.bool_)


def as_numpy(values: pa.Array) -> NDArray[Any]:
    """Return an Arrow array of numbers or booleans, without nulls, for NumPy. Numbers share memory."""
    import numpy as np
    import pyarrow as pa

    if pa.types.is_boolean(values.type):
        return as_bools(values)
    dtype = _number_dtype(values.type)
    data = values.buffers()[1] if len(values) else b""
    return np.frombuffer(data, dtype, len(values), values.offset * dtype.itemsize if len(values) else 0)


def _number_dtype(arrow_type: pa.DataType) -> np.dtype[Any]:
    import numpy as np
    import pyarrow as pa

    letter = "f" if pa.types.is_floating(arrow_type) else "u" if pa.types.is_unsigned_integer(arrow_type) else "i"
    return np.dtype(f"{letter}{arrow_type.bit_width // 8}")


def scalar_of(value: float | str | bool | date, arrow_type: pa.DataType) -> pa.Scalar:
    """Return `pa.scalar(value, arrow_type)`. `pa.ArrowInvalid` if the type cannot hold the value."""
    import numpy as np
    import pyarrow as pa

    if isinstance(value, str):
        text = value.encode()
        offsets = np.array([0, len(text)], np.int64 if pa.types.is_large_string(arrow_type) else np.int32)
        buffers = [pa.py_buffer(offsets), pa.py_buffer(text)]
    elif isinstance(value, bool):
        buffers = [pa.py_buffer(bytes([value]))]
    elif isinstance(value, int | float):
        buffers = [pa.py_buffer(np.array([value], _number_dtype(arrow_type)))]
    else:
        unit, width = ("D", np.int32) if pa.types.is_date32(arrow_type) else (arrow_type.unit, np.int64)
        moment = np.array([value], "M8[us]")
        ticks = moment.astype(f"M8[{unit}]")
        if ticks != moment:
            return pa.scalar(value, arrow_type)
        buffers = [pa.py_buffer(ticks.view(np.int64).astype(width))]
    return pa.Array.from_buffers(arrow_type, 1, [None, *buffers])[0]


def take_unchecked(rows: pa.Table, positions: pa.Array) -> pa.Table:
    """Return the rows at `positions`, which must be in bounds. Columns must have one chunk, else Arrow copies them."""
    import pyarrow.compute as pc

    return pc.call_function("take", [rows, positions], _unchecked_take_options())


@functools.cache
def _unchecked_take_options() -> pc.TakeOptions:
    import pyarrow.compute as pc

    return pc.TakeOptions(boundscheck=False)
