"""A blob that is being filled: which of its bytes are here already, and what they hash to.

The file is as long as the blob, plus a few bytes at the end that tell other processes how far it is.
Each byte is written at most once, and by the owner alone, so what was hashed is what will be kept. A map
beside it tells other processes which bytes they may use, and the owner which they wait for. Implements
"Filling" and "Maps" of docs/specs/cache.md.
"""

from __future__ import annotations

import errno
import hashlib
import os
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from warpdata.limits import CACHE_UNIT_BYTES, COPY_CHUNK_BYTES
from warpdata.primitives.hashing import Blob
from warpdata.storage import ByteRange
from warpdata.storage.cache.locks import Handle
from warpdata.storage.cache.spans import Spans

if TYPE_CHECKING:
    import xxhash

__all__ = [
    "MAP_BEAT_BYTES",
    "TRAILER_BYTES",
    "Claim",
    "Part",
    "Progress",
    "is_collecting",
    "read_progress",
    "reserved_bytes",
    "unit_count",
    "units_of",
]

TRAILER_BYTES = 16
MAP_BEAT_BYTES = 8
_FILLING, _COLLECTING = b"filling\0", b"collect\0"


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a fill has come, as other processes see it."""

    size_bytes: int
    covered_bytes: int


def unit_count(size_bytes: int) -> int:
    """How many units a blob has. Its map has as many bytes twice, for what is there and for what is wished."""
    return -(-size_bytes // CACHE_UNIT_BYTES)


def units_of(span: ByteRange) -> range:
    """The units that a range touches."""
    return range(span.start // CACHE_UNIT_BYTES, unit_count(span.end) if span.size_bytes else 0)


class Claim:
    """The right to fill a blob, taken before its size is known. Becomes a part, or is given back."""

    def __init__(self, handle: Handle, path: Path) -> None:
        self.handle = handle
        self.path = path


class Part:
    """Owned by one process, whose threads may share it. Only a `BlobCache` makes and ends one."""

    def __init__(self, handle: Handle, path: Path, blob: Blob) -> None:
        self.handle = handle
        self.path = path
        self.blob = blob
        self.is_over = False
        """Set when the part was kept or thrown away. Later writes do nothing."""
        self.map: Handle | None = None
        """Where other processes look; None for a blob so small that it comes at once."""
        self._lock = threading.Lock()
        self._tell_lock = threading.Lock()
        self._taken = Spans()
        self._covered = Spans()
        self._hash_lock = threading.Lock()
        self._strong = hashlib.sha256()
        self._quick = _xxh3_128()
        self._hashed_bytes = 0
        self._phase = _COLLECTING
        self._beats = 0

    @property
    def covered_bytes(self) -> int:
        return self._covered.size_bytes

    @property
    def is_complete(self) -> bool:
        return self._covered.size_bytes == self.blob.byte_size

    def covers(self, span: ByteRange) -> bool:
        with self._lock:
            return self._covered.covers(span)

    def write(self, start: int, data: memoryview) -> None:
        """Put bytes in their place, except those that somebody has put there or is about to."""
        whole = ByteRange(start, start + len(data))
        with self._lock:
            fresh = [] if self.is_over else self._taken.missing(whole)
            for span in fresh:
                self._taken.add(span)
        for span in fresh:
            _write_all(self.handle.fd, data[span.start - start : span.end - start], span.start)
        with self._lock:
            for span in fresh:
                self._covered.add(span)
        if fresh:
            self._show(fresh)
            if self._phase is _FILLING:
                self.tell(filling=True)

    def read(self, span: ByteRange) -> memoryview:
        """Bytes that are covered; as good as bytes from the store, and as little verified."""
        pieces = []
        position = span.start
        while position < span.end and (piece := os.pread(self.handle.fd, span.end - position, position)):
            pieces.append(piece)
            position += len(piece)
        if position < span.end:
            raise OSError(errno.EIO, f"{self.path} ends at byte {position}")
        return memoryview(pieces[0] if len(pieces) == 1 else b"".join(pieces))

    def tell(self, *, filling: bool) -> None:
        """Let other processes see whether somebody is working on the rest, and how much is there."""
        with self._tell_lock:
            self._phase = _FILLING if filling else _COLLECTING
            if not self.is_over:
                count = self._covered.size_bytes.to_bytes(TRAILER_BYTES - len(self._phase), "little")
                os.pwrite(self.handle.fd, self._phase + count, self.blob.byte_size)

    def wishes(self) -> list[ByteRange]:
        """What other processes wait for and is not there yet. They are shown that somebody has looked."""
        if self.map is None:
            return []
        count = unit_count(self.blob.byte_size)
        wished = Spans()
        for unit, mark in enumerate(os.pread(self.map.fd, count, count)):
            if mark:
                wished.add(self._unit(unit))
        with self._lock:
            missing = [gap for span in wished for gap in self._covered.missing(span)]
        if missing:
            self._beats += 1
            os.pwrite(self.map.fd, self._beats.to_bytes(MAP_BEAT_BYTES, "little"), 2 * count)
        return missing

    def end(self) -> bool:
        """From now on nothing is written any more. False if the part was over already."""
        with self._tell_lock, self._lock:
            was_over, self.is_over = self.is_over, True
        return not was_over

    def hash_ahead(self) -> None:
        """Hash what is there without a gap. Returns at once if another thread is at it."""
        if self._hash_lock.acquire(blocking=False):
            try:
                self._hash_prefix()
            finally:
                self._hash_lock.release()

    def hashes(self) -> tuple[str, str]:
        """SHA-256 and XXH3-128 of a complete part, as it lies in the file."""
        with self._hash_lock:
            self._hash_prefix()
            assert self._hashed_bytes == self.blob.byte_size, "only a complete part has a hash"
            return self._strong.hexdigest(), self._quick.hexdigest()

    def _show(self, spans: Sequence[ByteRange]) -> None:
        """Let other processes use the units that these ranges have completed."""
        if self.map is not None:
            with self._lock:
                touched = {unit for span in spans for unit in units_of(span)}
                whole = [unit for unit in touched if self._covered.covers(self._unit(unit))]
            for unit in whole:
                os.pwrite(self.map.fd, b"\1", unit)

    def _unit(self, number: int) -> ByteRange:
        start = number * CACHE_UNIT_BYTES
        return ByteRange(start, min(start + CACHE_UNIT_BYTES, self.blob.byte_size))

    def _hash_prefix(self) -> None:
        while True:
            with self._lock:
                end = self._covered.prefix_end()
            if end <= self._hashed_bytes:
                return
            while self._hashed_bytes < end:
                count = min(COPY_CHUNK_BYTES, end - self._hashed_bytes)
                chunk = os.pread(self.handle.fd, count, self._hashed_bytes)
                if not chunk:
                    raise OSError(errno.EIO, f"{self.path} ends at byte {self._hashed_bytes}")
                self._strong.update(chunk)
                self._quick.update(chunk)
                self._hashed_bytes += len(chunk)


def is_collecting(handle: Handle) -> bool:
    """Whether another process has this part, and fetches nothing for it."""
    if handle.try_lock(exclusive=False):
        handle.unlock()
        return False
    size = handle.size_bytes() - TRAILER_BYTES
    return size >= 0 and os.pread(handle.fd, TRAILER_BYTES, size).startswith(_COLLECTING)


def read_progress(handle: Handle) -> Progress | None:
    """How far another process is with this part; None when nobody works on it, or only collects."""
    if handle.try_lock(exclusive=False):
        handle.unlock()
        return None
    size = handle.size_bytes() - TRAILER_BYTES
    if size < 0:
        return Progress(0, 0)  # somebody is reserving room for it
    line = os.pread(handle.fd, TRAILER_BYTES, size)
    if not line.startswith(_FILLING):
        return None
    return Progress(size, int.from_bytes(line[len(_FILLING) :], "little"))


def reserved_bytes(handle: Handle) -> int:
    """What the ledger counts for a part that was left behind. Nothing, unless it is surely one of ours."""
    size = handle.size_bytes()
    line = os.pread(handle.fd, TRAILER_BYTES, size - TRAILER_BYTES) if size >= TRAILER_BYTES else b""
    return size if line.startswith((_FILLING, _COLLECTING)) else 0


def _write_all(fd: int, data: memoryview, offset: int) -> None:
    while len(data):
        count = os.pwrite(fd, data, offset)
        data, offset = data[count:], offset + count


def _xxh3_128() -> xxhash.xxh3_128:
    import xxhash

    return xxhash.xxh3_128()
