"""Writing of containers: entries in the order of their offsets, no overlap, zeros in between.

Episodes in memory and episodes assembled from a journal share this code: a block is a name, a size and an iterable
over its bytes, which may be iterated twice. The file appears atomically. Implements "Writing" of
docs/specs/wshard.md.
"""

from __future__ import annotations

import errno
import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from warpdata.errors import BadInputError, LimitExceededError, WarpError
from warpdata.formats.wshard.codecs import Codec, Compression, compress, crc32c, make_zstd_compressor
from warpdata.formats.wshard.container import (
    ALIGNMENTS,
    HAS_CHECKSUMS,
    HAS_CONTENT_TYPES,
    HEADER_BYTES,
    JSON_CONTENT,
    LITTLE_ENDIAN,
    ROLE_EPISODE,
    BlockEntry,
    Header,
    encode_entry,
    encode_header,
)
from warpdata.formats.wshard.identity import META_IDENTITY, seal_bytes
from warpdata.formats.wshard.seek_table import encode_chunks
from warpdata.limits import (
    WSHARD_MAX_CHUNKS,
    WSHARD_MAX_DECODED_BYTES,
    WSHARD_MAX_ENTRIES,
    WSHARD_MAX_NAMES_BYTES,
)
from warpdata.primitives.atomic_file import AtomicFile
from warpdata.storage import explain_os_error

__all__ = [
    "UNCOMPRESSED",
    "BlockPlan",
    "ContainerOptions",
    "check_names",
    "is_decodable",
    "plan_bytes",
    "write_container",
]

UNCOMPRESSED = Compression(Codec.NONE)
_MIN_COMPRESSED_BYTES = 64
"""Smaller blocks stay uncompressed, because compression would not shrink them."""


@dataclass(frozen=True, slots=True)
class BlockPlan:
    """A block to be written. Each call of `pieces` iterates over the same bytes.

    `chunk_bytes` splits a zstd block into time chunks of this size; 0 writes a single frame.
    """

    name: str
    size_bytes: int
    pieces: Callable[[], Iterable[memoryview]]
    content_type: int = 0
    tags: int = 0
    compression: Compression = UNCOMPRESSED
    chunk_bytes: int = 0


@dataclass(frozen=True, slots=True)
class ContainerOptions:
    """Options of the whole file. With `is_durable` it is synced before it appears.

    `temporary` is its name until then, and must not exist; the default is a random name in the same directory.
    """

    role: int = ROLE_EPISODE
    alignment: int = 64
    default_codec: Codec = Codec.NONE
    is_sealed: bool = False
    is_durable: bool = True
    temporary: Path | None = None


def plan_bytes(name: str, data: bytes | memoryview, content_type: int = 0, tags: int = 0) -> BlockPlan:
    """Return a plan for bytes in memory."""
    view = memoryview(data)
    return BlockPlan(name, view.nbytes, lambda: (view,), content_type, tags)


def write_container(path: Path, plans: Sequence[BlockPlan], options: ContainerOptions) -> str | None:
    """Write all blocks and rename the file into place. Return the identity if the file is sealed.

    Replaces an existing file. Memory is one piece, or a whole block for lz4.
    """
    names = [plan.name for plan in plans] + ([META_IDENTITY] if options.is_sealed else [])
    check_names(names, options)
    for plan in plans:
        _check_codec(plan)
    try:
        with AtomicFile(path, temporary=options.temporary, is_durable=options.is_durable) as new:
            sealed = _Layout(new.file, names, options).write(plans)
            new.replace()
            return sealed
    except OSError as error:
        if isinstance(error, WarpError):
            raise
        if error.errno == errno.ENAMETOOLONG:
            raise BadInputError(f"the file name {path.name[:40]}… is too long for its file system") from error
        raise explain_os_error(error, path) from error


