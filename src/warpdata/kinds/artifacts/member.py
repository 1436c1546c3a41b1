"""Members of an artifact: their location, and the paths that are allowed. Values only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

from warpdata.errors import BadInputError, ErrorKind
from warpdata.limits import MAX_MEMBER_NAME_BYTES

__all__ = ["ByteLocation", "Chunk", "Locator", "Member", "check_member_path", "locator_of"]

_RELATIVE_HINT = "Members are named by plain relative paths, such as images/0001.jpg."


@dataclass(frozen=True, slots=True)
class Member:
    """One file inside an artifact.

    `offset` and `stored_bytes` are the range of the shard to fetch. It holds `size_bytes` of content, compressed if
    the artifact is. `xxh3` is the checksum of the content. If `chunk_table` is not 0, it is the checksum of the chunk
    table at that offset of the index.
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
    """A piece of a large member: its bytes in the shard, and the checksum of its content."""

    stored_bytes: int
    xxh3: int


@dataclass(frozen=True, slots=True)
class ByteLocation:
    """A range of a shard, named without an index. It is verified only if it has a checksum."""

    shard: int
    offset: int
    length: int
    xxh3: int | None = None


Locator: TypeAlias = str | ByteLocation
"""A member path, or a range of a shard."""


def locator_of(cell: Any) -> Locator:
    """Return the locator in a cell of a bound column: a path, or a struct with a range."""
    if isinstance(cell, str):
        return cell
    return ByteLocation(cell["shard"], cell["offset"], cell["length"], cell.get("xxh3"))


def check_member_path(path: str, where: str) -> str:
    """Return the path unchanged. Raise `BadInputError`, with the source `where`, if it is not allowed.

    An allowed path never leaves the directory that an artifact is unpacked into. Its Unicode form is kept.
    """
    try:
        size = len(path.encode("utf-8"))
    except UnicodeEncodeError:
        printable = where.encode("utf-8", "backslashreplace").decode()
        raise BadInputError(
            f"{printable}: the member name {path!r} is not valid UTF-8", hint="Rename it.", kind=ErrorKind.INVALID_NAME
        ) from None
    if size > MAX_MEMBER_NAME_BYTES:
        raise BadInputError(
            f"{where}: the member name {path[:80]!r}… has {size} bytes; the limit is {MAX_MEMBER_NAME_BYTES}",
            kind=ErrorKind.INVALID_NAME,
        )
    if "\0" in path:
        raise BadInputError(f"{where}: the member name {path!r} contains a zero byte", kind=ErrorKind.INVALID_NAME)
    if path.startswith("/"):
        raise BadInputError(
            f"{where}: the member name {path!r} is an absolute path", hint=_RELATIVE_HINT, kind=ErrorKind.INVALID_NAME
        )
    for part in path.split("/"):
        if part in ("", ".", ".."):
            raise BadInputError(
                f"{where}: the member name {path!r} has a part {part!r}",
                hint=_RELATIVE_HINT,
                kind=ErrorKind.INVALID_NAME,
            )
    return path
