"""A blob whose bytes are still arriving, shared by all readers of one store on this machine.

The data file is as long as the blob. The map beside it has a byte for each unit, set when the whole unit is in the
data file. A reader claims absent units by locking their numbers, fetches them, writes them and marks them; every
other reader waits for the mark or for the lock to go. Bytes are unverified until the whole blob is hashed.
Implements "Partial blobs" of docs/specs/cache.md.
"""

from __future__ import annotations

import errno
import hashlib
import os
import threading
from collections.abc import Iterator, Sequence
from enum import Enum

from warpdata.limits import KIB, MIB
from warpdata.primitives.hashing import Blob
from warpdata.primitives.live_objects import LiveObjects
from warpdata.primitives.lock_file import LockFile
from warpdata.primitives.ranges import ByteRange, RangeSet
from warpdata.storage.cache.layout import PartialPaths

__all__ = ["UNIT_BYTES", "PartialBlob", "PartialState", "count_open_partials", "new_map", "read_map_size"]

UNIT_BYTES = 4 * KIB
_MAGIC = b"warp-part-1\n"
_STATE_AT = 12
_SIZE_AT = 16
_HEADER_BYTES = 24
_COMMIT_LOCK = 1 << 40
"""A number that no unit has."""
_HASH_CHUNK_BYTES = 1 * MIB


class PartialState(Enum):
    """The state of a partial blob, as its map says to all processes."""

    LIVE = b"L"
    COMMITTED = b"C"
    DROPPED = b"D"


