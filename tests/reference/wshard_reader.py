"""A second opinion on episode files, written from docs/specs/wshard.md and nothing else.

`struct`, `json` and the codec libraries, slow and literal on purpose, with no import from the project:
where it and the project disagree, one of them has misread the specification. It reads whole files, and
trusts that sizes are honest; what is hostile is the business of tests/wshard.
"""

from __future__ import annotations

import hashlib
import json
import math
import struct
from typing import Any, NamedTuple

import crc32c
import lz4.block
import numpy as np
import xxhash
import zstandard

__all__ = [
    "RawBlock",
    "array_of",
    "broken_rules",
    "identity",
    "read_blocks",
    "read_frames",
    "read_journal_steps",
    "strict_problems",
    "time_chunks",
]

DTYPES = {
    "f32": "<f4",
    "f64": "<f8",
    "f16": "<f2",
    "bf16": "<u2",
    "i64": "<i8",
    "i32": "<i4",
    "i16": "<i2",
    "i8": "i1",
    "u64": "<u8",
    "u32": "<u4",
    "u16": "<u2",
    "u8": "u1",
    "bool": "u1",
}


class RawBlock(NamedTuple):
    data: bytes
    stored: bytes
    flags: int
    offset: int
    content_type: int
    tags: int


def header(data: bytes) -> tuple[Any, ...]:
    """Section "Header"."""
    return struct.unpack("<4sBBHBBHIQQQQ", data[:48])


def read_blocks(data: bytes, only: str | None = None) -> dict[str, RawBlock]:
    """Sections "Index", "Names" and "Compression": every block, or one, checked, in the order of the index."""
    magic, version, _, promises, _, default, entry_size, count, names, _, _, total = header(data)
    assert (magic, version, entry_size, total) == (b"SHRD", 2, 48, len(data))
    out = {}
    for number in range(count):
        row = data[64 + 48 * number : 112 + 48 * number]
        hashed, at, length, flags, offset, stored, size, checksum, content, tags = struct.unpack("<QIHHQQQIHH", row)
        name = data[names + at : names + at + length]
        assert xxhash.xxh64(name).intdigest() == hashed
        if only is not None and name != only.encode():
            continue
        piece = data[offset : offset + stored]
        plain = _decode(piece, flags, default, size)
        assert len(plain) == size
        is_absent = checksum == 0 and not promises & 0x20
        assert is_absent or crc32c.crc32c(plain) == checksum
        out[name.decode()] = RawBlock(plain, piece, flags, offset, content, tags)
    return out


def broken_rules(data: bytes) -> list[str]:
    """Return violations of sections "Header", "Index" and "Names" that a reader must refuse."""
    magic, version, _, flags, alignment, default, entry_size, count, names, start, _, total = header(data)
    problems = []
    if (magic, version, entry_size, total) != (b"SHRD", 2, 48, len(data)) or flags & 4:
        problems.append("header")
    if alignment not in (0, 16, 32, 64) or default > 2 or not 64 + 48 * count <= names <= start <= total:
        problems.append("layout")
    seen, spans = set(), []
    for number in range(count):
        row = data[64 + 48 * number : 112 + 48 * number]
        hashed, at, length, marks, offset, stored, size, _, _, _ = struct.unpack("<QIHHQQQIHH", row)
        name = data[names + at : names + at + length]
        if not length or names + at + length > start or xxhash.xxh64(name).intdigest() != hashed or name in seen:
            problems.append(f"name {number}")
        if offset < start or offset + stored > total or (alignment and offset % alignment):
            problems.append(f"place {number}")
        if marks > 15 or (marks and not marks & 1) or marks & 6 == 6 or (marks == 1 and not default):
            problems.append(f"flags {number}")
        if not marks and stored != size:
            problems.append(f"size {number}")
        seen.add(name)
        spans.append((offset, offset + stored))
    spans.sort()
    if any(spans[number][1] > spans[number + 1][0] for number in range(len(spans) - 1)):
        problems.append("overlap")
    return problems


def _decode(piece: bytes, flags: int, default: int, size: int) -> bytes:
    if not flags & 1:
        return piece
    codec = 1 if flags & 2 else 2 if flags & 4 else default
    if codec == 2:
        return bytes(lz4.block.decompress(piece, uncompressed_size=size))
    with zstandard.ZstdDecompressor().stream_reader(piece, read_across_frames=bool(flags & 8)) as reader:
        return bytes(reader.read(size + 1))


def time_chunks(piece: bytes) -> list[bytes]:
    """Section "Time chunks": each chunk decoded alone, by the table at the end."""
    count, descriptor, magic = struct.unpack("<IBI", piece[-9:])
    assert (descriptor, magic) == (0x80, 0x8F92EAB1)
    table = piece[-9 - 12 * count : -9]
    assert struct.unpack("<II", piece[-17 - 12 * count : -9 - 12 * count]) == (0x184D2A5E, 12 * count + 9)
    out, at = [], 0
    for number in range(count):
        stored, size, checksum = struct.unpack("<III", table[12 * number : 12 * number + 12])
        plain = zstandard.ZstdDecompressor().decompress(piece[at : at + stored], max_output_size=size)
        assert len(plain) == size
        assert xxhash.xxh64(plain).intdigest() & 0xFFFFFFFF == checksum
        out.append(plain)
        at += stored
    return out


