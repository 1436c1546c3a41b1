"""The container: header, index and names. Bytes in, values out; no files here.

Every offset, size and count in a file is checked against the file before use. Implements "Container" of
docs/specs/wshard.md.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass

from warpdata.errors import CorruptError, LimitExceededError, UnsupportedError
from warpdata.formats.wshard.codecs import Codec, check_expansion, xxh64
from warpdata.limits import WSHARD_MAX_ENTRIES, WSHARD_MAX_NAMES_BYTES

__all__ = [
    "ALIGNMENTS",
    "ENTRY_BYTES",
    "HEADER_BYTES",
    "JSON_CONTENT",
    "MAGIC",
    "ROLE_EPISODE",
    "ROLE_MANIFEST",
    "BlockEntry",
    "Header",
    "encode_entry",
    "encode_header",
    "parse_header",
    "parse_index",
]

MAGIC = b"SHRD"
VERSION = 2
ROLE_MANIFEST = 0x04
ROLE_EPISODE = 0x05
HEADER_BYTES = 64
ENTRY_BYTES = 48
ALIGNMENTS = (0, 16, 32, 64)
JSON_CONTENT = 2

LITTLE_ENDIAN = 0x0002
BIG_ENDIAN = 0x0004
HAS_CHECKSUMS = 0x0020
HAS_CONTENT_TYPES = 0x0080

_HEADER = struct.Struct("<4sBBHBBHIQQQQ16x")
_ENTRY = struct.Struct("<QIHHQQQII")
_COMPRESSED, _ZSTD, _LZ4, _CHUNKED = 1, 2, 4, 8
_MAX_GAP_BYTES = 4096


@dataclass(frozen=True, slots=True)
class Header:
    """The first 64 bytes."""

    role: int
    flags: int
    alignment: int
    default_codec: Codec
    entry_count: int
    names_offset: int
    data_offset: int
    schema_offset: int
    total_bytes: int

    @property
    def index_end(self) -> int:
        return HEADER_BYTES + ENTRY_BYTES * self.entry_count

    @property
    def has_checksums(self) -> bool:
        return bool(self.flags & HAS_CHECKSUMS)


@dataclass(frozen=True, slots=True)
class BlockEntry:
    """The index entry of one block. `offset` counts from the start of the file."""

    name: str
    codec: Codec
    is_chunked: bool
    offset: int
    stored_bytes: int
    size_bytes: int
    checksum: int
    content_type: int
    tags: int

    @property
    def end(self) -> int:
        return self.offset + self.stored_bytes


def parse_header(data: bytes | memoryview, file_bytes: int) -> Header:
    """Parse the header, and check it against the size of the file."""
    if len(data) < HEADER_BYTES:
        raise CorruptError(f"the file has {file_bytes} bytes; its header alone takes {HEADER_BYTES}")
    magic, version, role, flags, alignment, codec, entry_size, count, names, blocks, schema, total = _HEADER.unpack(
        data[:HEADER_BYTES]
    )
    if magic != MAGIC:
        raise CorruptError(f"the file begins with {bytes(magic)!r}, not with {MAGIC!r}")
    if version != VERSION:
        raise UnsupportedError(f"the container has version {version}; this library reads version {VERSION}")
    if flags & BIG_ENDIAN:
        raise UnsupportedError("the file is big-endian; this library reads little-endian files")
    if entry_size != ENTRY_BYTES:
        raise UnsupportedError(f"index entries have {entry_size} bytes; this library reads {ENTRY_BYTES}")
    if alignment not in ALIGNMENTS or codec not in (0, 1, 2):
        raise CorruptError(f"alignment {alignment} or compression {codec} does not exist in the format")
    if total != file_bytes:
        raise CorruptError(f"the header promises {total} bytes, the file has {file_bytes}")
    header = Header(role, flags, alignment, Codec(codec), count, names, blocks, schema, total)
    if count > WSHARD_MAX_ENTRIES:
        raise LimitExceededError(f"the index has {count} entries; the most is {WSHARD_MAX_ENTRIES}")
    if not header.index_end <= names <= blocks <= total or schema > total:
        raise CorruptError(
            f"index end {header.index_end}, names {names}, data {blocks}, schema {schema} do not fit in {total} bytes"
        )
    if names - header.index_end > _MAX_GAP_BYTES:
        raise CorruptError(f"there are {names - header.index_end} bytes between the index and the names")
    if blocks - names > WSHARD_MAX_NAMES_BYTES:
        raise LimitExceededError(f"the names take {blocks - names} bytes; the most is {WSHARD_MAX_NAMES_BYTES}")
    return header


def parse_index(header: Header, data: memoryview) -> tuple[BlockEntry, ...]:
    """Parse the entries, in the order of the index. `data` is the file up to its data section."""
    names = data[header.names_offset : header.data_offset]
    if any(data[header.index_end : header.names_offset]):
        raise CorruptError("the gap between the index and the names is not zero")
    index = data[HEADER_BYTES : header.index_end]
    # Names may share bytes, so a small file could hold very many long names.
    if (name_bytes := sum(row[2] for row in _ENTRY.iter_unpack(index))) > WSHARD_MAX_NAMES_BYTES:
        raise LimitExceededError(
            f"the names of all blocks take {name_bytes} bytes; the most is {WSHARD_MAX_NAMES_BYTES}"
        )
    rows = _ENTRY.iter_unpack(index)
    entries = tuple(_parse_entry(row, header, names) for row in rows)
    if len({entry.name for entry in entries}) != len(entries):
        raise CorruptError("two blocks have the same name")
    _check_overlap(entries)
    return entries


def _parse_entry(row: tuple[int, ...], header: Header, names: memoryview) -> BlockEntry:
    hashed, name_at, name_bytes, flags, offset, stored, size, checksum, last = row
    if name_at + name_bytes > len(names) or not name_bytes:
        raise CorruptError(f"a name at {name_at}+{name_bytes} is outside the {len(names)} bytes of names")
    raw = bytes(names[name_at : name_at + name_bytes])
    if xxh64(raw) != hashed:
        raise CorruptError(f"the name {raw[:80]!r} does not match the hash {hashed:016x}")
    try:
        name = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise CorruptError(f"the name {raw[:80]!r} is not UTF-8") from error
    what = f"block {name!r}"
    codec = _codec(flags, header, what)
    if offset < header.data_offset or offset + stored > header.total_bytes:
        raise CorruptError(f"{what} at {offset}+{stored} is outside the data section")
    if header.alignment and offset % header.alignment:
        raise CorruptError(f"{what} at {offset} is not aligned to {header.alignment}")
    is_chunked = bool(flags & _CHUNKED)
    if codec is Codec.NONE:
        if stored != size:
            raise CorruptError(f"{what} is not compressed, but stores {size} bytes in {stored}")
    elif not is_chunked:
        check_expansion(codec, stored, size, what)
    return BlockEntry(name, codec, is_chunked, offset, stored, size, checksum, last & 0xFFFF, last >> 16)


def _codec(flags: int, header: Header, what: str) -> Codec:
    if flags & ~(_COMPRESSED | _ZSTD | _LZ4 | _CHUNKED):
        raise UnsupportedError(f"{what} has the unknown flags {flags:#06x}")
    named = flags & (_ZSTD | _LZ4)
    if not flags & _COMPRESSED:
        if flags:
            raise CorruptError(f"{what} has the flags {flags:#06x}: a codec, but not compressed")
        return Codec.NONE
    if named == _ZSTD | _LZ4:
        raise CorruptError(f"{what} has the flags of both zstd and lz4")
    codec = {_ZSTD: Codec.ZSTD, _LZ4: Codec.LZ4}.get(named, header.default_codec)
    if codec is Codec.NONE:
        raise CorruptError(f"{what} is compressed, but nothing says how: neither its flags nor the header name a codec")
    if flags & _CHUNKED and codec is not Codec.ZSTD:
        raise UnsupportedError(f"{what} has time chunks in {codec.name.lower()}; only zstd supports them")
    return codec


def _check_overlap(entries: Sequence[BlockEntry]) -> None:
    end, before = 0, ""
    for entry in sorted(entries, key=lambda entry: (entry.offset, entry.end)):
        if entry.offset < end:
            raise CorruptError(f"blocks {before!r} and {entry.name!r} overlap at byte {entry.offset}")
        end, before = entry.end, entry.name


def encode_header(header: Header) -> bytes:
    return _HEADER.pack(
        MAGIC,
        VERSION,
        header.role,
        header.flags,
        header.alignment,
        int(header.default_codec),
        ENTRY_BYTES,
        header.entry_count,
        header.names_offset,
        header.data_offset,
        header.schema_offset,
        header.total_bytes,
    )


def encode_entry(entry: BlockEntry, name_offset: int) -> bytes:
    raw = entry.name.encode("utf-8")
    flags = {Codec.NONE: 0, Codec.ZSTD: _COMPRESSED | _ZSTD, Codec.LZ4: _COMPRESSED | _LZ4}[entry.codec]
    flags |= _CHUNKED if entry.is_chunked else 0
    last = entry.content_type | entry.tags << 16
    return _ENTRY.pack(
        xxh64(raw),
        name_offset,
        len(raw),
        flags,
        entry.offset,
        entry.stored_bytes,
        entry.size_bytes,
        entry.checksum,
        last,
    )
