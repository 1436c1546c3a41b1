"""Roaring bitmaps to and from NumPy, without a Python object for each number."""

from __future__ import annotations

import array
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from pyroaring import BitMap

__all__ = ["bitmap_bytes", "bitmap_of", "numbers_of", "range_bitmap", "unite"]


def bitmap_of(numbers: NDArray[np.integer]) -> BitMap:
    """Return the bitmap of numbers below 2³², in any order."""
    import numpy as np
    from pyroaring import BitMap

    # pyroaring reads an array of the standard library ten times as fast as one of NumPy.
    return BitMap(array.array("I", np.sort(numbers).astype(np.uint32, copy=False).tobytes()))


def numbers_of(bitmap: BitMap) -> NDArray[np.int64]:
    """Return the numbers of a bitmap, ascending."""
    import numpy as np

    return np.frombuffer(bitmap.to_array(), np.uint32).astype(np.int64)


def range_bitmap(start: int, stop: int) -> BitMap:
    """Return the bitmap of the numbers from `start` up to, not including, `stop`."""
    from pyroaring import BitMap

    out = BitMap()
    out.add_range(start, max(start, stop))
    return out


def unite(bitmaps: Sequence[BitMap]) -> BitMap:
    """Return the union: a bitmap that must not change, because it is one of the given if there is only one."""
    from pyroaring import BitMap

    return bitmaps[0] if len(bitmaps) == 1 else BitMap.union(BitMap(), *bitmaps)


def bitmap_bytes(bitmap: BitMap) -> int:
    """Return the memory of a bitmap, without that of its object."""
    counts: Any = bitmap.get_statistics()
    return sum(count for name, count in counts.items() if name.startswith("n_bytes"))
