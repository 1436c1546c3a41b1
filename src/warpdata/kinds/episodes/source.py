"""The bytes of one stored episode file: by range, from where they lie, each believed only with a checksum.

What the index knows of the file is served from memory. A part of an uncompressed block is read in whole check
units and compared with the sums in the index: a mapped file once for each unit, a remote one each time. What is
compressed has checksums of its own, which its readers compare. Implements "Reading" of docs/specs/episodes.md.
"""

from __future__ import annotations

import errno
import mmap
import threading
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import xxhash

from warpdata.errors import BlobCorruptedError, CorruptError
from warpdata.formats.wshard import Array
from warpdata.kinds.episodes.description import Piece
from warpdata.limits import EPISODES_GAP_BYTES
from warpdata.primitives.hashing import Blob, blob_key
from warpdata.storage import ByteRange, Reader

__all__ = ["CheckedBlock", "EpisodeSource", "Fetched", "checked_block"]

_TRIES = 2
_REPAIR = "`warp verify` shows what else is damaged; publishing the same file to a sound store repairs it."


class CheckedBlock:
    """An uncompressed block in units of `unit_bytes`, each with a checksum. Units that were compared are remembered."""

    def __init__(self, name: str, start: int, end: int, unit_bytes: int, sums: Array) -> None:
        self.name = name
        self.start = start
        self.end = end
        self.unit_bytes = unit_bytes
        self._sums = sums
        self._seen = bytearray(len(sums))

    def units(self, start: int, end: int) -> tuple[int, int]:
        """Which units hold these bytes of the file."""
        return (start - self.start) // self.unit_bytes, -(-(end - self.start) // self.unit_bytes)

    def span(self, first: int, last: int) -> tuple[int, int]:
        """The bytes of the file that units from `first` up to `last` take."""
        return self.start + first * self.unit_bytes, min(self.end, self.start + last * self.unit_bytes)

    def is_sound(self, first: int, last: int, data: memoryview) -> bool:
        """Compare units with their sums; `data` begins with the first."""
        size = self.unit_bytes
        sums = self._sums[first:last].tolist()
        return all(
            xxhash.xxh3_64_intdigest(data[at * size : (at + 1) * size]) == wanted for at, wanted in enumerate(sums)
        )

    def unseen(self, first: int, last: int) -> bool:
        """Whether some of these units were not compared yet."""
        return self._seen.find(0, first, last) >= 0

    @property
    def is_seen(self) -> bool:
        """Whether every unit was compared."""
        return 0 not in self._seen

    def mark(self, first: int, last: int) -> None:
        self._seen[first:last] = b"\1" * (last - first)

    def forget(self) -> None:
        """Nothing was compared: the bytes come from another copy now."""
        self._seen[:] = bytes(len(self._seen))