def array_of(blocks: dict[str, RawBlock], name: str) -> np.ndarray[Any, Any]:
    """A declared channel in its type and shape; bf16 as its bits, booleans as bytes."""
    channels = json.loads(blocks["meta/channels"].data)["channels"]
    found = next(item for item in channels if item.get("signal_block", f"signal/{item['id']}") == name)
    return np.frombuffer(blocks[name].data, DTYPES[found["dtype"]]).reshape(-1, *found["shape"])


def identity(blocks: dict[str, RawBlock]) -> str:
    """Section "Identity"."""
    entries = {name: hashlib.sha256(block.data).hexdigest() for name, block in blocks.items()}
    entries.pop("meta/identity", None)
    text = json.dumps(
        {"entries": entries, "leaf": "sha256", "v": 1}, sort_keys=True, separators=(",", ":"), ensure_ascii=False
    )
    return hashlib.sha256(text.encode()).hexdigest()


def strict_problems(data: bytes) -> list[str]:
    """Return violations that the strictest known reader would refuse, section "Writing"."""
    _, _, role, flags, alignment, _, _, count, names, start, schema, total = header(data)
    blocks = list(read_blocks(data).values())
    problems = []
    if role not in (4, 5) or flags != 0x00A2 or schema or any(data[48:64]):
        problems.append("header")
    if total != len(data) or names != 64 + 48 * count or start < names:
        problems.append("sections")
    end, before = start, -1
    for block in blocks:
        if block.offset < end or block.offset <= before or (alignment and block.offset % alignment):
            problems.append(f"offset {block.offset}")
        if any(data[end : block.offset]):
            problems.append(f"padding before {block.offset}")
        end, before = block.offset + len(block.stored), block.offset
    if end != total:
        problems.append("tail")
    if any(block.flags & 8 for block in blocks):
        problems.append("time chunks")
    return problems


def read_journal_steps(data: bytes) -> tuple[dict[str, Any], int, dict[str, bytes]]:
    """Section "Journal": the document, the number of whole steps, and the bytes of each part."""
    document: dict[str, Any] = {}
    parts: dict[str, bytes] = {}
    widths: dict[str, int] = {}
    at = sequence = steps = 0
    while len(data) - at >= 40:
        magic, kind, number, first, count, size, checksum, own = struct.unpack("<4sB3xIQIQII", data[at : at + 40])
        payload = data[at + 40 : at + 40 + size]
        sound = magic == b"WSJ1" and crc32c.crc32c(data[at : at + 36]) == own and number == sequence
        if not sound or len(payload) != size or crc32c.crc32c(payload) != checksum:
            break
        if kind == 1 and sequence == 0:
            document = json.loads(payload)
            for part in document["parts"]:
                name = part.get("signal_block")
                name = f"signal/{part['id']}" if name is None else name
                widths[name] = math.prod(part.get("shape", [])) * np.dtype(DTYPES[part["dtype"]]).itemsize
            parts = dict.fromkeys(widths, b"")
        elif kind == 2 and sequence and count and first == steps and size == count * sum(widths.values()):
            place = 0
            for name, width in widths.items():
                parts[name] += payload[place : place + width * count]
                place += width * count
            steps += count
        else:
            break
        at, sequence = at + 40 + size, sequence + 1
    return document, steps, parts


def read_frames(data: bytes) -> tuple[str, bytes, list[dict[str, int]]]:
    """A frame index: the codec, the configuration of its decoder, and the entries."""
    assert data[:4] == b"WSFI"
    version, width = struct.unpack_from("<HH", data, 4)
    assert (version, width) == (1, 32)
    (count,) = struct.unpack_from("<Q", data, 8)
    codec_bytes, extra_bytes = struct.unpack_from("<II", data, 16)
    at = 32
    codec = data[at : at + codec_bytes].decode("ascii")
    at += codec_bytes
    extradata = data[at : at + extra_bytes]
    at += extra_bytes
    names = ("offset", "size", "checksum", "time_ns", "flags")
    entries = [
        dict(zip(names, struct.unpack_from("<QIIqI", data, at + 32 * number), strict=True)) for number in range(count)
    ]
    assert at + 32 * count == len(data)
    assert data[24:32] == bytes(8)
    for number, entry in enumerate(entries):
        assert not entry["flags"] & ~3
        assert data[at + 32 * number + 28 : at + 32 * number + 32] == bytes(4)
        assert codec not in ("jpeg", "png") or entry["flags"] in (1, 2, 3)
    return codec, extradata, entries