class PartialBlob:
    """One process's view of a partial blob. Safe to share between threads. `BlobCache` opens and closes it.

    A shared lock on the map says that the partial blob is in use. Ranges that are claimed or missing are aligned
    to units. Methods raise `OSError` if the disk fails.
    """

    def __init__(self, blob: Blob, paths: PartialPaths, data: LockFile, units: LockFile) -> None:
        self.blob = blob
        self.paths = paths
        self.data = data
        self.map = units
        self.is_closed = False
        """Set when this process no longer uses the partial blob. Claims find nothing then, and writes do nothing."""
        self.used_at = 0.0
        self.stalled_at_bytes = -1
        """The value of `present_bytes` at which a reader waited in vain."""
        _open_partials.add(self)
        self._changed = threading.Condition()
        self._claimed = RangeSet()
        self._is_committing = False

    @property
    def state(self) -> PartialState:
        if self.is_closed:
            return PartialState.DROPPED
        found = os.pread(self.map.fd, 1, _STATE_AT)
        return PartialState(found) if found in (b"L", b"C") else PartialState.DROPPED

    def set_state(self, state: PartialState) -> None:
        os.pwrite(self.map.fd, state.value, _STATE_AT)

    def missing(self, spans: Sequence[ByteRange]) -> list[ByteRange]:
        """Return the absent units of these ranges, claimed or not, in order."""
        wanted = RangeSet(self._aligned(span) for span in spans if span.size_bytes)
        return [gap for span in wanted for gap in self._absent(span)]

    def present_bytes(self) -> int:
        marks = self._marks(0, self._unit_count())
        count = len(marks) - marks.count(0)
        return min(count * UNIT_BYTES, self.blob.byte_size)

    @property
    def is_complete(self) -> bool:
        return 0 not in self._marks(0, self._unit_count())

    def claim(self, spans: Sequence[ByteRange], max_bytes: int | None = None) -> list[ByteRange]:
        """Claim the absent units of these ranges that no reader has claimed. Each claim ends with `release`.

        With `max_bytes`, claim only the first of them, up to that size.
        """
        claimed: list[ByteRange] = []
        with self._changed:
            for gap in [] if self.is_closed else self.missing(spans):
                for free in self._claimed.missing(gap):
                    for span in self._lock_units(free, max_bytes):
                        self._claimed.add(span)
                        claimed.append(span)
                    if claimed and max_bytes is not None:
                        return claimed
        return claimed

    def claim_next(self, max_bytes: int) -> list[ByteRange]:
        """Claim the first units of the blob that are absent and that no reader has claimed."""
        return self.claim([ByteRange(0, self.blob.byte_size)], max_bytes)

    def write(self, span: ByteRange, data: memoryview) -> None:
        """Write bytes of a claimed range, then mark its units as present."""
        if self.is_closed:
            return
        _write_all(self.data.fd, data, span.start)
        first, end = _units(span)
        os.pwrite(self.map.fd, b"\1" * (end - first), _HEADER_BYTES + first)

    def release(self, spans: Sequence[ByteRange]) -> None:
        """End claims, whether their bytes were written or not, and wake waiting threads."""
        with self._changed:
            for span in spans:
                self._claimed.discard(span)
                self.data.unlock_range(*_units(span))
            self._changed.notify_all()

    def wait(self, timeout_s: float) -> None:
        """Wait until a thread of this process ends a claim. Claims of other processes need polling."""
        with self._changed:
            self._changed.wait(timeout_s)

    def read(self, span: ByteRange) -> memoryview:
        """Return bytes whose units are present."""
        chunks, position = [], span.start
        while position < span.end and (chunk := os.pread(self.data.fd, span.end - position, position)):
            chunks.append(chunk)
            position += len(chunk)
        if position < span.end:
            raise OSError(errno.EIO, f"{self.paths.data} ends at byte {position}")
        return memoryview(chunks[0] if len(chunks) == 1 else b"".join(chunks))

    def begin_commit(self) -> bool:
        """Become the one reader that hashes and commits. False: another reader does."""
        with self._changed:
            if self._is_committing or self.is_closed:
                return False
            self._is_committing = self.data.lock_range(_COMMIT_LOCK, _COMMIT_LOCK + 1) is None
            return self._is_committing

    def hashes(self) -> tuple[str, str]:
        """Return SHA-256 and XXH3-128 of the data file."""
        import xxhash

        strong, quick, position = hashlib.sha256(), xxhash.xxh3_128(), 0
        while position < self.blob.byte_size:
            chunk = os.pread(self.data.fd, _HASH_CHUNK_BYTES, position)
            if not chunk:
                raise OSError(errno.EIO, f"{self.paths.data} ends at byte {position}")
            strong.update(chunk)
            quick.update(chunk)
            position += len(chunk)
        return strong.hexdigest(), quick.hexdigest()

    def close(self) -> bool:
        """Stop writing in this process. False: the partial blob was closed before."""
        with self._changed:
            was_closed, self.is_closed = self.is_closed, True
            self.data.unlock_range(_COMMIT_LOCK, _COMMIT_LOCK + 1)
            self._changed.notify_all()
        return not was_closed

    def _aligned(self, span: ByteRange) -> ByteRange:
        first, end = _units(span)
        return ByteRange(first * UNIT_BYTES, min(end * UNIT_BYTES, self.blob.byte_size))

    def _unit_count(self) -> int:
        return -(-self.blob.byte_size // UNIT_BYTES)

    def _marks(self, first: int, end: int) -> bytes:
        marks = os.pread(self.map.fd, end - first, _HEADER_BYTES + first)
        if len(marks) != end - first:
            raise OSError(errno.EIO, f"{self.paths.map} ends at unit {first + len(marks)}")
        return marks

    def _absent(self, span: ByteRange) -> Iterator[ByteRange]:
        first, end = _units(span)
        marks = self._marks(first, end)
        at = marks.find(0)
        while at >= 0:
            stop = marks.find(1, at)
            stop = len(marks) if stop < 0 else stop
            yield self._aligned(ByteRange((first + at) * UNIT_BYTES, (first + stop) * UNIT_BYTES))
            at = marks.find(0, stop)

    def _lock_units(self, span: ByteRange, max_bytes: int | None) -> list[ByteRange]:
        """Lock the units that no other process has locked, and keep those that are still absent."""
        locked: list[ByteRange] = []
        first, end = _units(span)
        while first < end and not (locked and max_bytes is not None):
            last = end if max_bytes is None else min(end, first + max(1, max_bytes // UNIT_BYTES))
            conflict = self.data.lock_range(first, last)
            if conflict is not None and conflict[0] > first:
                last = conflict[0]
                conflict = self.data.lock_range(first, last)
            if conflict is None:
                locked += self._keep_absent(first, last)
                first = last
            else:
                first = conflict[1]
        return locked

    def _keep_absent(self, first: int, end: int) -> list[ByteRange]:
        """Unlock the units that another reader has written since they were found absent."""
        span = self._aligned(ByteRange(first * UNIT_BYTES, end * UNIT_BYTES))
        absent = RangeSet(self._absent(span))
        for written in absent.missing(span):
            self.data.unlock_range(*_units(written))
        return list(absent)


_open_partials: LiveObjects[PartialBlob] = LiveObjects()


def count_open_partials() -> int:
    """Return the number of partial blobs that this process has open, over all readers. Each has two descriptors."""
    return sum(not partial.is_closed for partial in _open_partials)


def new_map(file: LockFile, size_bytes: int) -> None:
    """Make the file an empty map of a blob of this size."""
    units = -(-size_bytes // UNIT_BYTES)
    os.ftruncate(file.fd, 0)
    os.ftruncate(file.fd, _HEADER_BYTES + units)
    header = _MAGIC.ljust(_SIZE_AT, b"\0") + size_bytes.to_bytes(8, "little")
    os.pwrite(file.fd, header[:_STATE_AT] + PartialState.LIVE.value + header[_STATE_AT + 1 :], 0)


def read_map_size(file: LockFile) -> int | None:
    """Return the size of the blob that a map belongs to; None if the map is not valid."""
    header = os.pread(file.fd, _HEADER_BYTES, 0)
    if len(header) < _HEADER_BYTES or not header.startswith(_MAGIC):
        return None
    return int.from_bytes(header[_SIZE_AT:], "little")


def _units(span: ByteRange) -> tuple[int, int]:
    """Return the numbers of the units that a range touches, as a half-open pair."""
    return span.start // UNIT_BYTES, -(-span.end // UNIT_BYTES)


def _write_all(fd: int, data: memoryview, offset: int) -> None:
    while len(data):
        count = os.pwrite(fd, data, offset)
        data, offset = data[count:], offset + count
