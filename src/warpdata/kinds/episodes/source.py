"""Byte ranges of one stored episode file, every range verified.

Ranges that the index holds are served from memory. A part of an uncompressed block is read in whole check units,
which are compared with the checksums in the index: once per unit for a mapped file, on every read for a remote one.
Compressed data has its own checksums, which its readers verify. Implements "Reading" of docs/specs/episodes.md.
"""

from __future__ import annotations

import errno
import mmap
from bisect import bisect_right
from collections.abc import Sequence
from pathlib import Path
from typing import TypeAlias

import numpy as np
import xxhash

from warpdata.errors import CorruptError
from warpdata.formats.wshard import Array
from warpdata.limits import KIB, MIB
from warpdata.primitives.fork import ForkSafeLock
from warpdata.primitives.hashing import Blob, blob_key
from warpdata.storage import REPAIR_HINT, ByteRange, Reader, retry_corrupt

__all__ = ["CheckedBlock", "EpisodeSource", "Piece", "PrefetchedSource", "ReadAheadSource", "make_checked_block"]

Piece: TypeAlias = tuple[int, bytes]
"""A byte range of a file: its offset and its bytes."""

_GAP_BYTES = 64 * KIB
"""Ranges of one file that are closer than this share a request."""
_AHEAD_BYTES = 4 * MIB
"""Encoded bytes of a camera that are fetched together."""


class CheckedBlock:
    """An uncompressed block in units of `unit_bytes`, each with a checksum. Remembers which units are verified."""

    def __init__(self, name: str, start: int, end: int, unit_bytes: int, checksums: Array) -> None:
        self.name = name
        self.start = start
        self.end = end
        self.unit_bytes = unit_bytes
        self._checksums = checksums
        self._verified = bytearray(len(checksums))

    def units(self, start: int, end: int) -> tuple[int, int]:
        """Return the range of units that hold these bytes of the file."""
        return (start - self.start) // self.unit_bytes, -(-(end - self.start) // self.unit_bytes)

    def span(self, first: int, last: int) -> tuple[int, int]:
        """Return the byte range in the file of the units [first, last)."""
        return self.start + first * self.unit_bytes, min(self.end, self.start + last * self.unit_bytes)

    def is_valid(self, first: int, last: int, data: memoryview) -> bool:
        """Compare the units [first, last) with their checksums. `data` begins with the first unit."""
        size = self.unit_bytes
        checksums = self._checksums[first:last].tolist()
        return all(
            xxhash.xxh3_64_intdigest(data[at * size : (at + 1) * size]) == wanted for at, wanted in enumerate(checksums)
        )

    def has_unverified(self, first: int, last: int) -> bool:
        return self._verified.find(0, first, last) >= 0

    @property
    def is_verified(self) -> bool:
        """True when every unit is verified."""
        return 0 not in self._verified

    def mark_verified(self, first: int, last: int) -> None:
        self._verified[first:last] = b"\1" * (last - first)

    def reset(self) -> None:
        """Mark all units unverified, because the bytes now come from another copy."""
        self._verified[:] = bytes(len(self._verified))


_state_lock = ForkSafeLock()
"""Guards the mapped copies of all sources. Held for moments, and while a corrupt copy is dropped."""


