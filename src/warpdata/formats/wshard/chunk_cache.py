"""Decoded and verified time chunks, cached for later windows: windows overlap, and chunks decode as a whole.

Each block of an open file has its own bound, and the process has one for all blocks. The oldest chunks of a block are
evicted first, and blocks that were not read recently before others. A block that is read repeatedly is cached as one
array, so that a window is a slice of it. Implements "Chunk cache" of docs/specs/wshard.md.

A `ByteLRU` does not fit: there are two bounds, and reads take no lock.
"""

from __future__ import annotations

import itertools
import threading
import weakref
from collections import OrderedDict, deque

from warpdata.formats.wshard.dtypes import Array
from warpdata.limits import GIB, MIB
from warpdata.primitives.fork import register_after_fork

__all__ = ["BLOCK_CACHE_BYTES", "CHUNK_CACHE", "BlockCache", "ChunkCache"]

BLOCK_CACHE_BYTES = 8 * MIB
"""Default bound for one block."""
_PROCESS_CACHE_BYTES = 2 * GIB


class ChunkCache:
    """The chunks of all blocks of a process. Safe to share between threads."""

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self.size_bytes = 0
        self._blocks: OrderedDict[int, _Entry] = OrderedDict()
        self._numbers = itertools.count()
        # The garbage collector may finalize a block while a thread holds the lock. So the finalizer only queues the
        # number, and the next insertion removes the entry.
        self._finalized: deque[int] = deque()
        self._lock = threading.Lock()
        register_after_fork(self._reset_after_fork)

    def open_block(self, max_bytes: int) -> BlockCache:
        """Return a cache for one block. Its chunks are dropped when it is garbage-collected."""
        number, entry = next(self._numbers), _Entry(max_bytes)
        block = BlockCache(self, number, entry)
        weakref.finalize(block, self._finalized.append, number).atexit = False
        return block

    def put(self, number: int, entry: _Entry, chunk: int, data: memoryview) -> None:
        if len(data) > min(entry.max_bytes, self.max_bytes):
            return
        with self._lock:
            self._remove_finalized()
            if chunk in entry.chunks or entry.rows is not None:
                return  # another thread was faster
            self._blocks[number] = entry
            entry.chunks[chunk] = data
            self._add_bytes(entry, len(data))
            while entry.size_bytes > entry.max_bytes:
                self._evict_oldest(entry)
            self._shrink()

    def put_rows(self, number: int, entry: _Entry, rows: Array) -> None:
        """Cache a whole block in place of its chunks."""
        with self._lock:
            self._remove_finalized()
            if entry.rows is not None:
                return  # another thread was faster
            self._blocks[number] = entry
            entry.chunks.clear()
            entry.rows = rows
            self._add_bytes(entry, rows.nbytes - entry.size_bytes)
            self._shrink()

    def clear(self, number: int) -> None:
        with self._lock:
            self._remove(number)

    def _reset_after_fork(self) -> None:
        """Start empty. A thread of the parent may have held the lock in the middle of an update."""
        self._lock = threading.Lock()
        for entry in self._blocks.values():
            entry.chunks.clear()
            entry.rows = None
            entry.size_bytes = 0
        self._blocks.clear()
        self._finalized.clear()
        self.size_bytes = 0

    def _shrink(self) -> None:
        """Evict chunks of the first block, unless it was read since it last came first."""
        while self.size_bytes > self.max_bytes:
            number, entry = next(iter(self._blocks.items()))
            if entry.was_read:
                entry.was_read = False
                self._blocks.move_to_end(number)
                continue
            self._evict_oldest(entry)
            if not entry.size_bytes:
                del self._blocks[number]

    def _evict_oldest(self, entry: _Entry) -> None:
        if entry.rows is not None:
            entry.rows = None
            self._add_bytes(entry, -entry.size_bytes)
        else:
            self._add_bytes(entry, -len(entry.chunks.popitem(last=False)[1]))

    def _add_bytes(self, entry: _Entry, change: int) -> None:
        entry.size_bytes += change
        self.size_bytes += change

    def _remove_finalized(self) -> None:
        while self._finalized:
            self._remove(self._finalized.popleft())

    def _remove(self, number: int) -> None:
        entry = self._blocks.pop(number, None)
        if entry is not None:
            entry.chunks.clear()
            entry.rows = None
            self._add_bytes(entry, -entry.size_bytes)


class _Entry:
    """The cached chunks of one block, oldest first, or all of its rows."""

    __slots__ = ("chunks", "max_bytes", "read_bytes", "rows", "size_bytes", "was_read")

    def __init__(self, max_bytes: int) -> None:
        self.chunks: OrderedDict[int, memoryview] = OrderedDict()
        self.rows: Array | None = None
        self.max_bytes = max_bytes
        self.size_bytes = 0
        self.read_bytes = 0
        self.was_read = False


class BlockCache:
    """The chunks of one block, by number. Callers verify a chunk before they put it."""

    __slots__ = ("__weakref__", "_cache", "_entry", "_number")

    def __init__(self, cache: ChunkCache, number: int, entry: _Entry) -> None:
        self._cache = cache
        self._number = number
        self._entry = entry

    def get(self, chunk: int) -> memoryview | None:
        """Return a chunk. Takes no lock: one dictionary lookup is atomic."""
        self._entry.was_read = True
        return self._entry.chunks.get(chunk)

    def put(self, chunk: int, data: memoryview) -> None:
        self._cache.put(self._number, self._entry, chunk, data)

    @property
    def rows(self) -> Array | None:
        """The whole block, if it is cached as one array."""
        self._entry.was_read = True
        return self._entry.rows

    def should_load_all(self, read_bytes: int, block_bytes: int) -> bool:
        """Count bytes that windows read, and return whether to cache the whole block now.

        True once windows have read as many bytes as the block has, and the block fits without evicting others: those
        may be read as often. The count starts again after that.
        """
        entry = self._entry
        entry.read_bytes += read_bytes
        if entry.read_bytes < block_bytes:
            return False
        entry.read_bytes = 0
        free_bytes = self._cache.max_bytes - self._cache.size_bytes + entry.size_bytes
        return block_bytes <= min(entry.max_bytes, free_bytes)

    def put_rows(self, rows: Array) -> None:
        """Cache the whole block, every chunk of it verified."""
        self._cache.put_rows(self._number, self._entry, rows)

    def clear(self) -> None:
        self._cache.clear(self._number)


CHUNK_CACHE = ChunkCache(_PROCESS_CACHE_BYTES)
