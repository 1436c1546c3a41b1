"""The format of a member index: its pages, and the writer. `index.py` reads an index by range.

A page is searched for eight bytes in an array of hashes, then one record is unpacked, so a look-up decodes one member.
The bytes of an index depend only on the members. Implements "Member index" and "Pages" of docs/specs/artifacts.md.
"""

from __future__ import annotations

import struct
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import BinaryIO, NamedTuple

import xxhash

from warpdata.errors import CorruptError, InvalidSourceError
from warpdata.kinds.artifacts.member import Chunk, Member
from warpdata.limits import INDEX_INNER_ENTRIES, INDEX_LEAF_ENTRIES
from warpdata.repository.manifest import Footer

__all__ = [
    "MAGIC",
    "TRAILER",
    "Inner",
    "Leaf",
    "PackedMember",
    "PageRef",
    "Trailer",
    "WrittenIndex",
    "encode_chunks",
    "encode_inner",
    "encode_leaf",
    "name_key",
    "parse_chunks",
    "write_index",
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
    """A page: its range in the index, its checksum, and the number of members below it."""

    offset: int
    byte_size: int
    xxh3: int
    member_count: int


@dataclass(frozen=True, slots=True)
class Trailer:
    """The end of an index. The root page precedes it."""

    member_count: int
    shard_count: int
    root_bytes: int
    levels: int

    def encode(self) -> bytes:
        return TRAILER.pack(self.member_count, self.shard_count, self.root_bytes, self.levels, MAGIC)

    @staticmethod
    def parse(data: bytes) -> Trailer:
        if len(data) != TRAILER.size or not data.endswith(MAGIC):
            raise CorruptError("a member index has no valid trailer")
        return Trailer(*TRAILER.unpack(data)[:-1])


def name_key(name: bytes) -> bytes:
    """Return the eight bytes that a leaf is searched for."""
    return _KEY.pack(xxhash.xxh3_64_intdigest(name))


def encode_leaf(members: Sequence[Member]) -> bytes:
    """Encode members, in order of the UTF-8 bytes of their paths."""
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
    """Encode pages, each with the first name below it."""
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
    """A page of members. A look-up decodes one record."""

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
        position = self.position_of(path.encode())
        return None if position is None else self._member(position, path)

    def position_of(self, name: bytes) -> int | None:
        """Return the position of the member that has this name."""
        wanted, start = name_key(name), _HEAD.size
        while (found := self._data.find(wanted, start, self._records)) >= 0:
            position, misfit = divmod(found - _HEAD.size, _KEY.size)
            if not misfit and self.name(position) == name:
                return position
            start = found + 1
        return None

    def name(self, position: int) -> bytes:
        record = self._records + _MEMBER.size * position
        before = _NAME_END.unpack_from(self._data, record - _NAME_END.size)[0] if position else 0
        end = _NAME_END.unpack_from(self._data, record + _MEMBER.size - _NAME_END.size)[0]
        return self._data[self._names + before : self._names + end]

    def member(self, position: int, name: bytes | None = None) -> Member:
        """Return a member, perhaps with its known name. Raise `UnicodeDecodeError` if the name is not UTF-8."""
        return self._member(position, (self.name(position) if name is None else name).decode())

    def position_from(self, name: bytes) -> int:
        """Return the position of the first member whose name is not before `name`. Members are in order of names."""
        return bisect_left(range(self._count), name, key=self.name)

    def _member(self, position: int, path: str) -> Member:
        offset, stored, size, xxh3, chunks, shard, _ = _MEMBER.unpack_from(
            self._data, self._records + _MEMBER.size * position
        )
        return Member(path, shard, offset, stored, size, xxh3, chunks)


class Inner:
    """A page of pages, each with the first name below it. The constructor decodes only the names."""

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
                raise CorruptError("a page of a member index lists a page without members")
        _check_ends(ends[1:], data)
        if any(first >= second for first, second in pairwise(self._names)):
            raise CorruptError("a page of a member index is out of order")

    def __len__(self) -> int:
        return len(self._names)

    def child(self, position: int) -> PageRef:
        offset, xxh3, members, size, _ = _CHILD.unpack_from(self._data, _HEAD.size + _CHILD.size * position)
        return PageRef(offset, size, xxh3, members)

    def position_of(self, name: bytes) -> int:
        """Return the position of the child that may contain `name`; -1 if `name` sorts before all of them."""
        return bisect_right(self._names, name) - 1

    def first_name(self, position: int) -> bytes | None:
        """Return the first name below a child; None beyond the last child."""
        return self._names[position] if position < len(self._names) else None


def _checked_count(data: bytes, width: int) -> int:
    """Return the number of records, if the page has exactly the length that its header states."""
    if len(data) >= _HEAD.size:
        count, name_bytes = _HEAD.unpack_from(data)
        if len(data) == _HEAD.size + width * count + name_bytes:
            return int(count)
    raise CorruptError("a page of a member index does not have its stated length")


def _check_ends(ends: Sequence[int], data: bytes) -> None:
    """Check that names are adjacent and fill the name area."""
    _, name_bytes = _HEAD.unpack_from(data)
    if any(first > second for first, second in pairwise([0, *ends])) or (ends[-1] if ends else 0) != name_bytes:
        raise CorruptError("names in a page of a member index overlap or leave gaps")


@dataclass(frozen=True, slots=True)
class PackedMember:
    """A member of a packed or scanned shard. A large member has chunks, whose table goes into the index."""

    member: Member
    chunks: tuple[Chunk, ...] = ()
    source: str = ""
    """The source file, for messages."""


@dataclass(frozen=True, slots=True)
class WrittenIndex:
    """A member index in a file."""

    path: Path
    footer: Footer
    member_count: int


def write_index(members: Iterable[PackedMember], shard_count: int, path: Path) -> WrittenIndex:
    """Write an index front to back, with flat memory. Members come in order of the UTF-8 bytes of their paths.

    Raise `InvalidSourceError` for two members with one path.
    """
    with path.open("wb") as file:
        pages = _Pages(file)
        leaves = _write_leaves(members, pages)
        level, levels = leaves, 0
        while len(level) > INDEX_INNER_ENTRIES:
            level = [_inner(pages, part) for part in _cut(level, INDEX_INNER_ENTRIES)]
            levels += 1
        root = encode_inner(level)
        count = sum(ref.member_count for _, ref in level)
        footer = root + Trailer(count, shard_count, len(root), levels).encode()
        file.write(footer)
    return WrittenIndex(path, Footer(len(footer), xxhash.xxh3_64_hexdigest(footer)), count)


class _Pages:
    """Appends pages to the file and returns their references."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._offset = file.write(MAGIC)

    def add(self, data: bytes, member_count: int) -> PageRef:
        ref = PageRef(self._offset, len(data), xxhash.xxh3_64_intdigest(data), member_count)
        self._file.write(data)
        self._offset += len(data)
        return ref


def _write_leaves(members: Iterable[PackedMember], pages: _Pages) -> list[tuple[bytes, PageRef]]:
    leaves: list[tuple[bytes, PageRef]] = []
    held: list[Member] = []
    last: PackedMember | None = None
    for packed in members:
        if last is not None:
            _check_order(last, packed)
        last = packed
        member = packed.member
        if packed.chunks:
            table = pages.add(encode_chunks(packed.chunks), 0)
            member = replace(member, xxh3=table.xxh3, chunk_table=table.offset)
        held.append(member)
        if len(held) == INDEX_LEAF_ENTRIES:
            leaves.append(_leaf(pages, held))
            held = []
    if held:
        leaves.append(_leaf(pages, held))
    return leaves


def _check_order(before: PackedMember, after: PackedMember) -> None:
    first, second = before.member.path.encode(), after.member.path.encode()
    if first == second:
        raise InvalidSourceError(
            f"two members have the path {after.member.path!r}"
            + (f": one from {before.source}, one from {after.source}" if after.source else ""),
            hint="Rename one, or leave it out.",
        )
    assert first < second, "members come in order of their paths"


def _leaf(pages: _Pages, members: Sequence[Member]) -> tuple[bytes, PageRef]:
    return members[0].path.encode(), pages.add(encode_leaf(members), len(members))


def _inner(pages: _Pages, children: Sequence[tuple[bytes, PageRef]]) -> tuple[bytes, PageRef]:
    return children[0][0], pages.add(encode_inner(children), sum(ref.member_count for _, ref in children))


def _cut(level: Sequence[tuple[bytes, PageRef]], size: int) -> list[Sequence[tuple[bytes, PageRef]]]:
    return [level[start : start + size] for start in range(0, len(level), size)]
