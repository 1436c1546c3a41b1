"""Canonical bytes in several shards: the cuts, and sources that read the shards as one.

Cuts follow tensors, so that a tensor which did not change is the same blob in the next version, whatever happened to
the others. Implements "Shards" of docs/specs/tensors.md.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate, pairwise
from typing import Generic, TypeVar

from warpdata.errors import StorageError
from warpdata.formats.tensors.index import TensorIndex, align
from warpdata.formats.tensors.reads import PIECE_BYTES
from warpdata.formats.tensors.strided_copy import StridedCopy, clip_copy, copy_strided
from warpdata.primitives.byte_lru import ByteLRU
from warpdata.primitives.concurrency import descriptor_share
from warpdata.primitives.parallel import IO_POOL, request_slots, usable_cores
from warpdata.storage import FileRangeSource, MappableSource, RangeSource

__all__ = ["SHARD_BYTES", "FileShards", "StoreShards", "can_gather", "cut_shards", "gather"]

SHARD_BYTES = 64 * 1024**2
_ALONE_BYTES = 4 * 1024**2  # a storage of this size has shards of its own
_CUT_EVERY = 8  # one in 8 names ends a shard, whatever its neighbours are
_MAX_OPEN_SHARDS = 4096
"""An open shard keeps its mapping, so that its pages are found once. A lower limit of the system allows fewer."""
_SHARE_OF_FILES = 1 / 8

S = TypeVar("S", bound=RangeSource)


def cut_shards(index: TensorIndex) -> list[tuple[int, int]]:
    """Return ranges that tile the canonical bytes and the padding after them. Pure."""
    cuts: list[int] = []
    held = 0
    for start, end, name in _padded_storages(index):
        if end - start >= _ALONE_BYTES:
            cuts += range(start, end, SHARD_BYTES)
            held = 0
            continue
        if held == 0 or held + end - start > SHARD_BYTES:
            cuts.append(start)
            held = 0
        held += end - start
        if held >= _ALONE_BYTES and hashlib.sha256(name.encode()).digest()[0] % _CUT_EVERY == 0:
            held = 0
    return list(pairwise([*cuts, align(index.total_size)]))


def _padded_storages(index: TensorIndex) -> Iterator[tuple[int, int, str]]:
    """Yield every storage, with the padding up to the next, and the first of its names."""
    storages = {(entry.offset, entry.size): entry.name for entry in reversed(index.entries) if entry.size}
    names = {offset: name for (offset, _), name in sorted(storages.items())}
    first, *others = names or [0]
    for start, end in pairwise([0, *others, align(index.total_size)]):
        if start < end:
            yield start, end, names.get(start or first, "")


class _Shards(Generic[S]):
    """Shards that follow each other. A shard is opened when it is first needed; the last used ones stay open."""

    def __init__(self, sizes: Sequence[int], open_part: Callable[[int], S]) -> None:
        self._starts = [0, *accumulate(sizes)]
        self._open_part = open_part
        # An evicted file is closed when its last reader drops it.
        self._opened: ByteLRU[int, S] = ByteLRU(
            max_entries=min(_MAX_OPEN_SHARDS, descriptor_share(_SHARE_OF_FILES, _MAX_OPEN_SHARDS))
        )

    @property
    def size_bytes(self) -> int:
        return self._starts[-1]

    def split_range(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        """Yield a range, cut where shards end."""
        number = bisect_right(self._starts, start) - 1
        while start < end:
            number += 1
            stop = min(end, self._starts[number])
            if stop > start:
                yield start, stop
            start = max(start, stop)

    def close(self) -> None:
        """Close all shards. Safe to call twice; a later read opens them again."""
        self._opened.clear()

    def _parts(self, start: int, end: int) -> Iterator[tuple[S, int, int, int]]:
        """Yield (shard, its first byte, start, end) for the shards of a range, in bytes of the whole."""
        for first, last in self.split_range(start, end):
            number = self._number(first)
            shard = self._opened.get_or_create(number, lambda number=number: self._open_part(number))  # type: ignore[misc]
            yield shard, self._starts[number], first, last

    def _number(self, position: int) -> int:
        return bisect_right(self._starts, position) - 1


class StoreShards(_Shards[RangeSource]):
    """Objects of a store, or any other sources. A range takes one request per shard.

    `invalidate_part(number)` drops the cached copy of a shard. True: a second read may return other bytes.
    """

    def __init__(
        self,
        sizes: Sequence[int],
        open_part: Callable[[int], RangeSource],
        invalidate_part: Callable[[int], bool] = lambda _: False,
    ) -> None:
        super().__init__(sizes, open_part)
        self._invalidate_part = invalidate_part

    @property
    def concurrency(self) -> int:
        return request_slots(PIECE_BYTES)

    def read_range(self, start: int, end: int) -> memoryview:
        parts = list(self._parts(start, end))
        if len(parts) == 1:
            ((part, at, first, last),) = parts
            return memoryview(part.read_range(first - at, last - at))

        def read(number: int) -> memoryview:
            part, at, first, last = parts[number]
            return part.read_range(first - at, last - at)

        # In parallel, because each may be a request to a distant server.
        return memoryview(b"".join(IO_POOL.map_all(read, range(len(parts)))))

    def invalidate(self, start: int, end: int) -> bool:
        # Drop every shard of the range: the hash does not say which one is corrupt.
        dropped = [self._invalidate_part(self._number(first)) for first, _ in self.split_range(start, end)]
        return any(dropped)


class FileShards(_Shards[FileRangeSource]):
    """Local files, read and gathered as one file."""

    @property
    def concurrency(self) -> int:
        return usable_cores()

    def read_range(self, start: int, end: int) -> memoryview:
        out = memoryview(bytearray(end - start))
        self.read_into(start, [out])
        return out

    def read_into(self, start: int, targets: Sequence[memoryview]) -> None:
        waiting = list(reversed(targets))
        for part, at, first, last in self._parts(start, start + sum(map(len, targets))):
            taken: list[memoryview] = []
            left = last - first
            while left:
                target = waiting.pop()
                if len(target) > left:
                    waiting.append(target[left:])
                    target = target[:left]
                taken.append(target)
                left -= len(target)
            part.read_into(first - at, taken)

    def gather(self, copy: StridedCopy, target: memoryview, target_at: int) -> None:
        for part, at, first, last in self._parts(copy.source, copy.source + copy.span):
            for piece in clip_copy(copy, first, last):
                begin = piece.target - target_at
                gather(part, piece.moved(-at), target[begin : begin + piece.target_span], piece.target)


def can_gather(source: object) -> bool:
    """Return whether `gather` can read strided blocks of a source, without the gaps between them."""
    return isinstance(source, MappableSource | FileShards)


def gather(source: MappableSource | FileShards, copy: StridedCopy, target: memoryview, target_at: int) -> None:
    """Copy blocks of a source; `target_at` is the position of the first byte of `target`.

    The source is mapped, so that only pages with blocks in them are read. A file that shrinks during the copy kills
    the process; a file that is already too short is a `StorageError`.
    """
    if isinstance(source, FileShards):
        source.gather(copy, target, target_at)
        return
    mapped, end = source.map(), copy.source + copy.span
    if len(mapped) < end:
        raise StorageError(f"a source ends at byte {len(mapped)}; bytes up to {end} were expected")
    copy_strided(copy, mapped, 0, target, target_at)
