"""Time chunks: a compressed block in independent zstd frames, each with a checksum.

The stored bytes are the frames, then a seek table in a skippable frame. This is the published "zstd seekable format":
a zstd decoder that reads consecutive frames yields the whole block. Implements "Time chunks" of
docs/specs/wshard.md.
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

from warpdata.errors import CorruptError, LimitExceededError
from warpdata.formats.wshard.chunk_cache import BlockCache
from warpdata.formats.wshard.codecs import Codec, check_expansion, decompress, make_zstd_compressor, xxh64
from warpdata.formats.wshard.container import BlockEntry
from warpdata.formats.wshard.dtypes import np
from warpdata.limits import WSHARD_MAX_CHUNKS, WSHARD_MAX_READ_BYTES, WSHARD_READ_EXPANSION

__all__ = ["SeekTable", "encode_chunks", "read_seek_table"]

_SKIPPABLE = struct.Struct("<II")
_SKIPPABLE_MAGIC = 0x184D2A5E
_ROW = struct.Struct("<III")
_FOOTER = struct.Struct("<IBI")
_FOOTER_MAGIC = 0x8F92EAB1
_HAS_CHECKSUMS = 0x80

ReadRange = Callable[[int, int], memoryview]


@dataclass(frozen=True, slots=True)
class SeekTable:
    """The boundaries of the chunks: `stored` in the block's bytes, `decoded` in the decoded bytes."""

    stored: tuple[int, ...]
    decoded: tuple[int, ...]
    checksums: tuple[int, ...]

    @property
    def size_bytes(self) -> int:
        """The size of the table itself, at the end of the block."""
        return _SKIPPABLE.size + _ROW.size * len(self.checksums) + _FOOTER.size

    def stored_span(self, start: int, end: int) -> tuple[int, int]:
        """Return the range of stored bytes whose chunks hold the decoded bytes `start`…`end`."""
        if start == end:
            return 0, 0
        first, last = self._chunks(start, end)
        return self.stored[first], self.stored[last + 1]

    def _chunks(self, start: int, end: int) -> tuple[int, int]:
        return bisect_right(self.decoded, start) - 1, bisect_right(self.decoded, end - 1) - 1

    def read(self, entry: BlockEntry, start: int, end: int, read_range: ReadRange) -> memoryview:
        """Return the decoded bytes `start`…`end`, fetching and decoding only their chunks."""
        out = self.allocate(entry, start, end)
        self.read_into(entry, start, out, read_range)
        return out.toreadonly()

    def allocate(self, entry: BlockEntry, start: int, end: int) -> memoryview:
        """Allocate memory for the decoded bytes `start`…`end`, untouched, so that a forged table costs nothing."""
        if start < end:
            self._check_amount(entry, *self._chunks(start, end))
        try:
            return np.empty(end - start, np.uint8).data
        except MemoryError as error:
            raise _too_large(entry, end - start) from error

    def read_into(
        self, entry: BlockEntry, start: int, out: memoryview, read_range: ReadRange, cache: BlockCache | None = None
    ) -> None:
        """Fill `out` with the decoded bytes from `start` on. Cached chunks are not decoded again."""
        size = out.nbytes
        if not size:
            return
        end, decoded = start + size, self.decoded
        first, last = self._chunks(start, end)
        stored: dict[int, memoryview] = {}
        target = np.frombuffer(out, np.uint8)  # NumPy releases the GIL while it copies; a memoryview does not
        for number in range(first, last + 1):
            piece = None if cache is None else cache.get(number)
            if piece is None:
                if number not in stored:
                    rest = range(number + 1, last + 1)
                    others = rest if cache is None else [other for other in rest if cache.get(other) is None]
                    stored = self._fetch(entry, [number, *others], read_range)
                piece = memoryview(self._decode(entry, number, stored[number]))
                if cache is not None:
                    cache.put(number, piece)
            base, stop = decoded[number], decoded[number + 1]
            low, high = max(start, base), min(end, stop)
            target[low - start : high - start] = np.frombuffer(piece, np.uint8)[low - base : high - base]

    def _fetch(self, entry: BlockEntry, numbers: Sequence[int], read_range: ReadRange) -> dict[int, memoryview]:
        """Read the stored bytes of some chunks, in one range from the first to the last."""
        first, last = numbers[0], numbers[-1]
        self._check_amount(entry, first, last)
        low = self.stored[first]
        data = read_range(entry.offset + low, entry.offset + self.stored[last + 1])
        return {number: data[self.stored[number] - low : self.stored[number + 1] - low] for number in numbers}

    def _check_amount(self, entry: BlockEntry, first: int, last: int) -> None:
        stored_bytes = self.stored[last + 1] - self.stored[first]
        decoded_bytes = self.decoded[last + 1] - self.decoded[first]
        if decoded_bytes > max(WSHARD_MAX_READ_BYTES, WSHARD_READ_EXPANSION * stored_bytes):
            raise _too_large(entry, decoded_bytes)

    def pieces(self, entry: BlockEntry, read_range: ReadRange) -> Iterator[memoryview]:
        """Yield the decoded chunks of the whole block, in order."""
        for number, (low, high) in enumerate(pairwise(self.stored)):
            yield memoryview(self._decode(entry, number, read_range(entry.offset + low, entry.offset + high)))

    def _decode(self, entry: BlockEntry, number: int, data: memoryview) -> bytes:
        what = f"time chunk {number} of block {entry.name!r}"
        piece = decompress(data, Codec.ZSTD, self.decoded[number + 1] - self.decoded[number], what)
        if xxh64(piece) & 0xFFFFFFFF != self.checksums[number]:
            raise CorruptError(f"{what} fails its checksum")
        return piece