class _Layout:
    """A file that is being written: blocks first, then the header and the index."""

    def __init__(self, file: BinaryIO, names: Sequence[str], options: ContainerOptions) -> None:
        self._file, self._options = file, options
        self._names = [name.encode("utf-8") for name in names]
        names_offset = HEADER_BYTES + 48 * len(names)
        data_offset = self._aligned(names_offset + sum(map(len, self._names)))
        flags = LITTLE_ENDIAN | HAS_CHECKSUMS | HAS_CONTENT_TYPES
        self._header = Header(
            options.role, flags, options.alignment, options.default_codec, len(names), names_offset, data_offset, 0, 0
        )
        self._entries: list[BlockEntry] = []
        self._hashes: dict[str, str] = {}

    def write(self, plans: Sequence[BlockPlan]) -> str | None:
        end = self._header.data_offset
        for plan in plans:
            end = self._write_block(plan, end)
        sealed = None
        if self._options.is_sealed:
            seal = seal_bytes(self._hashes)
            end = self._write_block(plan_bytes(META_IDENTITY, seal, JSON_CONTENT), end)
            sealed = hashlib.sha256(seal).hexdigest()
        self._file.truncate(end)
        self._write_index(end)
        return sealed

    def _write_block(self, plan: BlockPlan, end: int) -> int:
        """Write one block at the next aligned offset, and return its end."""
        start = self._aligned(end)
        # Empty blocks get offsets of their own too, because offsets must ascend.
        if self._entries and start == self._entries[-1].offset:
            start = self._aligned(start + 1)
        hasher = hashlib.sha256() if self._options.is_sealed else None
        meter = _Meter(plan, hasher)
        codec = _pick_codec(plan)
        stored = self._write_at(start, _encode(plan, codec, meter.pass_through()))
        if codec is not Codec.NONE and stored >= plan.size_bytes:
            codec, meter = Codec.NONE, _Meter(plan, hashlib.sha256() if hasher else None)
            stored = self._write_at(start, meter.pass_through())
        if meter.size_bytes != plan.size_bytes:
            raise BadInputError(f"block {plan.name!r} has {meter.size_bytes} bytes instead of {plan.size_bytes}")
        is_chunked = bool(plan.chunk_bytes) and codec is Codec.ZSTD
        self._entries.append(
            BlockEntry(
                plan.name,
                codec,
                is_chunked,
                start,
                stored,
                plan.size_bytes,
                meter.checksum,
                plan.content_type,
                plan.tags,
            )
        )
        if meter.hasher is not None:
            self._hashes[plan.name] = meter.hasher.hexdigest()
        return start + stored

    def _write_at(self, start: int, pieces: Iterable[bytes | memoryview]) -> int:
        # Truncating first makes the gap between the blocks read as zeros.
        self._file.truncate(start)
        self._file.seek(start)
        return sum(self._file.write(piece) for piece in pieces)

    def _write_index(self, total: int) -> None:
        header = self._header
        rows, at = [], 0
        for entry, raw in zip(self._entries, self._names, strict=True):
            rows.append(encode_entry(entry, at))
            at += len(raw)
        whole = Header(
            header.role,
            header.flags,
            header.alignment,
            header.default_codec,
            header.entry_count,
            header.names_offset,
            header.data_offset,
            0,
            total,
        )
        self._file.seek(0)
        self._file.write(encode_header(whole) + b"".join(rows) + b"".join(self._names))

    def _aligned(self, offset: int) -> int:
        unit = self._options.alignment or 1
        return -(-offset // unit) * unit


class _Meter:
    """Counts, checksums and hashes the bytes of a block while they are written."""

    def __init__(self, plan: BlockPlan, hasher: Any) -> None:
        self._plan, self.hasher = plan, hasher
        self.size_bytes = self.checksum = 0

    def pass_through(self) -> Iterator[memoryview]:
        for piece in self._plan.pieces():
            self.size_bytes += piece.nbytes
            self.checksum = crc32c(piece, self.checksum)
            if self.hasher is not None:
                self.hasher.update(piece)
            yield piece


def _pick_codec(plan: BlockPlan) -> Codec:
    return Codec.NONE if plan.size_bytes < _MIN_COMPRESSED_BYTES else plan.compression.codec


def _check_codec(plan: BlockPlan) -> None:
    """Refuse a block that no reader would decode, before anything is written."""
    codec = _pick_codec(plan)
    if codec is Codec.NONE:
        return
    if plan.chunk_bytes and codec is not Codec.ZSTD:
        raise BadInputError(f"block {plan.name!r} cannot have time chunks in {codec.name.lower()}, only in zstd")
    if not is_decodable(plan.size_bytes, plan.chunk_bytes):
        pieces = f"time chunks of {plan.chunk_bytes}" if plan.chunk_bytes else "one frame"
        raise LimitExceededError(
            f"block {plan.name!r} has {plan.size_bytes} bytes in {pieces}; readers accept at most {WSHARD_MAX_CHUNKS} "
            f"chunks of at most {WSHARD_MAX_DECODED_BYTES} bytes",
            hint="Leave it uncompressed, choose other time chunks, or split the episode with ChunkedEpisodeWriter.",
        )


def is_decodable(size_bytes: int, chunk_bytes: int) -> bool:
    """Return whether readers accept a compressed block of this size, in one frame if `chunk_bytes` is 0."""
    if not chunk_bytes:
        return size_bytes <= WSHARD_MAX_DECODED_BYTES
    chunk_count = -(-size_bytes // chunk_bytes)
    return min(size_bytes, chunk_bytes) <= WSHARD_MAX_DECODED_BYTES and chunk_count <= WSHARD_MAX_CHUNKS


def _encode(plan: BlockPlan, codec: Codec, pieces: Iterator[memoryview]) -> Iterator[bytes | memoryview]:
    if codec is Codec.NONE:
        yield from pieces
    elif plan.chunk_bytes:
        yield from encode_chunks(pieces, plan.chunk_bytes, plan.compression.level)
    elif codec is Codec.ZSTD:
        stream = make_zstd_compressor(plan.compression.level).compressobj(size=plan.size_bytes)
        for piece in pieces:
            yield stream.compress(piece)
        yield stream.flush()
    else:
        yield compress(memoryview(b"".join(pieces)), plan.compression)


def check_names(names: Sequence[str], options: ContainerOptions) -> None:
    """Raise `BadInputError` unless a file may have blocks of these names."""
    if options.alignment not in ALIGNMENTS:
        raise BadInputError(f"the alignment {options.alignment} is not one of 0, 16, 32, 64")
    if len(set(names)) != len(names):
        raise BadInputError("two blocks have the same name")
    try:
        lengths = [len(name.encode("utf-8")) for name in names]
    except UnicodeEncodeError as error:
        raise BadInputError(f"a block name is not Unicode: {error}") from error
    if any(not 0 < length < 2**16 for length in lengths):
        raise BadInputError("a block name is empty or longer than 65,535 bytes")
    if len(names) > WSHARD_MAX_ENTRIES or sum(lengths) > WSHARD_MAX_NAMES_BYTES:
        raise LimitExceededError(
            f"the file would have {len(names)} blocks with {sum(lengths)} bytes of names, which exceeds the limits"
        )
