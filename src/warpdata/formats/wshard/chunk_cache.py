"""Decoded time chunks that were verified, kept for windows to come: windows overlap, and chunks are decoded whole.

Each block of an open file keeps a little, all of a process together no more than a bound. The oldest chunks of a
block go first, and those of blocks that were not read for a while. Of a block that is read again and again all is
kept in one array, so that a window is a slice of it. Implements "Kept chunks" of docs/specs/wshard.md.
"""

from __future__ import annotations

import itertools
import os
import threading
import weakref
from collections import OrderedDict, deque

from warpdata.formats.wshard.dtypes import Array
from warpdata.limits import WSHARD_KEPT_BYTES

__all__ = ["KEPT", "KeptChunks", "Shelf"]


class KeptChunks:
    """All that a process keeps. Safe to share between threads."""

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.size_bytes = 0
        self._blocks: OrderedDict[int, _Block] = OrderedDict()
        self._numbers = itertools.count()
        # A shelf ends whenever its last user does, also in the middle of what is done here under the lock.
        # So its end only leaves word, and whoever comes next clears it away.
        self._ended: deque[int] = deque()
        self._lock = threading.Lock()

    def shelf(self, limit_bytes: int) -> Shelf:
        """Room for the chunks of one block; what is on it goes when it does."""
        number, block = next(self._numbers), _Block(limit_bytes)
        shelf = Shelf(self, number, block)
        weakref.finalize(shelf, self._ended.append, number).atexit = False
        return shelf

    def keep(self, number: int, block: _Block, chunk: int, data: memoryview) -> None:
        if len(data) > min(block.limit_bytes, self.limit_bytes):
            return
        with self._lock:
            while self._ended:
                self._clear(self._ended.popleft())
            if chunk in block.chunks or block.rows is not None:
                return  # another thread was faster
            self._blocks[number] = block
            block.chunks[chunk] = data
            self._count(block, len(data))
            while block.size_bytes > block.limit_bytes:
                self._drop_oldest(block)
            self._shrink()

    def keep_rows(self, number: int, block: _Block, rows: Array) -> None:
        """All of a block, in place of its chunks."""
        with self._lock:
            while self._ended:
                self._clear(self._ended.popleft())
            if block.rows is not None:
                return  # another thread was faster
            self._blocks[number] = block
            block.chunks.clear()
            block.rows = rows
            self._count(block, rows.nbytes - block.size_bytes)
            self._shrink()

    def clear(self, number: int) -> None:
        with self._lock:
            self._clear(number)

    def begin_anew(self) -> None:
        """After a fork: another thread may have been in the middle of something, and is not here to end it."""
        self._lock = threading.Lock()
        for block in self._blocks.values():
            block.chunks.clear()
            block.rows = None
            block.size_bytes = 0
        self._blocks.clear()
        self._ended.clear()
        self.size_bytes = 0

    def _shrink(self) -> None:
        """Drop chunks of the block that comes first, unless it was read since it last came first."""
        while self.size_bytes > self.limit_bytes:
            number, block = next(iter(self._blocks.items()))
            if block.was_read:
                block.was_read = False
                self._blocks.move_to_end(number)
                continue
            self._drop_oldest(block)
            if not block.size_bytes:
                del self._blocks[number]

    def _drop_oldest(self, block: _Block) -> None:
        if block.rows is not None:
            block.rows = None
            self._count(block, -block.size_bytes)
        else:
            self._count(block, -len(block.chunks.popitem(last=False)[1]))

    def _count(self, block: _Block, change: int) -> None:
        block.size_bytes += change
        self.size_bytes += change

    def _clear(self, number: int) -> None:
        block = self._blocks.pop(number, None)
        if block is not None:
            block.chunks.clear()
            block.rows = None
            self._count(block, -block.size_bytes)


class _Block:
    """What is kept of one block, the oldest first."""

    __slots__ = ("chunks", "limit_bytes", "rows", "size_bytes", "taken_bytes", "was_read")

    def __init__(self, limit_bytes: int) -> None:
        self.chunks: OrderedDict[int, memoryview] = OrderedDict()
        self.rows: Array | None = None
        self.limit_bytes = limit_bytes
        self.size_bytes = 0
        self.taken_bytes = 0
        self.was_read = False


class Shelf:
    """The chunks of one block, by number. A chunk was verified before it is put here."""

    __slots__ = ("__weakref__", "_all", "_block", "_number")

    def __init__(self, kept: KeptChunks, number: int, block: _Block) -> None:
        self._all = kept
        self._number = number
        self._block = block

    def find(self, chunk: int) -> memoryview | None:
        """Takes no lock, as most windows come through here: one look into a dictionary is whole by itself."""
        self._block.was_read = True
        return self._block.chunks.get(chunk)

    def keep(self, chunk: int, data: memoryview) -> None:
        self._all.keep(self._number, self._block, chunk, data)

    @property
    def rows(self) -> Array | None:
        """The whole block, if all of it is kept."""
        self._block.was_read = True
        return self._block.rows

    def deserves_all(self, taken_bytes: int, block_bytes: int) -> bool:
        """Windows took so many bytes more: have they taken as much as the block has, and is there room for all of it?

        Room that others have is not taken from them: they may be read as often. Counting begins anew after that.
        """
        block = self._block
        block.taken_bytes += taken_bytes
        if block.taken_bytes < block_bytes:
            return False
        block.taken_bytes = 0
        free_bytes = self._all.limit_bytes - self._all.size_bytes + block.size_bytes
        return block_bytes <= min(block.limit_bytes, free_bytes)

    def keep_rows(self, rows: Array) -> None:
        """The whole block, every chunk of it verified."""
        self._all.keep_rows(self._number, self._block, rows)

    def clear(self) -> None:
        self._all.clear(self._number)


KEPT = KeptChunks(WSHARD_KEPT_BYTES)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=KEPT.begin_anew)