def _too_large(entry: BlockEntry, decoded_bytes: int) -> LimitExceededError:
    return LimitExceededError(
        f"{decoded_bytes} bytes of block {entry.name!r} are too many to decode at once", hint="Read it in windows."
    )


def read_seek_table(entry: BlockEntry, read_range: ReadRange) -> SeekTable:
    """Read the table from the end of the block, and check every size in it against the entry."""
    what = f"the seek table of block {entry.name!r}"
    if entry.stored_bytes < _SKIPPABLE.size + _FOOTER.size:
        raise CorruptError(f"{what} does not fit in {entry.stored_bytes} bytes")
    count, descriptor, magic = _FOOTER.unpack(read_range(entry.end - _FOOTER.size, entry.end))
    if magic != _FOOTER_MAGIC or descriptor != _HAS_CHECKSUMS:
        raise CorruptError(f"{what} ends with {magic:#x} and {descriptor:#x}")
    table_bytes = count * _ROW.size + _FOOTER.size
    if count > WSHARD_MAX_CHUNKS or _SKIPPABLE.size + table_bytes > entry.stored_bytes:
        raise CorruptError(f"{what} lists {count} chunks in {entry.stored_bytes} bytes")
    data = read_range(entry.end - _SKIPPABLE.size - table_bytes, entry.end - _FOOTER.size)
    if _SKIPPABLE.unpack(data[: _SKIPPABLE.size]) != (_SKIPPABLE_MAGIC, table_bytes):
        raise CorruptError(f"{what} does not begin as a skippable frame")
    rows = list(_ROW.iter_unpack(data[_SKIPPABLE.size :]))
    stored = (0, *accumulate(row[0] for row in rows))
    decoded = (0, *accumulate(row[1] for row in rows))
    if stored[-1] + _SKIPPABLE.size + table_bytes != entry.stored_bytes or decoded[-1] != entry.size_bytes:
        raise CorruptError(f"{what} sums to {stored[-1]} and {decoded[-1]} bytes, which contradicts its entry")
    for number, (size, decoded_bytes, _) in enumerate(rows):
        if not size or not decoded_bytes:
            raise CorruptError(f"{what} has an empty chunk at {number}")
        check_expansion(Codec.ZSTD, size, decoded_bytes, f"time chunk {number} of block {entry.name!r}")
    return SeekTable(stored, decoded, tuple(row[2] for row in rows))


def encode_chunks(pieces: Iterable[memoryview], chunk_bytes: int, level: int | None) -> Iterator[bytes]:
    """Yield the stored bytes of a block with time chunks, from its bytes in pieces of any length.

    Memory is one chunk, and twelve bytes for each chunk so far.
    """
    compressor, rows = make_zstd_compressor(level), bytearray()
    for chunk in _split(pieces, chunk_bytes):
        frame = bytes(compressor.compress(chunk))
        rows += _ROW.pack(len(frame), len(chunk), xxh64(chunk) & 0xFFFFFFFF)
        yield frame
    footer = _FOOTER.pack(len(rows) // _ROW.size, _HAS_CHECKSUMS, _FOOTER_MAGIC)
    yield _SKIPPABLE.pack(_SKIPPABLE_MAGIC, len(rows) + len(footer)) + bytes(rows) + footer


def _split(pieces: Iterable[memoryview], chunk_bytes: int) -> Iterator[bytes]:
    pending = bytearray()
    for piece in pieces:
        at = 0
        while at < piece.nbytes:
            count = min(chunk_bytes - len(pending), piece.nbytes - at)
            pending += piece[at : at + count]
            at += count
            if len(pending) == chunk_bytes:
                yield bytes(pending)
                pending.clear()
    if pending:
        yield bytes(pending)
