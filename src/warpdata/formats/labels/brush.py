"""Brushes of Label Studio: a bit stream of runs over RGBA bytes, row by row. A pixel is set if its alpha is not zero.

The stream has the number of bytes (32 bits), the bits of a value less one (5), four sizes less one (4 each), and
blocks. A block has a flag, the number of a size (2), its length less one in that size, and one value for all bytes or
one for each.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from warpdata.errors import BadInputError
from warpdata.formats.labels.annotations import Mask
from warpdata.formats.labels.masks import encode_mask
from warpdata.limits import MAX_IMAGE_PIXELS

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["decode_brush", "encode_brush"]

_CHANNELS = 4
_LENGTH_BITS = (3, 4, 8, 16)


class _Bits:
    """Reads numbers from a string of bits."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def read(self, count: int) -> int:
        first, end = self._at, self._at + count
        if end > 8 * len(self._data):
            raise BadInputError("a brush ends within a block")
        self._at = end
        piece = int.from_bytes(self._data[first // 8 : (end + 7) // 8], "big")
        return (piece >> (-end % 8)) & ((1 << count) - 1)


def decode_brush(rle: Any, size: tuple[int, int]) -> dict[str, Any]:
    """Return the mask of a brush as height, width and counts. `size` is width and height of the image."""
    import numpy as np

    width, height = size
    if width * height > MAX_IMAGE_PIXELS:
        raise BadInputError(f"a brush of {width} × {height} pixels is too large")
    try:
        bits = _Bits(bytes(rle))
    except (TypeError, ValueError) as error:
        raise BadInputError("the rle of a brush is a list of bytes") from error
    total = bits.read(32)
    value_bits = bits.read(5) + 1
    if total != width * height * _CHANNELS or value_bits > 16:
        raise BadInputError(f"a brush of {total} bytes does not fill an image of {width} × {height} pixels")
    sizes = [bits.read(4) + 1 for _ in range(4)]
    values = np.zeros(total, np.uint16)
    at = 0
    while at < total:
        is_run = bits.read(1)
        end = at + 1 + bits.read(sizes[bits.read(2)])
        if end > total:
            raise BadInputError("a brush has more bytes than it declares")
        if is_run:
            values[at:end] = bits.read(value_bits)
        else:
            values[at:end] = [bits.read(value_bits) for _ in range(end - at)]
        at = end
    mask = values.reshape(height, width, _CHANNELS)[:, :, 3] != 0
    shape, counts = encode_mask(mask)
    return {"size": shape, "counts": counts}


def encode_brush(mask: Mask) -> list[int]:
    """Return the bytes of a brush. All four channels of a pixel are 255, or 0."""
    import numpy as np

    pixels = mask.to_array().ravel()
    changes = np.flatnonzero(np.diff(pixels)) + 1
    ends = np.concatenate([[0], changes, [pixels.size]]) * _CHANNELS
    parts = [(32, pixels.size * _CHANNELS), (5, 7), *((4, bits - 1) for bits in _LENGTH_BITS)]
    for start, end in zip(ends[:-1].tolist(), ends[1:].tolist(), strict=True):
        parts += _blocks(end - start, 255 if pixels[start // _CHANNELS] else 0)
    return list(_pack(parts))


def _blocks(length: int, value: int) -> list[tuple[int, int]]:
    """Return the blocks of a run."""
    parts: list[tuple[int, int]] = []
    while length:
        number = next((n for n, bits in enumerate(_LENGTH_BITS) if length <= 1 << bits), len(_LENGTH_BITS) - 1)
        taken = min(length, 1 << _LENGTH_BITS[number])
        parts += [(1, 1), (2, number), (_LENGTH_BITS[number], taken - 1), (8, value)]
        length -= taken
    return parts


def _pack(parts: list[tuple[int, int]]) -> bytes:
    import numpy as np

    widths = np.array([width for width, _ in parts])
    bits: NDArray[np.uint8] = np.zeros(int(widths.sum()), np.uint8)
    at = 0
    for width, value in parts:
        for offset in range(width):
            bits[at + offset] = value >> (width - 1 - offset) & 1
        at += width
    return np.packbits(bits).tobytes()
