"""Members in order → a member index in a file, written front to back with flat memory.

Implements "Member index" of docs/specs/artifacts.md. The bytes depend only on the members.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO

from warpdata.errors import InvalidSourceError
from warpdata.kinds.artifacts.index_pages import MAGIC, PageRef, Trailer, encode_chunks, encode_inner, encode_leaf
from warpdata.kinds.artifacts.member import Chunk, Member
from warpdata.limits import INDEX_INNER_ENTRIES, INDEX_LEAF_ENTRIES
from warpdata.repository.manifest import Footer

__all__ = ["PackedMember", "WrittenIndex", "write_index"]


@dataclass(frozen=True, slots=True)
class PackedMember:
    """A member as it was packed. `chunks` are those of a large one, whose table the index will hold."""

    member: Member
    chunks: tuple[Chunk, ...] = ()
    source: str = ""
    """Where it came from, for messages."""


@dataclass(frozen=True, slots=True)
class WrittenIndex:
    path: Path
    footer: Footer
    member_count: int


def write_index(members: Iterable[PackedMember], shard_count: int, path: Path) -> WrittenIndex:
    """`members` must come in order of their paths' UTF-8 bytes; the same path twice is refused."""
    import xxhash

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
    """Appends pages to the file and says where they went."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._offset = file.write(MAGIC)

    def add(self, data: bytes, member_count: int) -> PageRef:
        import xxhash

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
            f"two members are called {after.member.path!r}"
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
