"""Which texts of an Arrow array contain another text, found in all of them at once.

Arrow's kernel walks through every text by itself. The texts lie behind one another in one buffer,
so it is several times faster to search that, and to ask afterwards which row a place belongs to.
Without numpy, and where the text is found so often that this does not pay, the kernel does it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

from warpdata.limits import KIB

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

    _Bytes: TypeAlias = np.ndarray[Any, np.dtype[np.uint8]]

__all__ = ["contains"]

_BLOCK_BYTES = 128 * KIB  # a few of these stay in the processor's caches
_BYTES_AT_ONCE = 4
_SELDOM_SHARE = 0.125


def contains(values: pa.Array | pa.ChunkedArray, text: str) -> pa.Array | pa.ChunkedArray:
    """True, false or null for each value of a text array. `text` is not empty."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if isinstance(values, pa.ChunkedArray):
        return pa.chunked_array([contains(chunk, text) for chunk in values.chunks], pa.bool_())
    found = _search(values, text.encode())
    return pc.match_substring(values, text) if found is None else found


def _search(values: pa.Array, wanted: bytes) -> pa.Array | None:
    """The same by searching the buffer; None where that is not the way."""
    try:
        import numpy as np
    except ImportError:
        return None
    import pyarrow as pa
    import pyarrow.compute as pc

    buffers = values.buffers()
    if len(values) == 0 or buffers[2] is None:
        return None
    width = np.int64 if pa.types.is_large_string(values.type) else np.int32
    borders = np.frombuffer(buffers[1], width)[values.offset : values.offset + len(values) + 1]
    data = np.frombuffer(buffers[2], np.uint8)[: borders[-1]]
    places = _places(data[borders[0] :], wanted, at_most=int(len(values) * _SELDOM_SHARE))
    if places is None:
        return None
    places += borders[0]
    rows = np.searchsorted(borders, places, side="right") - 1
    kept = np.zeros(len(values), bool)
    kept[rows[places + len(wanted) <= borders[rows + 1]]] = True
    packed = pa.py_buffer(np.packbits(kept, bitorder="little"))
    found = pa.Array.from_buffers(pa.bool_(), len(values), [None, packed])
    return pc.if_else(values.is_valid(), found, None) if values.null_count else found


def _places(data: _Bytes, wanted: bytes, at_most: int) -> np.ndarray[Any, Any] | None:
    """Where `wanted` begins in `data`; None if its first bytes are found too often."""
    import numpy as np

    ends = len(data) - len(wanted) + 1
    begins, same = np.empty(_BLOCK_BYTES, bool), np.empty(_BLOCK_BYTES, bool)
    found, count = [np.zeros(0, np.int64)], 0
    for start in range(0, ends, _BLOCK_BYTES):
        size = min(_BLOCK_BYTES, ends - start)
        np.equal(data[start : start + size], wanted[0], out=begins[:size])
        for position, byte in enumerate(wanted[1:_BYTES_AT_ONCE], start + 1):
            np.equal(data[position : position + size], byte, out=same[:size])
            begins[:size] &= same[:size]
        found.append(np.flatnonzero(begins[:size]) + start)
        count += len(found[-1])
        if count > at_most:
            return None
    places = np.concatenate(found)
    for position, byte in enumerate(wanted[_BYTES_AT_ONCE:], _BYTES_AT_ONCE):
        places = places[data[places + position] == byte]
    return places
