"""Memory for batches, used again when the batch that had it is gone.

Fresh memory has to be given page by page by the system, which takes as long as filling it. A batch is anybody's
for as long as they hold any part of it; only then does its memory go back.
"""

from __future__ import annotations

import ctypes
import math
import weakref
from typing import Any

import numpy as np

from warpdata.formats.wshard import Array
from warpdata.limits import EPISODES_KEPT_BYTES, EPISODES_KEPT_FROM_BYTES

__all__ = ["BatchMemory"]


class BatchMemory:
    """Hands out arrays. Safe to share between threads.

    Memory comes back whenever the last array over it ends, also in the middle of anything here. So there is no
    lock, which that could wait for, and only steps that are whole by themselves.
    """

    def __init__(self) -> None:
        self._free: dict[int, list[Array]] = {}

    def array(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        """An array with anything in it."""
        size = math.prod(shape) * dtype.itemsize
        if size < EPISODES_KEPT_FROM_BYTES:
            return np.empty(shape, dtype)
        grain = 1 << (size.bit_length() - 4)
        room = -(-size // grain) * grain  # sizes that differ little share memory
        try:
            memory = self._free[room].pop()
        except (KeyError, IndexError):
            memory = np.empty(room, np.uint8)  # which comes in large pages where the system has them
        lease = (ctypes.c_ubyte * size).from_buffer(memory.data)
        # Every array over the lease keeps it alive, whoever made it and however it was cut.
        weakref.finalize(lease, self._take_back, memory).atexit = False
        return np.frombuffer(memoryview(lease), dtype).reshape(shape)

    def _take_back(self, memory: Array) -> None:
        waiting = self._free.setdefault(len(memory), [])
        if (len(waiting) + 1) * len(memory) <= EPISODES_KEPT_BYTES:
            waiting.append(memory)
