"""A second opinion on member indexes, written from docs/specs/artifacts.md and nothing else.

Plain `struct` and `xxhash` over the whole blob in memory, slow and literal on purpose, with no import from
the project: where it and the project disagree, one of them has misread the specification. Every byte it
uses was vouched for by the part that names it; what is not is a `ValueError`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

import xxhash

__all__ = ["IndexedMember", "StoredChunk", "look_up", "walk"]

MAGIC = b"WARPMBR1"
CHUNK = 4 * 1024 * 1024


class StoredChunk(NamedTuple):
    stored_bytes: int
    xxh3: int


class IndexedMember(NamedTuple):
    path: str
    shard: int
    offset: int
    stored_bytes: int
    size_bytes: int
    xxh3: int | None
    """Of the content; None where there are chunks."""
    chunks: tuple[StoredChunk, ...]


class _Entry(NamedTuple):
    first: bytes
    offset: int
    size: int
    xxh3: int
    members_below: int


class _Opened(NamedTuple):
    data: bytes
    root: list[_Entry]
    levels: int


def walk(data: bytes, footer_bytes: int, footer_xxh3: str) -> list[IndexedMember]:
    """Every member, in the order of the index, which must be that of the bytes of their paths."""
    index, members = _open(data, footer_bytes, footer_xxh3)
    found = [member for entry in index.root for member in _below(index, entry, index.levels)]
    _check_full(index.root, 128 * 512**index.levels)
    names = [member.path.encode("utf-8") for member in found]
    if names != sorted(set(names)) or len(found) != members:
        raise ValueError("the members are not in order, or not as many as promised")
    return found


def look_up(data: bytes, footer_bytes: int, footer_xxh3: str, path: str) -> IndexedMember | None:
    """Section "Looking up", step by step."""
    index, _ = _open(data, footer_bytes, footer_xxh3)
    wanted = path.encode("utf-8")
    entries = index.root
    for level in range(index.levels, -1, -1):
        not_after = [entry for entry in entries if entry.first <= wanted]
        if not not_after:
            return None
        page = _vouched(index.data, not_after[-1].offset, not_after[-1].size, not_after[-1].xxh3)
        if level == 0:
            break
        entries = _inner(page)
    for number in range(_numbers("<I", page, 0)[0]):
        (digest,) = _numbers("<Q", page, 8 + 8 * number)
        if digest == xxhash.xxh3_64_intdigest(wanted):
            member = _leaf(index.data, page)[number]
            if member.path == path:
                return member
    return None


def _open(data: bytes, footer_bytes: int, footer_xxh3: str) -> tuple[_Opened, int]:
    footer = data[len(data) - footer_bytes :]
    if xxhash.xxh3_64_hexdigest(footer) != footer_xxh3 or data[:8] != MAGIC or footer[-8:] != MAGIC:
        raise ValueError("this is not the index that was promised")
    members, _shards, root_bytes, levels = _numbers("<QQII", footer, len(footer) - 32)
    if root_bytes != len(footer) - 32:
        raise ValueError("the root is not as long as the trailer says")
    root = _inner(footer[:root_bytes])
    if len(root) > 512 or levels > 4:
        raise ValueError("the root lists too much")
    return _Opened(data, root, levels), members


def _below(index: _Opened, entry: _Entry, level: int) -> Iterator[IndexedMember]:
    page = _vouched(index.data, entry.offset, entry.size, entry.xxh3)
    if level == 0:
        found = _leaf(index.data, page)
    else:
        found = [member for child in _inner(page) for member in _below(index, child, level - 1)]
        _check_full(_inner(page), 128 * 512 ** (level - 1))
    if len(found) != entry.members_below or found[0].path.encode("utf-8") != entry.first:
        raise ValueError("a page is not what the page above it promises")
    yield from found


def _check_full(entries: list[_Entry], members: int) -> None:
    """All pages but the last hold as much as they may."""
    if any(entry.members_below != members for entry in entries[:-1]):
        raise ValueError("a page in the middle is not full")


def _leaf(data: bytes, page: bytes) -> list[IndexedMember]:
    count, names_bytes = _numbers("<II", page, 0)
    names_start = 8 + 8 * count + 48 * count
    if len(page) != names_start + names_bytes or count > 128:
        raise ValueError("a leaf is not as long as it says")
    found, name_start = [], 0
    for number in range(count):
        at = 8 + 8 * count + 48 * number
        offset, stored, size, xxh3, table, shard, name_end = _numbers("<QQQQQII", page, at)
        name = page[names_start + name_start : names_start + name_end]
        if _numbers("<Q", page, 8 + 8 * number) != (xxhash.xxh3_64_intdigest(name),):
            raise ValueError(f"the hash of {name!r} is wrong")
        if (size > CHUNK) != (table != 0):
            raise ValueError(f"{name!r} has a chunk table and should not, or should and has none")
        chunks = _chunks(data, table, size, xxh3) if table else ()
        if chunks and sum(chunk.stored_bytes for chunk in chunks) != stored:
            raise ValueError(f"the chunks of {name!r} do not add up")
        found.append(IndexedMember(name.decode("utf-8"), shard, offset, stored, size, None if table else xxh3, chunks))
        name_start = name_end
    if name_start != names_bytes:
        raise ValueError("there are bytes after the last name")
    return found


def _inner(page: bytes) -> list[_Entry]:
    count, names_bytes = _numbers("<II", page, 0)
    names_start = 8 + 32 * count
    if len(page) != names_start + names_bytes or count > 512:
        raise ValueError("an inner page is not as long as it says")
    found, name_start = [], 0
    for number in range(count):
        offset, xxh3, below, size, name_end = _numbers("<QQQII", page, 8 + 32 * number)
        found.append(_Entry(page[names_start + name_start : names_start + name_end], offset, size, xxh3, below))
        name_start = name_end
    return found


def _chunks(data: bytes, offset: int, member_bytes: int, xxh3: int) -> tuple[StoredChunk, ...]:
    count = (member_bytes + CHUNK - 1) // CHUNK
    table = _vouched(data, offset, 16 * count, xxh3)
    return tuple(StoredChunk(*_numbers("<QQ", table, 16 * number)) for number in range(count))


def _vouched(data: bytes, offset: int, size: int, xxh3: int) -> bytes:
    part = data[offset : offset + size]
    if len(part) != size or xxhash.xxh3_64_intdigest(part) != xxh3:
        raise ValueError(f"bytes {offset}…{offset + size} are not those that were promised")
    return part


def _numbers(layout: str, data: bytes, offset: int) -> tuple[int, ...]:
    return struct.unpack_from(layout, data, offset)
