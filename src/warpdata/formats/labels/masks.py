"""Run-length encoded masks: counts of zeros and ones in turn, down the columns, as COCO has them. Pure.

COCO writes the counts as a list, or compressed into text of 6 bits a character. Both have the same meaning.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from warpdata.errors import BadInputError
from warpdata.limits import MAX_IMAGE_PIXELS, MAX_MASK_RUNS

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["check_runs", "decode_counts", "decode_mask", "encode_counts", "encode_mask"]

_FIRST_CHARACTER = 48
_VALUE_BITS, _MORE, _SIGN = 0x1F, 0x20, 0x10


def decode_counts(text: str | bytes) -> tuple[int, ...]:
    """Return the counts of compressed text. From the fourth on, each is stored as the difference to the second last."""
    data = text.encode() if isinstance(text, str) else text
    counts: list[int] = []
    value = shift = 0
    for character in data:
        bits = character - _FIRST_CHARACTER
        if not 0 <= bits < 64 or shift > 50:
            raise BadInputError(f"{data[:40]!r} is not a compressed mask")
        value |= (bits & _VALUE_BITS) << shift
        shift += 5
        if bits & _MORE:
            continue
        if bits & _SIGN:
            value |= -1 << shift
        counts.append(value + (counts[-2] if len(counts) > 2 else 0))
        value = shift = 0
    if shift:
        raise BadInputError("a compressed mask ends within a number")
    return tuple(counts)


def encode_counts(counts: Sequence[int]) -> str:
    """Return counts as compressed text: the opposite of `decode_counts`."""
    text = bytearray()
    for index, count in enumerate(counts):
        value = count - counts[index - 2] if index > 2 else count
        while True:
            bits = value & _VALUE_BITS
            value >>= 5
            is_last = value == (-1 if bits & _SIGN else 0)
            text.append((bits if is_last else bits | _MORE) + _FIRST_CHARACTER)
            if is_last:
                break
    return text.decode("ascii")


def check_runs(size: Sequence[int], counts: Iterable[int]) -> tuple[tuple[int, int], tuple[int, ...]]:
    """Return height and width, and the counts. `BadInputError` unless the counts fill the mask exactly."""
    listed = tuple(counts)
    sides = tuple(size)
    if len(sides) != 2 or not all(_is_count(side) and side > 0 for side in sides):
        raise BadInputError(f"a mask has the size (height, width), not {size!r}")
    height, width = sides
    if height * width > MAX_IMAGE_PIXELS or len(listed) > MAX_MASK_RUNS:
        raise BadInputError(
            f"a mask of {height} × {width} pixels in {len(listed):,} runs is too large",
            hint=f"The limits are {MAX_IMAGE_PIXELS:,} pixels and {MAX_MASK_RUNS:,} runs.",
        )
    if not all(map(_is_count, listed)) or sum(listed) != height * width:
        raise BadInputError(f"the runs of a mask of {height} × {width} pixels must add up to {height * width}")
    return (height, width), listed


def encode_mask(mask: Any) -> tuple[tuple[int, int], tuple[int, ...]]:
    """Return size and counts of a two-dimensional array, whose non-zero values belong to the mask."""
    import numpy as np

    array = np.asarray(mask)
    if array.ndim != 2 or not array.size:
        raise BadInputError(f"a mask is a two-dimensional array, not one of shape {array.shape}")
    flat = (array != 0).ravel(order="F")
    changes = np.flatnonzero(np.diff(flat)) + 1
    ends = np.concatenate([[0] if flat[0] else [], [0], changes, [flat.size]]).astype(np.int64)
    return check_runs(array.shape, np.diff(ends).tolist())


def decode_mask(size: tuple[int, int], counts: Sequence[int]) -> NDArray[np.bool_]:
    """Return the mask as an array of height and width."""
    import numpy as np

    values = np.arange(len(counts)) % 2 == 1
    return np.repeat(values, counts).reshape(size, order="F")


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0
