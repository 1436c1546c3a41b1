"""Arrow values made from their buffers, and the other way round.

Where pandas is installed, Arrow loads it to look at what it is given: ten times as long as a short
query takes. Where it is not, some versions of Arrow cannot even name a type for NumPy. Nobody has to
be asked about buffers.
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

__all__ = ["as_arrow", "as_bits", "as_bools", "as_numpy", "scalar_of", "take_known"]


def as_arrow(numbers: NDArray[np.int64]) -> pa.Array:
    """The same numbers for Arrow."""
    import numpy as np
    import pyarrow as pa

    held = np.ascontiguousarray(numbers, dtype=np.int64)
    return pa.Array.from_buffers(pa.int64(), len(held), [None, pa.py_buffer(held)])


def as_bits(kept: NDArray[np.bool_]) -> pa.BooleanArray:
    """The same booleans for Arrow."""
    import numpy as np
    import pyarrow as pa

    packed = pa.py_buffer(np.packbits(kept, bitorder="little"))
    return pa.Array.from_buffers(pa.bool_(), len(kept), [None, packed])


def as_bools(decided: pa.BooleanArray) -> NDArray[np.bool_]:
    """What Arrow keeps as bits, and none of it null."""
    import numpy as np

    bits = np.frombuffer(decided.buffers()[1] if len(decided) else b"", np.uint8)
    spelled = np.unpackbits(bits, bitorder="little", count=decided.offset + len(decided))
    return spelled[decided.offset :].view(np.bool_)


def as_numpy(values: pa.Array) -> NDArray[Any]:
    """The same numbers or booleans for NumPy, and none of them null; numbers stay where they are."""
    import numpy as np
    import pyarrow as pa

    if pa.types.is_boolean(values.type):
        return as_bools(values)
    kind = _number_type(values.type)
    data = values.buffers()[1] if len(values) else b""
    return np.frombuffer(data, kind, len(values), values.offset * kind.itemsize if len(values) else 0)


def _number_type(kind: pa.DataType) -> np.dtype[Any]:
    import numpy as np
    import pyarrow as pa

    letter = "f" if pa.types.is_floating(kind) else "u" if pa.types.is_unsigned_integer(kind) else "i"
    return np.dtype(f"{letter}{kind.bit_width // 8}")


def scalar_of(value: float | str | bool | date, kind: pa.DataType) -> pa.Scalar:
    """One value of this type."""
    import numpy as np
    import pyarrow as pa

    if isinstance(value, str):
        text = value.encode()
        offsets = np.array([0, len(text)], np.int64 if pa.types.is_large_string(kind) else np.int32)
        buffers = [pa.py_buffer(offsets), pa.py_buffer(text)]
    elif isinstance(value, bool):
        buffers = [pa.py_buffer(bytes([value]))]
    elif isinstance(value, int | float):
        buffers = [pa.py_buffer(np.array([value], _number_type(kind)))]
    else:
        unit, width = ("D", np.int32) if pa.types.is_date32(kind) else (kind.unit, np.int64)
        moment = np.array([value], "M8[us]")
        ticks = moment.astype(f"M8[{unit}]")
        if ticks != moment:
            return pa.scalar(value, kind)
        buffers = [pa.py_buffer(ticks.view(np.int64).astype(width))]
    return pa.Array.from_buffers(kind, 1, [None, *buffers])[0]


def take_known(column: pa.ChunkedArray, numbers: pa.Array) -> pa.Array:
    """Values by numbers that are known to be within, of a column in one piece."""
    import pyarrow.compute as pc

    return pc.call_function("array_take", [column.chunk(0), numbers], _unchecked())


@functools.cache
def _unchecked() -> pc.TakeOptions:
    import pyarrow.compute as pc

    return pc.TakeOptions(boundscheck=False)
