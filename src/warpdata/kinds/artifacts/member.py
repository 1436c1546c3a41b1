"""Where a member of an artifact lies. Values only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

__all__ = ["ByteLocation", "Chunk", "Locator", "Member", "locator_of"]


@dataclass(frozen=True, slots=True)
class Member:
    """One file inside an artifact.

    `offset` and `stored_bytes` say which bytes of the shard to fetch; they hold `size_bytes` of content,
    compressed if the artifact is. `xxh3` is that of the content, or, where `chunk_table` is not 0, of
    the table of chunks at that place of the index.
    """

    path: str
    shard: int
    offset: int
    stored_bytes: int
    size_bytes: int
    xxh3: int
    chunk_table: int = 0


@dataclass(frozen=True, slots=True)
class Chunk:
    """A piece of a large member: how many bytes it has in the shard, and the checksum of its content."""

    stored_bytes: int
    xxh3: int


@dataclass(frozen=True, slots=True)
class ByteLocation:
    """Bytes of a shard named directly, without an index. Verified only where a checksum is given."""

    shard: int
    offset: int
    length: int
    xxh3: int | None = None


Locator: TypeAlias = str | ByteLocation
"""A member path, or the bytes of a shard named directly."""


def locator_of(cell: Any) -> Locator:
    """What a cell of a bound column says: a path, or a struct that names bytes."""
    if isinstance(cell, str):
        return cell
    return ByteLocation(cell["shard"], cell["offset"], cell["length"], cell.get("xxh3"))
