"""Substring search over all texts of an Arrow array at once.

Arrow's kernel searches text by text. The texts are adjacent in one buffer, so it is several times faster to search
the buffer and to map the matches back to rows. Arrow's kernel is the fallback without NumPy, and for substrings so
frequent that the mapping does not pay.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

from warpdata.limits import KIB
from warpdata.primitives.arrow_buffers import as_bits
from warpdata.primitives.parallel import CPU_POOL

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

    _Bytes: TypeAlias = np.ndarray[Any, np.dtype[np.uint8]]

__all__ = ["contains"]

_BLOCK_BYTES_PER_CORE = 64 * KIB
"""Small blocks fit in the processor's caches. Each block takes the interpreter's lock, which more cores contend for."""
_PREFIX_BYTES = 4
_MAX_MATCH_SHARE = 0.125


def contains(values: pa.Array | pa.ChunkedArray, text: str) -> pa.Array | pa.ChunkedArray:
    """Return true, false or null for each value of a text array. `text` is not empty."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if isinstance(values, pa.ChunkedArray):
        return pa.chunked_array([contains(chunk, text) for chunk in values.chunks], pa.bool_())
    found = _search_buffer(values, text.encode())
    return pc.match_substring(values, text) if found is None else found


def _search_buffer(values: pa.Array, wanted: bytes) -> pa.Array | None:
    """Search the array's data buffer; None if the kernel is the better choice."""
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
    offsets = np.frombuffer(buffers[1], width)[values.offset : values.offset + len(values) + 1]
    data = np.frombuffer(buffers[2], np.uint8)[: offsets[-1]]
    positions = _find_positions(data[offsets[0] :], wanted, max_count=int(len(values) * _MAX_MATCH_SHARE))
    if positions is None:
        return None
    positions += offsets[0]
    rows = np.searchsorted(offsets, positions, side="right") - 1
    mask = np.zeros(len(values), bool)
    mask[rows[positions + len(wanted) <= offsets[rows + 1]]] = True
    found = as_bits(mask)
    return pc.if_else(values.is_valid(), found, None) if values.null_count else found


def _find_positions(data: _Bytes, wanted: bytes, max_count: int) -> np.ndarray[Any, Any] | None:
    """Return the positions of `wanted` in `data`; None if its prefix occurs more than `max_count` times."""
    import numpy as np

    end = len(data) - len(wanted) + 1
    block_bytes = _BLOCK_BYTES_PER_CORE * CPU_POOL.size
    matches, is_equal = np.empty(block_bytes, bool), np.empty(block_bytes, bool)
    found, count = [np.zeros(0, np.int64)], 0
    for start in range(0, end, block_bytes):
        size = min(block_bytes, end - start)
        np.equal(data[start : start + size], wanted[0], out=matches[:size])
        for position, byte in enumerate(wanted[1:_PREFIX_BYTES], start + 1):
            np.equal(data[position : position + size], byte, out=is_equal[:size])
            matches[:size] &= is_equal[:size]
        found.append(np.flatnonzero(matches[:size]) + start)
        count += len(found[-1])
        if count > max_count:
            return None
    positions = np.concatenate(found)
    for position, byte in enumerate(wanted[_PREFIX_BYTES:], _PREFIX_BYTES):
        positions = positions[data[positions + position] == byte]
    return positions
