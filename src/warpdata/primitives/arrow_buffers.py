"""Arrow arrays built from buffers, and NumPy views of Arrow arrays.

Arrow's own conversions import pandas where it is installed, which takes ten times as long as a short query. Where
pandas is missing, some versions of Arrow cannot map a type to NumPy. Buffers avoid both.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from datetime import date, datetime
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc
    from numpy.typing import NDArray

__all__ = [
    "array_of",
    "as_arrow",
    "as_bits",
    "as_bools",
    "as_numpy",
    "check_text",
    "filter_rows",
    "scalar_of",
    "take_rows",
    "take_unchecked",
]


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


def array_of(values: Sequence[Any], arrow_type: pa.DataType) -> pa.Array:
    """Return `pa.array(values, arrow_type)` for values that are not null: numbers, texts, bytes, dates or times."""
    import numpy as np
    import pyarrow as pa

    if pa.types.is_boolean(arrow_type):
        return as_bits(np.array(values, bool))
    if pa.types.is_date32(arrow_type) or pa.types.is_timestamp(arrow_type):
        unit, width = ("D", np.int32) if pa.types.is_date32(arrow_type) else (arrow_type.unit, np.int64)
        plain = [value.replace(tzinfo=None) if isinstance(value, datetime) else value for value in values]
        data = np.array(plain, "M8[us]").astype(f"M8[{unit}]").view(np.int64).astype(width)
        return pa.Array.from_buffers(arrow_type, len(values), [None, pa.py_buffer(data)])
    if pa.types.is_integer(arrow_type) or pa.types.is_floating(arrow_type):
        return pa.Array.from_buffers(
            arrow_type, len(values), [None, pa.py_buffer(np.array(values, _number_dtype(arrow_type)))]
        )
    parts = [value.encode() if isinstance(value, str) else value for value in values]
    is_large = pa.types.is_large_string(arrow_type) or pa.types.is_large_binary(arrow_type)
    offsets = np.zeros(len(parts) + 1, np.int64 if is_large else np.int32)
    np.cumsum([len(part) for part in parts], out=offsets[1:])
    return pa.Array.from_buffers(arrow_type, len(values), [None, pa.py_buffer(offsets), pa.py_buffer(b"".join(parts))])


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


def check_text(values: pa.Array | pa.ChunkedArray) -> None:
    """Raise `pa.ArrowInvalid` for text that is not UTF-8. ASCII takes a tenth of the time of Arrow's validation."""
    import pyarrow as pa

    for chunk in values.chunks if isinstance(values, pa.ChunkedArray) else [values]:
        texts = chunk.dictionary if pa.types.is_dictionary(chunk.type) else chunk
        if not _is_ascii(texts):
            texts.validate(full=True)


def _is_ascii(values: pa.Array) -> bool:
    """Return whether an array is known to have only ASCII text."""
    import numpy as np
    import pyarrow as pa

    if values.type not in (pa.string(), pa.large_string()):
        return False
    _, offsets, data = values.buffers()
    if data is None or len(values) == 0:
        return data is None or data.size == 0
    width = np.dtype(np.int64 if pa.types.is_large_string(values.type) else np.int32)
    ends = np.frombuffer(offsets, width)
    start, end = int(ends[values.offset]), int(ends[values.offset + len(values)])
    text = np.frombuffer(data, np.uint8)[start:end]
    return len(text) == 0 or int(text.max()) < 128


def filter_rows(rows: pa.Table, kept: pa.BooleanArray) -> pa.Table:
    """Return the rows that are True in `kept`, in half the time of Arrow where numbers have no nulls.

    Arrow turns the mask of a table into positions, and carries validity bits along that say nothing.
    """
    import pyarrow as pa

    if not rows.num_columns:
        return rows.filter(kept)
    columns = [
        pa.chunked_array([_without_validity(chunk) for chunk in column.chunks], column.type) for column in rows.columns
    ]
    return pa.Table.from_arrays([column.filter(kept) for column in columns], schema=rows.schema)


def _without_validity(values: pa.Array) -> pa.Array:
    """Return numbers without nulls as an array that has no validity bits. Shares memory."""
    import pyarrow as pa

    if not pa.types.is_primitive(values.type) or values.null_count:
        return values
    validity, data = values.buffers()
    return (
        values if validity is None else pa.Array.from_buffers(values.type, len(values), [None, data], 0, values.offset)
    )


def take_unchecked(rows: pa.Table, positions: pa.Array) -> pa.Table:
    """Return the rows at `positions`, which must be in bounds. Columns must have one chunk, else Arrow copies them."""
    import pyarrow.compute as pc

    return pc.call_function("take", [rows, positions], _unchecked_take_options())


@functools.cache
def _unchecked_take_options() -> pc.TakeOptions:
    import pyarrow.compute as pc

    return pc.TakeOptions(boundscheck=False)


def take_rows(rows: pa.Table, positions: pa.Array) -> pa.Table:
    """Return the rows at these positions. Text views are converted, because Arrow cannot take them."""
    import pyarrow as pa

    plain = {pa.string_view(): pa.large_string(), pa.binary_view(): pa.large_binary()}
    if not any(column.type in plain for column in rows.schema):
        return rows.take(positions)
    taken = pa.schema([column.with_type(plain.get(column.type, column.type)) for column in rows.schema])
    return rows.cast(taken).take(positions).cast(rows.schema)
