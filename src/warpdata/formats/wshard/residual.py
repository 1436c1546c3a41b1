"""Residuals: the sign of the second difference, one bit for each step.

Implements "Residuals" of docs/specs/wshard.md.
"""

from __future__ import annotations

from warpdata.errors import BadInputError, EpisodeCorruptedError
from warpdata.formats.wshard.dtypes import Array
from warpdata.formats.wshard.libraries import np

__all__ = ["pack_residual", "unpack_residual"]


def pack_residual(signal: Array) -> Array:
    """Packed bits of a signal of [T] or [T, D]: a row of ceil(T/8) bytes for each dimension, one after another.

    A bit is 1 exactly where the signal bends down: 2·x[i] > x[i−1] + x[i+1], computed in float64. The first
    and the last step are 0.
    """
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
    """The bits as booleans of [D, T]. D follows from the number of bytes; some writers pack the first only.

    No steps have no bytes, and D is then 0.
    """
    width = -(-length // 8)
    flat = np.asarray(packed, np.uint8).reshape(-1)
    if length == flat.size == 0:
        return np.zeros((0, 0), np.bool_)
    if width < 1 or flat.size % width:
        raise EpisodeCorruptedError(f"{flat.size} bytes are not residuals of {length} steps, {width} bytes each")
    return np.unpackbits(flat.reshape(-1, width), axis=1, count=length, bitorder="little").view(np.bool_)
