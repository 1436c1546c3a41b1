"""Mutations that pass the checksums: files and journals are parsed, changed in one place, and assembled again.

Random byte changes mostly fail a checksum and never reach the code behind it. Here lengths, offsets and counts are
wrong under right checksums, payloads change and are compressed again, and blocks move between files.
"""

from __future__ import annotations

import json
import random
import struct
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import crc32c
import lz4.block
import xxhash
import zstandard

__all__ = ["Mutate", "mutate_file", "mutate_json"]

Mutate = Callable[[bytes], bytes]
"""Mutates opaque bytes."""

HEADER = struct.Struct("<4sBBHBBHIQQQQ16x")
ENTRY = struct.Struct("<QIHHQQQIHH")
RECORD = struct.Struct("<4sB3xIQIQI")
FRAMES = struct.Struct("<4sHHQII8s")
FRAME = struct.Struct("<QIIqII")
CHUNK = struct.Struct("<III")
WORDS: list[Any] = [None, True, -1, 0, 1.5, 2**31, 2**40, 2**64, 10**30, "", "x", "ticks", [], [1], {}, {"type": []}]
WORDS += ["../x", "a/b", [0, 2**31 - 1, 2**31 - 1, 2**31 - 1], [2**31 - 1] * 4, [1] * 17]
MOST_FIELDS = 48


@dataclass(frozen=True)
class Piece:
    """One block: its stored bytes, and its index entry."""

    name: bytes
    flags: int
    stored: bytes
    size: int
    checksum: int
    content_type: int = 0
    tags: int = 0


def mutate_json(value: Any, chance: random.Random) -> Any:
    """Replace, drop or duplicate one value of a document."""
    if chance.random() < 0.25 or not isinstance(value, dict | list) or not value:
        return chance.choice(WORDS)
    if isinstance(value, list):
        at = chance.randrange(len(value))
        kept = [*value[:at], mutate_json(value[at], chance), *value[at + 1 :]]
        return kept * 2 if chance.random() < 0.1 else kept
    key = chance.choice(list(value))
    rest = {name: item for name, item in value.items() if name != key}
    return rest if chance.random() < 0.2 else {**rest, key: mutate_json(value[key], chance)}


def mutate_file(data: bytes, chance: random.Random, mutate: Mutate, donor: bytes = b"") -> bytes:
    """Mutate a file or journal. Bytes that cannot be parsed are mutated as bytes."""
    if chance.random() < 0.2:
        return mutate(data)
    try:
        if data[:4] == b"WSJ1":
            return _mutate_journal(data, chance, mutate)
        head, pieces = _take_apart(data)
        for _ in range(chance.choice([1, 1, 1, 2, 3])):
            pieces = _mutate_pieces(pieces, chance, mutate, donor)
        return _put_together(head, pieces, chance)
    except (struct.error, ValueError, IndexError, RecursionError, AssertionError):
        return mutate(data)


def _take_apart(data: bytes) -> tuple[list[Any], list[Piece]]:
    head = list(HEADER.unpack_from(data))
    pieces = []
    for number in range(min(head[7], 200)):
        _, at, length, flags, offset, stored, size, checksum, content, tags = ENTRY.unpack_from(data, 64 + 48 * number)
        name = data[head[8] + at : head[8] + at + length]
        pieces.append(Piece(name, flags, data[offset : offset + stored], size, checksum, content, tags))
    if not pieces:
        raise ValueError("nothing to change")
    return head, pieces