class EpisodeSource:
    """Implements `HeadedSource` over a store. Safe to share between threads."""

    def __init__(self, reader: Reader, blob: Blob, pieces: Sequence[Piece]) -> None:
        self._reader = reader
        self._blob = blob
        self._key = blob_key(blob.hash)
        reader.expect_size(self._key, blob.byte_size)
        self._pieces = sorted(pieces)
        self._starts = [start for start, _ in self._pieces]
        self._blocks: list[CheckedBlock] = []
        self._block_starts: list[int] = []
        self.generation = 0
        """Number of corrupt copies dropped so far."""
        self._mapped = self._map()

    def set_checked_blocks(self, blocks: Sequence[CheckedBlock]) -> None:
        """Verify all later reads of these blocks."""
        self._blocks = sorted((block for block in blocks if block.end > block.start), key=lambda block: block.start)
        self._block_starts = [block.start for block in self._blocks]

    @property
    def size_bytes(self) -> int:
        return self._blob.byte_size

    @property
    def head(self) -> bytes:
        return self._pieces[0][1]

    @property
    def mapped(self) -> memoryview | None:
        """The mapped file, if it is locally available. Its bytes are not verified."""
        return self._mapped

    def block_at(self, start: int, end: int) -> CheckedBlock | None:
        """Return the uncompressed block that holds these bytes."""
        at = bisect_right(self._block_starts, start) - 1
        return self._blocks[at] if at >= 0 and end <= self._blocks[at].end else None

    def read_range(self, start: int, end: int) -> memoryview:
        indexed = self._indexed(start, end)
        if indexed is not None:
            return indexed
        mapped = self._mapped
        if mapped is not None:
            block = self.block_at(start, end)
            if block is None or self._is_verified(block, start, end, mapped):
                return mapped[start:end]
        return self.read_ranges([(start, end)])[0]

    def read_ranges(self, spans: Sequence[tuple[int, int]]) -> list[memoryview]:
        """Read and verify several ranges, with one request for ranges that are close to each other."""
        generation = self.generation
        return retry_corrupt(lambda: self._read_verified(spans), lambda: self.invalidate(generation), CorruptError)

    def read_exact(self, spans: Sequence[tuple[int, int]]) -> list[memoryview]:
        """Read several ranges without check units. The caller verifies them by checksums of its own."""
        return self._fetch(spans, self._mapped)

    def invalidate(self, generation: int) -> bool:
        """Drop the cached copy that was current at `generation`. True: a second read may succeed.

        True also if another thread has dropped that copy.
        """
        with _state_lock:
            if generation != self.generation:
                return True
            if not self._reader.invalidate(self._key):
                return False
            self._mapped = None  # units verified in the old copy must not count as verified in the new one
            for block in self._blocks:
                block.reset()
            self._mapped = self._map()
            self.generation += 1
            return True

    def fetch(self, spans: Sequence[tuple[int, int]]) -> PrefetchedSource:
        """Read these ranges into memory."""
        return PrefetchedSource(self, spans, self.read_ranges(spans))

    def verify_mapped(self, block: CheckedBlock, start: int, end: int) -> None:
        """Verify the units of a mapped block that hold these bytes and are not verified yet."""
        if block.has_unverified(*block.units(start, end)):
            self.read_ranges([(start, end)])

    def _read_verified(self, spans: Sequence[tuple[int, int]]) -> list[memoryview]:
        widened = [self._widen(start, end) for start, end in spans]
        mapped = self._mapped
        data = self._fetch([(start, end) for start, end, _ in widened], mapped)
        for wide, found in zip(widened, data, strict=True):
            if not self._is_valid(wide, found, mapped):
                raise CorruptError(
                    f"bytes {wide[0]}…{wide[1]} of the episode file {self._blob.hash} do not match their checksum",
                    hint=REPAIR_HINT,
                )
        return [
            found[start - wide[0] : end - wide[0]]
            for (start, end), wide, found in zip(spans, widened, data, strict=True)
        ]

    def _indexed(self, start: int, end: int) -> memoryview | None:
        at = bisect_right(self._starts, start) - 1
        if at < 0:
            return None
        offset, data = self._pieces[at]
        return memoryview(data)[start - offset : end - offset] if end <= offset + len(data) else None

    def _widen(self, start: int, end: int) -> tuple[int, int, CheckedBlock | None]:
        """Extend a range to whole check units."""
        block = self.block_at(start, end)
        if block is None:
            return start, end, None  # compressed data or a whole file, which its reader verifies
        return *block.span(*block.units(start, end)), block

    def _is_valid(
        self, wide: tuple[int, int, CheckedBlock | None], data: memoryview, mapped: memoryview | None
    ) -> bool:
        start, end, block = wide
        if block is None or self._is_verified(block, start, end, mapped):
            return True
        first, last = block.units(start, end)
        if not block.is_valid(first, last, data):
            return False
        with _state_lock:
            if mapped is not None and self._mapped is mapped:
                block.mark_verified(first, last)
        return True

    def _is_verified(self, block: CheckedBlock, start: int, end: int, mapped: memoryview | None) -> bool:
        """Return whether these bytes of the mapped copy are verified, and that copy is still the current one."""
        return mapped is not None and not block.has_unverified(*block.units(start, end)) and self._mapped is mapped

    def _fetch(self, spans: Sequence[tuple[int, int]], mapped: memoryview | None) -> list[memoryview]:
        if mapped is not None:
            return [mapped[start:end] for start, end in spans]
        return self._reader.read_ranges(
            self._key, [ByteRange(start, end) for start, end in spans], gap_bytes=_GAP_BYTES
        )

    def _map(self) -> memoryview | None:
        path = self._reader.local_path(self._key)
        return None if path is None else _map_file(path, self._blob)