class EpisodeSource:
    """Implements `HeadedSource` over a store. Safe to share between threads."""

    def __init__(self, reader: Reader, blob: Blob, pieces: Sequence[Piece]) -> None:
        self._reader = reader
        self._blob = blob
        self._key = blob_key(blob.hash)
        self._pieces = sorted(pieces)
        self._starts = [start for start, _ in self._pieces]
        self._blocks: list[CheckedBlock] = []
        self._block_starts: list[int] = []
        self._lock = threading.Lock()
        self.copy = 0
        """How often a copy was dropped so far."""
        self._mapped = self._map()

    def watch(self, blocks: Iterable[CheckedBlock]) -> None:
        """From now on, parts of these blocks are checked."""
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
        """The file in place, where it lies on this machine. Its bytes still have to be checked."""
        return self._mapped

    def block_at(self, start: int, end: int) -> CheckedBlock | None:
        """The uncompressed block that holds these bytes."""
        at = bisect_right(self._block_starts, start) - 1
        return self._blocks[at] if at >= 0 and end <= self._blocks[at].end else None

    def read_range(self, start: int, end: int) -> memoryview:
        known = self._known(start, end)
        if known is not None:
            return known
        mapped = self._mapped
        if mapped is not None:
            block = self.block_at(start, end)
            if block is None or not block.unseen(*block.units(start, end)):
                return mapped[start:end]
        return self.read_ranges([(start, end)])[0]

    def read_ranges(self, spans: Sequence[tuple[int, int]]) -> list[memoryview]:
        """Several ranges, checked, in as few requests as their places allow."""
        for _ in range(_TRIES):
            copy = self.copy
            wider = [self._widened(start, end) for start, end in spans]
            data = self._fetch([(start, end) for start, end, _ in wider])
            bad = next((w for w, got in zip(wider, data, strict=True) if not self._is_sound(w, got)), None)
            if bad is None:
                return [got[s - w[0] : e - w[0]] for (s, e), w, got in zip(spans, wider, data, strict=True)]
            if not self.invalidate(copy):
                break
        assert bad is not None
        raise BlobCorruptedError(
            f"bytes {bad[0]}…{bad[1]} of the episode file {self._blob.hash} do not match their checksum", hint=_REPAIR
        )

    def invalidate(self, copy: int) -> bool:
        """Bytes read when so many copies had been dropped did not verify: drop one more. True if it is worth
        reading again; also when another thread was faster."""
        with self._lock:
            if copy != self.copy:
                return True
            if not self._reader.invalidate(self._key):
                return False
            self._mapped = None  # nobody may take what was compared in the old copy for compared in the new one
            for block in self._blocks:
                block.forget()
            self._mapped = self._map()
            self.copy += 1
            return True

    def fetched(self, spans: Sequence[tuple[int, int]]) -> Fetched:
        """These ranges in memory, as a source that asks nobody for what lies in them."""
        return Fetched(self, spans, self.read_ranges(spans))

    def check(self, block: CheckedBlock, start: int, end: int) -> None:
        """Bytes of a mapped block that somebody is about to use in place: compare what was not compared yet."""
        first, last = block.units(start, end)
        if block.unseen(first, last):
            self.read_ranges([(start, end)])

    def _known(self, start: int, end: int) -> memoryview | None:
        at = bisect_right(self._starts, start) - 1
        if at < 0:
            return None
        begin, data = self._pieces[at]
        return memoryview(data)[start - begin : end - begin] if end <= begin + len(data) else None

    def _widened(self, start: int, end: int) -> tuple[int, int, CheckedBlock | None]:
        block = self.block_at(start, end)
        if block is None:
            return start, end, None  # compressed, or a whole file: its reader checks that
        return *block.span(*block.units(start, end)), block

    def _is_sound(self, wide: tuple[int, int, CheckedBlock | None], data: memoryview) -> bool:
        start, end, block = wide
        if block is None:
            return True
        first, last = block.units(start, end)
        if self._mapped is not None and not block.unseen(first, last):
            return True
        if not block.is_sound(first, last, data):
            return False
        if self._mapped is not None:
            block.mark(first, last)
        return True

    def _fetch(self, spans: Sequence[tuple[int, int]]) -> list[memoryview]:
        if self._mapped is not None:
            return [self._mapped[start:end] for start, end in spans]
        return self._reader.read_ranges(
            self._key, [ByteRange(start, end) for start, end in spans], gap_bytes=EPISODES_GAP_BYTES
        )

    def _map(self) -> memoryview | None:
        path = self._reader.local_path(self._key)
        return None if path is None else _mapped(path, self._blob)


class Fetched:
    """Implements `HeadedSource` over ranges in memory; everything else is asked of the file they are from."""

    head = b""

    def __init__(self, source: EpisodeSource, spans: Sequence[tuple[int, int]], data: Sequence[memoryview]) -> None:
        self._source = source
        self._held = sorted(zip(spans, data, strict=True), key=lambda held: held[0])
        self._starts = [span[0] for span, _ in self._held]

    @property
    def size_bytes(self) -> int:
        return self._source.size_bytes

    def read_range(self, start: int, end: int) -> memoryview:
        at = bisect_right(self._starts, start) - 1
        if at >= 0 and end <= self._held[at][0][1]:
            begin = self._held[at][0][0]
            return self._held[at][1][start - begin : end - begin]
        return self._source.read_range(start, end)


def _mapped(path: Path, blob: Blob) -> memoryview | None:
    try:
        with path.open("rb", buffering=0) as file:
            data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except FileNotFoundError:
        return None  # evicted a moment ago: the store still has it
    except OSError as error:
        if error.errno != errno.ENOMEM:
            raise
        return None  # the process has as many files mapped as it may: this one is read by range
    except ValueError as error:
        raise CorruptError(f"{path} is empty") from error
    if len(data) != blob.byte_size:
        raise BlobCorruptedError(f"{path} has {len(data)} bytes instead of {blob.byte_size}", hint=_REPAIR)
    return memoryview(data)


def checked_block(name: str, start: int, end: int, unit_bytes: int, sums: bytes) -> CheckedBlock:
    """`CorruptError` unless there is one checksum for each unit."""
    wanted = -(-(end - start) // unit_bytes)
    found = np.frombuffer(sums, "<u8") if len(sums) % 8 == 0 else np.empty(0, "<u8")
    if len(found) != wanted:
        raise CorruptError(f"the index has {len(found)} checksums for the {wanted} units of block {name!r}")
    return CheckedBlock(name, start, end, unit_bytes, found)