def _put_together(head: list[Any], pieces: list[Piece], chance: random.Random) -> bytes:
    """Encode with right names, offsets and totals; then, sometimes, falsify one field of the header or of an entry."""
    unit = head[4] if head[4] in (16, 32, 64) else 1
    names_at = 64 + ENTRY.size * len(pieces)
    at = start = -(-(names_at + sum(len(piece.name) for piece in pieces)) // unit) * unit
    rows, places, name_at = [], [], 0
    for piece in pieces:
        at = -(-at // unit) * unit
        hashed = xxhash.xxh64(piece.name).intdigest()
        where = [hashed, name_at, len(piece.name), piece.flags, at, len(piece.stored), piece.size, piece.checksum]
        rows.append([*where, piece.content_type, piece.tags])
        places.append(at)
        name_at += len(piece.name)
        at += len(piece.stored) or unit
    total = places[-1] + len(pieces[-1].stored)
    head[7:12] = [len(pieces), names_at, start, 0, total]
    if chance.random() < 0.15:
        _spoil(head, chance, range(1, len(head)), HEADER)
    if chance.random() < 0.2:
        _spoil(chance.choice(rows), chance, range(1, 10), ENTRY)
    out = bytearray(total)
    out[:64] = HEADER.pack(*head)
    for number, row in enumerate(rows):
        ENTRY.pack_into(out, 64 + 48 * number, *row)
    out[names_at : names_at + name_at] = b"".join(piece.name for piece in pieces)
    for place, piece in zip(places, pieces, strict=True):
        out[place : place + len(piece.stored)] = piece.stored
    return bytes(out)


def _spoil(fields: list[Any], chance: random.Random, which: range, form: struct.Struct) -> None:
    """Replace one number by a neighbour, a boundary, or another number of the same row."""
    number = chance.choice([at for at in which if isinstance(fields[at], int)])
    others = [item for item in fields if isinstance(item, int)]
    value = fields[number]
    choices = [value + 1, value - 1, value ^ 1 << chance.randrange(16), value * 2, 0, 1, 2, 4, 8, 12]
    choices += [2**15, 2**16 - 1, 2**31, 2**32 - 1, 2**40, 2**63 - 1, 2**63, 2**64 - 1, chance.choice(others)]
    before = fields[number]
    for _ in range(4):
        fields[number] = chance.choice(choices)
        try:
            form.pack(*fields)
        except struct.error:
            fields[number] = before
            continue
        return


def _mutate_pieces(pieces: list[Piece], chance: random.Random, mutate: Mutate, donor: bytes) -> list[Piece]:
    at = chance.randrange(len(pieces))
    piece, kind = pieces[at], chance.randrange(12)
    if kind == 0 and len(pieces) > 1:
        return [*pieces[:at], *pieces[at + 1 :]]
    if kind == 1:
        other = chance.choice(pieces)
        return [*pieces[:at], replace(piece, name=other.name), *pieces[at + 1 :]]
    if kind == 2:
        return [*pieces, replace(piece, name=mutate(piece.name)[:300] or b"x")]
    if kind == 3 and donor[:4] == b"SHRD":
        taken = chance.choice(_take_apart(donor)[1])
        return [*(item for item in pieces if item.name != taken.name), taken]
    if kind == 4:
        # Compressed bytes change; the checksum stays that of the valid block.
        changed = _mutate_chunks(piece.stored, chance) if piece.flags & 8 else mutate(piece.stored)
        return [*pieces[:at], replace(piece, stored=changed), *pieces[at + 1 :]]
    return [*pieces[:at], _mutate_payload(piece, chance, mutate), *pieces[at + 1 :]]


def _mutate_payload(piece: Piece, chance: random.Random, mutate: Mutate) -> Piece:
    """Store other content under a right checksum, with one of the codecs."""
    plain = _mutate_content(piece.name, _decoded(piece), chance, mutate)
    flags = chance.choice([piece.flags, piece.flags, piece.flags, 0, 3, 5, 11])
    return replace(
        piece, flags=flags, stored=_encode(plain, flags, chance), size=len(plain), checksum=crc32c.crc32c(plain)
    )


def _decoded(piece: Piece) -> bytes:
    # Another process may have stored any size here.
    if not piece.flags & 1:
        return piece.stored
    if piece.size > 2**20:
        raise ValueError("too large to be changed")
    try:
        if piece.flags & 4:
            return bytes(lz4.block.decompress(piece.stored, uncompressed_size=piece.size))
        with zstandard.ZstdDecompressor().stream_reader(piece.stored, read_across_frames=True) as reader:
            return bytes(reader.read(piece.size))
    except (zstandard.ZstdError, lz4.block.LZ4BlockError) as error:
        raise ValueError("not decodable") from error


def _encode(plain: bytes, flags: int, chance: random.Random) -> bytes:
    if not flags & 1:
        return plain
    if flags & 4:
        return bytes(lz4.block.compress(plain, store_size=False))
    has_size, has_checksum = chance.random() < 0.8, chance.random() < 0.2
    compressor = zstandard.ZstdCompressor(level=1, write_content_size=has_size, write_checksum=has_checksum)
    if not flags & 8:
        return compressor.compress(plain)
    width = chance.choice([1 + len(plain) // 3, 1 + len(plain) // 2, max(1, len(plain))])
    chunks = [plain[at : at + width] for at in range(0, len(plain), width)]
    frames = [compressor.compress(chunk) for chunk in chunks]
    rows = [
        [len(frame), len(chunk), xxhash.xxh64(chunk).intdigest() & 0xFFFFFFFF]
        for frame, chunk in zip(frames, chunks, strict=True)
    ]
    return b"".join(frames) + _table(rows)


def _table(rows: list[list[int]]) -> bytes:
    body = b"".join(CHUNK.pack(*row) for row in rows)
    head = struct.pack("<II", 0x184D2A5E, len(body) + 9)
    return head + body + struct.pack("<IBI", len(rows), 0x80, 0x8F92EAB1)


def _mutate_chunks(stored: bytes, chance: random.Random) -> bytes:
    """Falsify a table of time chunks, or move its frames."""
    (count,) = struct.unpack_from("<I", stored, len(stored) - 9)
    start = len(stored) - 17 - 12 * count
    if not 0 < count < 1000 or start < 0:
        raise ValueError("no table")
    rows = [list(CHUNK.unpack_from(stored, start + 8 + 12 * number)) for number in range(count)]
    frames, kind, at = stored[:start], chance.randrange(5), chance.randrange(count)
    if kind == 0:
        _spoil(rows[at], chance, range(3), CHUNK)
    elif kind == 1 and count > 1:
        # The sums stay right.
        moved, which = chance.choice([1, 2, 100]), chance.randrange(2)
        low, high = rows[at], rows[at - 1]
        if low[which] > moved:
            low[which], high[which] = low[which] - moved, high[which] + moved
    elif kind == 2:
        rows.insert(at, list(rows[at]))
    elif kind == 3:
        rows.pop(at)
    else:
        tail = bytearray(_table(rows))
        tail[chance.randrange(len(tail))] ^= 1 << chance.randrange(8)
        return frames + bytes(tail)
    return frames + _table(rows)


def _mutate_content(name: bytes, plain: bytes, chance: random.Random, mutate: Mutate) -> bytes:
    if name.startswith(b"meta/") and chance.random() < 0.85:
        return json.dumps(mutate_json(json.loads(plain), chance)).encode()
    if name.startswith(b"frames/") and chance.random() < 0.85:
        return _mutate_frames(plain, chance, mutate)
    return mutate(plain) if plain else bytes(chance.choice([1, 4, 96]))


def _mutate_frames(plain: bytes, chance: random.Random, mutate: Mutate) -> bytes:
    head = list(FRAMES.unpack_from(plain))
    body = FRAMES.size + head[4]
    codec, extradata = plain[FRAMES.size : body], plain[body : body + head[5]]
    rows = [list(FRAME.unpack_from(plain, body + head[5] + 32 * number)) for number in range(min(head[3], MOST_FIELDS))]
    kind, at = chance.randrange(7), chance.randrange(max(1, len(rows)))
    if kind == 0 or not rows:
        _spoil(head, chance, range(1, 6), FRAMES)
    elif kind <= 2:
        _spoil(rows[at], chance, range(6), FRAME)
    elif kind == 3:
        codec = chance.choice([b"jpeg", b"png", b"h264", b"ffv1", b"rawvideo", b"\xff", mutate(codec)])[:64]
    elif kind == 4:
        extradata = mutate(extradata)
    elif kind == 5:
        rows = [*rows[:at], *rows[at + 1 :]]
    else:
        rows[at], rows[0] = rows[0], rows[at]
    if kind not in (0,):
        head[3:6] = [len(rows), len(codec), len(extradata)]
    return FRAMES.pack(*head) + codec + extradata + b"".join(FRAME.pack(*row) for row in rows)


def _mutate_journal(data: bytes, chance: random.Random, mutate: Mutate) -> bytes:
    """Reorder and repeat records that are each valid."""
    records: list[tuple[list[Any], bytes]] = []
    at = 0
    while at + 40 <= len(data) and len(records) < MOST_FIELDS:
        head = list(RECORD.unpack_from(data, at))
        records.append((head, data[at + 40 : at + 40 + head[5]]))
        at += 40 + head[5]
    number = chance.randrange(len(records))
    head, payload = records[number]
    kind = chance.randrange(8)
    if kind <= 2:
        payload = json.dumps(mutate_json(json.loads(records[0][1]), chance)).encode()
        head, number = records[0][0], 0
    elif kind == 3:
        payload = mutate(payload)
    elif kind == 4:
        records.insert(number, (list(head), payload))
    elif kind == 5:
        records.pop(number)
        number = -1
    if 0 <= number < len(records):
        head[5], head[6] = len(payload), crc32c.crc32c(payload)
        if kind >= 6:
            _spoil(head, chance, range(1, 7), RECORD)
        records[number] = (head, payload)
    if chance.random() < 0.5:
        for place, (one, _) in enumerate(records):
            one[2] = place
    out = b""
    for one, body in records:
        fields = RECORD.pack(*one)
        out += fields + struct.pack("<I", crc32c.crc32c(fields)) + body
    return out[: chance.randrange(len(out))] if chance.random() < 0.1 else out