class PrefetchedSource:
    """Implements `HeadedSource` over ranges in memory. Reads all other ranges from the file."""

    head = b""

    def __init__(self, source: EpisodeSource, spans: Sequence[tuple[int, int]], data: Sequence[memoryview]) -> None:
        self._source = source
        self._buffers = sorted(zip(spans, data, strict=True), key=lambda buffer: buffer[0])
        self._starts = [span[0] for span, _ in self._buffers]

    @property
    def size_bytes(self) -> int:
        return self._source.size_bytes

    def read_range(self, start: int, end: int) -> memoryview:
        at = bisect_right(self._starts, start) - 1
        if at >= 0 and end <= self._buffers[at][0][1]:
            offset = self._buffers[at][0][0]
            return self._buffers[at][1][start - offset : end - offset]
        return self._source.read_range(start, end)


class ReadAheadSource:
    """Ranges with checksums of their own, read in a known order. A miss fetches the next ones together.

    Holds at most `_AHEAD_BYTES` and one range. For one thread at a time.
    """

    def __init__(self, source: EpisodeSource, spans: Sequence[tuple[int, int]]) -> None:
        self._source = source
        self._spans = spans
        self._positions = {start: number for number, (start, _) in enumerate(spans)}
        self._fetched: dict[tuple[int, int], memoryview] = {}
        self._generation = source.generation

    def read_range(self, start: int, end: int) -> memoryview:
        found = self._fetched.get((start, end))
        if found is None or self._generation != self._source.generation:
            first = self._positions[start]
            last, total = first + 1, end - start
            while last < len(self._spans) and total + self._spans[last][1] - self._spans[last][0] <= _AHEAD_BYTES:
                total += self._spans[last][1] - self._spans[last][0]
                last += 1
            wanted = self._spans[first:last]
            self._generation = self._source.generation
            self._fetched = dict(zip(wanted, self._source.read_exact(wanted), strict=True))
            found = self._fetched[start, end]
        return found


def make_checked_block(name: str, start: int, end: int, unit_bytes: int, checksums: bytes) -> CheckedBlock:
    """Raise `CorruptError` unless there is one checksum for each unit."""
    wanted = -(-(end - start) // unit_bytes)
    found = np.frombuffer(checksums, "<u8") if len(checksums) % 8 == 0 else np.empty(0, "<u8")
    if len(found) != wanted:
        raise CorruptError(f"the index has {len(found)} checksums for the {wanted} units of block {name!r}")
    return CheckedBlock(name, start, end, unit_bytes, found)


def _map_file(path: Path, blob: Blob) -> memoryview | None:
    try:
        with path.open("rb", buffering=0) as file:
            data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except FileNotFoundError:
        return None  # evicted since the path was looked up; the store still has the blob
    except OSError as error:
        if error.errno != errno.ENOMEM:
            raise
        return None  # the process has reached its limit of mapped files, so this one is read by range
    except ValueError as error:
        raise CorruptError(f"{path} is empty") from error
    if len(data) != blob.byte_size:
        raise CorruptError(f"{path} has {len(data)} bytes instead of {blob.byte_size}", hint=REPAIR_HINT)
    return memoryview(data)
