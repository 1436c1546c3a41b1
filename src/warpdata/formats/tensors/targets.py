"""Where bytes go: one or more regions of this machine's memory, laid end to end in one space of positions."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import Any

import numpy as np

from warpdata.errors import ViewPreconditionError

__all__ = ["HostTarget", "host_bytes"]

_DLPACK_CPU = 1


class HostTarget:
    """Regions by the position each begins at. What is asked for lies in one of them."""

    __slots__ = ("_regions", "_starts")

    def __init__(self, regions: Sequence[tuple[int, memoryview]]) -> None:
        self._starts = [start for start, _ in regions]
        self._regions = [region for _, region in regions]

    def at(self, start: int, size: int) -> memoryview:
        number = bisect_right(self._starts, start) - 1
        first = start - self._starts[number]
        return self._regions[number][first : first + size]


def host_bytes(region: Any) -> memoryview:
    """Any memory in one piece, as bytes: by the buffer protocol, or by DLPack if it is this machine's."""
    try:
        if not isinstance(region, np.ndarray) and _is_dlpack(region):
            region = np.from_dlpack(region)
        if isinstance(region, np.ndarray):
            region = region.reshape(-1).view(np.uint8) if region.flags.c_contiguous else None
        view = memoryview(region)
        return view.cast("B") if view.nbytes else memoryview(bytearray())
    except (TypeError, ValueError, BufferError) as error:
        raise ViewPreconditionError("the target is not memory in one piece", hint="pass a contiguous array") from error


def _is_dlpack(region: Any) -> bool:
    """Whether this is memory of this machine that only DLPack can show."""
    try:
        memoryview(region)
    except TypeError:
        device = getattr(region, "__dlpack_device__", None)
        return device is not None and int(device()[0]) == _DLPACK_CPU
    return False
