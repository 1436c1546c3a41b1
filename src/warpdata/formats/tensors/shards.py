"""Canonical bytes in several blobs: where they are cut, and how the parts are read as one.

Cuts follow tensors, so that a tensor which did not change is the same blob in the next version, whatever
happened to the others. Implements "Shards" of docs/specs/tensors.md.
"""

from __future__ import annotations

import hashlib
import threading
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from itertools import accumulate, pairwise
from typing import Any

from warpdata.formats.tensors.index import TensorIndex, align
from warpdata.formats.tensors.sources import ByteSource, FileSource, Stored
from warpdata.formats.tensors.strided_copy import Patch, clip_patch
from warpdata.formats.tensors.workers import for_each, processors
from warpdata.limits import TENSOR_ALONE_BYTES, TENSOR_OPEN_FILES, TENSOR_SHARD_BYTES, VIEW_THREADS

__all__ = ["FileShards", "StoreShards", "cut_shards"]

_ONE_IN = 8


def cut_shards(index: TensorIndex) -> list[tuple[int, int]]:
    """Ranges that tile the canonical bytes and the padding behind them. Pure."""
    cuts: list[int] = []
    held = 0
    for start, end, name in _rooms(index):
        if end - start >= TENSOR_ALONE_BYTES:
            cuts += range(start, end, TENSOR_SHARD_BYTES)
            held = 0
            continue
        if held == 0 or held + end - start > TENSOR_SHARD_BYTES:
            cuts.append(start)
            held = 0
        held += end - start
        if held >= TENSOR_ALONE_BYTES and hashlib.sha256(name.encode()).digest()[0] % _ONE_IN == 0:
            held = 0
    return list(pairwise([*cuts, align(index.total_size)]))


def _rooms(index: TensorIndex) -> Iterator[tuple[int, int, str]]:
    """Every storage with the padding up to the next, and the first of its names."""
    storages = {(entry.offset, entry.size): entry.name for entry in reversed(index.entries) if entry.size}
    names = {offset: name for (offset, _), name in sorted(storages.items())}
    first, *others = names or [0]
    for start, end in pairwise([0, *others, align(index.total_size)]):
        if start < end:
            yield start, end, names.get(start or first, "")


class _Shards(Stored):
    """Parts that follow each other. They are opened when they are first needed, and some are kept open."""

    def __init__(self, sizes: Sequence[int], open_part: Callable[[int], Any]) -> None:
        self._starts = [0, *accumulate(sizes)]
        self._open_part = open_part
        self._lock = threading.Lock()
        self._opened: OrderedDict[int, Any] = OrderedDict()

    @property
    def size_bytes(self) -> int:
        return self._starts[-1]

    def cuts(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        """A range, cut where parts end."""
        number = bisect_right(self._starts, start) - 1
        while start < end:
            number += 1
            stop = min(end, self._starts[number])
            if stop > start:
                yield start, stop
            start = max(start, stop)

    def _parts(self, start: int, end: int) -> Iterator[tuple[Any, int, int, int]]:
        """(part, its beginning, from, to): the last two as they are counted here."""
        for first, last in self.cuts(start, end):
            number = bisect_right(self._starts, first) - 1
            yield self._part(number), self._starts[number], first, last

    def _part(self, number: int) -> Any:
        with self._lock:
            found = self._opened.get(number)
            if found is None:
                found = self._opened[number] = self._open_part(number)
            self._opened.move_to_end(number)
            # Files that others still read from are closed when they let go of them.
            while len(self._opened) > TENSOR_OPEN_FILES:
                self._opened.popitem(last=False)
        return found

    def close(self) -> None:
        """Safe to call twice, and to read again afterwards."""
        with self._lock:
            self._opened.clear()


class StoreShards(_Shards):
    """Objects of a store, or any other sources. A range is as many requests as it has parts.

    `doubt` is told the number of a part that does not verify, and says whether asking again may help.
    """

    concurrency = VIEW_THREADS

    def __init__(
        self, sizes: Sequence[int], open_part: Callable[[int], ByteSource], doubt: Callable[[int], bool] | None = None
    ) -> None:
        super().__init__(sizes, open_part)
        self._doubt = doubt

    def read_range(self, start: int, end: int) -> bytes | bytearray | memoryview:
        parts = list(self._parts(start, end))
        if len(parts) == 1:
            ((part, at, first, last),) = parts
            whole: bytes | bytearray | memoryview = part.read_range(first - at, last - at)
            return whole
        pieces: list[bytes | bytearray | memoryview] = [b""] * len(parts)

        def read(number: int) -> None:
            part, at, first, last = parts[number]
            pieces[number] = part.read_range(first - at, last - at)

        # At once, because each of them may be a journey.
        for_each(range(len(parts)), min(len(parts), VIEW_THREADS), lambda: nullcontext(read))
        return b"".join(pieces)

    def invalidate(self, start: int, end: int) -> bool:
        if self._doubt is None:
            return False
        # All are told, because nobody knows which of them is to blame.
        told = [self._doubt(bisect_right(self._starts, first) - 1) for first, _ in self.cuts(start, end)]
        return any(told)


class FileShards(_Shards):
    """Local files. Read and gathered as one file would be."""

    def __init__(self, sizes: Sequence[int], open_part: Callable[[int], FileSource]) -> None:
        super().__init__(sizes, open_part)

    @property
    def concurrency(self) -> int:
        return processors()

    def read_range(self, start: int, end: int) -> bytearray:
        out = bytearray(end - start)
        self.read_into(start, [memoryview(out)])
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

    def gather(self, patch: Patch, target: memoryview, target_at: int) -> None:
        for part, at, first, last in self._parts(patch.source, patch.source + patch.span):
            for piece in clip_patch(patch, first, last):
                moved = piece.moved(-at)
                begin = moved.target - target_at
                part.gather(moved, target[begin : begin + moved.target_span], moved.target)
