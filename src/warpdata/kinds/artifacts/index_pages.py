"""The pages of a member index: bytes ↔ values. Pure.

Implements "Pages" of docs/specs/artifacts.md. Pages are laid out so that one member is found without
decoding the others: a fixed-width array of hashes is searched for eight bytes, then one record is
unpacked.
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import xxhash

from warpdata.errors import BlobCorruptedError
from warpdata.kinds.artifacts.member import Chunk, Member

__all__ = [
    "MAGIC",
    "TRAILER",
    "Inner",
    "Leaf",
    "PageRef",
    "Trailer",
    "encode_chunks",
    "encode_inner",
    "encode_leaf",
    "name_key",
    "parse_chunks",
]

MAGIC = b"WARPMBR1"
_HEAD = struct.Struct("<II")
_KEY = struct.Struct("<Q")
_MEMBER = struct.Struct("<QQQQQII")
_NAME_END = struct.Struct("<I")
_MEMBER_NAME_END = struct.Struct(f"<{_MEMBER.size - _NAME_END.size}xI")
_CHILD = struct.Struct("<QQQII")
_CHUNK = struct.Struct("<QQ")
TRAILER = struct.Struct("<QQII8s")


class PageRef(NamedTuple):
    """Where a page lies in the index, what it must hash to, and how many members are below it."""

    offset: int
    byte_size: int
    xxh3: int
    member_count: int


@dataclass(frozen=True, slots=True)
class Trailer:
    """The end of an index: what precedes it is the root page."""

    member_count: int
    shard_count: int
    root_bytes: int
    levels: int

    def encode(self) -> bytes:
        return TRAILER.pack(self.member_count, self.shard_count, self.root_bytes, self.levels, MAGIC)

    @staticmethod
    def parse(data: bytes) -> Trailer:
        if len(data) != TRAILER.size or not data.endswith(MAGIC):
            raise BlobCorruptedError("a member index does not end as one")
        return Trailer(*TRAILER.unpack(data)[:-1])


def name_key(name: bytes) -> bytes:
    """The eight bytes by which a name is searched within a leaf."""
    return _KEY.pack(xxhash.xxh3_64_intdigest(name))


def encode_leaf(members: Sequence[Member]) -> bytes:
    """`members` are in order of their paths' bytes."""
    names = [member.path.encode() for member in members]
    parts = [_HEAD.pack(len(members), sum(map(len, names))), *(name_key(name) for name in names)]
    end = 0
    for member, name in zip(members, names, strict=True):
        end += len(name)
        parts.append(
            _MEMBER.pack(
                member.offset,
                member.stored_bytes,
                member.size_bytes,
                member.xxh3,
                member.chunk_table,
                member.shard,
                end,
            )
        )
    return b"".join([*parts, *names])


def encode_inner(children: Sequence[tuple[bytes, PageRef]]) -> bytes:
    """Each child with the first name below it."""
    parts, end = [_HEAD.pack(len(children), sum(len(name) for name, _ in children))], 0
    for name, ref in children:
        end += len(name)
        parts.append(_CHILD.pack(ref.offset, ref.xxh3, ref.member_count, ref.byte_size, end))
    return b"".join([*parts, *(name for name, _ in children)])


def encode_chunks(chunks: Sequence[Chunk]) -> bytes:
    return b"".join(_CHUNK.pack(chunk.stored_bytes, chunk.xxh3) for chunk in chunks)


def parse_chunks(data: bytes) -> list[Chunk]:
    return [Chunk(stored, xxh3) for stored, xxh3 in _CHUNK.iter_unpack(data)]


class Leaf:
    """A page of members, looked into without decoding it whole."""

    __slots__ = ("_count", "_data", "_names", "_records")

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._count = _checked_count(data, _KEY.size + _MEMBER.size)
        self._records = _HEAD.size + _KEY.size * self._count
        self._names = self._records + _MEMBER.size * self._count
        _check_ends([end for (end,) in _MEMBER_NAME_END.iter_unpack(data[self._records : self._names])], data)

    def __len__(self) -> int:
        return self._count

    def find(self, path: str) -> Member | None:
        name = path.encode()
        wanted, start = name_key(name), _HEAD.size
        while (found := self._data.find(wanted, start, self._records)) >= 0:
            position, misfit = divmod(found - _HEAD.size, _KEY.size)
            if not misfit and self.name(position) == name:
                return self._member(position, path)
            start = found + 1
        return None

    def name(self, position: int) -> bytes:
        record = self._records + _MEMBER.size * position
        before = _NAME_END.unpack_from(self._data, record - _NAME_END.size)[0] if position else 0
        end = _NAME_END.unpack_from(self._data, record + _MEMBER.size - _NAME_END.size)[0]
        return self._data[self._names + before : self._names + end]

    def member(self, position: int) -> Member:
        """`UnicodeDecodeError` if whoever wrote the page did not care what a name is."""
        return self._member(position, self.name(position).decode())

    def _member(self, position: int, path: str) -> Member:
        offset, stored, size, xxh3, chunks, shard, _ = _MEMBER.unpack_from(
            self._data, self._records + _MEMBER.size * position
        )
        return Member(path, shard, offset, stored, size, xxh3, chunks)


class Inner:
    """A page of pages: the first name below each, and where it is. Only the names are decoded beforehand."""

    __slots__ = ("_data", "_names", "member_count")

    def __init__(self, data: bytes) -> None:
        count = _checked_count(data, _CHILD.size)
        names = _HEAD.size + _CHILD.size * count
        self._data = data[:names]
        self._names: list[bytes] = []
        self.member_count = 0
        ends = [0]
        for _, _, members, _, end in _CHILD.iter_unpack(data[_HEAD.size : names]):
            self._names.append(data[names + ends[-1] : names + end])
            self.member_count += members
            ends.append(end)
            if not members:
                raise BlobCorruptedError("a page of a member index lists one without members")
        _check_ends(ends[1:], data)
        if any(first >= second for first, second in pairwise(self._names)):
            raise BlobCorruptedError("a page of a member index is out of order")

    def __len__(self) -> int:
        return len(self._names)

    def child(self, position: int) -> PageRef:
        offset, xxh3, members, size, _ = _CHILD.unpack_from(self._data, _HEAD.size + _CHILD.size * position)
        return PageRef(offset, size, xxh3, members)

    def position_of(self, name: bytes) -> int:
        """The only child that could hold `name`; -1 if it would stand before all of them."""
        return bisect_right(self._names, name) - 1


def _checked_count(data: bytes, width: int) -> int:
    """How many records the page has, if it is exactly as long as it says."""
    if len(data) >= _HEAD.size:
        count, name_bytes = _HEAD.unpack_from(data)
        if len(data) == _HEAD.size + width * count + name_bytes:
            return int(count)
    raise BlobCorruptedError("a page of a member index is not as long as it says")


def _check_ends(ends: Sequence[int], data: bytes) -> None:
    """Names follow one another and fill their place."""
    _, name_bytes = _HEAD.unpack_from(data)
    if any(first > second for first, second in pairwise([0, *ends])) or (ends[-1] if ends else 0) != name_bytes:
        raise BlobCorruptedError("names in a page of a member index overlap or leave gaps")
