"""Bytes of small files that the machine has in memory, read without waiting, so that no thread has to be asked.

A read with `RWF_NOWAIT` returns only what the page cache has. What is not there, or not of this machine, is read by a
thread in the usual way, and so is every file whose bytes do not match their checksum.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

from warpdata.kinds.artifacts import Artifact, Member
from warpdata.limits import MIB
from warpdata.primitives.hashing import blob_key

__all__ = ["LocalSpan", "local_span", "read_resident"]

_MAX_BYTES = 1 * MIB
"""Larger files would hold up other requests while they are copied and compared."""
_NOWAIT = getattr(os, "RWF_NOWAIT", None)
_READ_ONLY = os.O_RDONLY | getattr(os, "O_CLOEXEC", 0)


@dataclass(frozen=True, slots=True)
class LocalSpan:
    """The bytes of a file of this machine that hold a member of an artifact, and their checksum."""

    path: str
    offset: int
    size_bytes: int
    xxh3: int | None
    """None for bytes that the client compares itself."""


def local_span(artifact: Artifact, member: Member) -> LocalSpan | None:
    """Return where the bytes of a member are; None if they are compressed, large, or not a file of this machine.

    Asks the store for the file. The answer stays true: what has this name never has other bytes.
    """
    if _NOWAIT is None or artifact.entry.compression is not None or not 0 < member.size_bytes <= _MAX_BYTES:
        return None
    path = artifact.reader.local_path(blob_key(artifact.blob_of(member).hash))
    return None if path is None else LocalSpan(str(path), member.offset, member.size_bytes, member.xxh3)


def read_resident(span: LocalSpan) -> bytearray | None:
    """Return the verified bytes if they are in memory; None if reading them would wait, or they are gone or damaged."""
    import xxhash

    if _NOWAIT is None:
        return None
    data = bytearray(span.size_bytes)
    try:
        opened = os.open(span.path, _READ_ONLY)
        try:
            size = os.preadv(opened, [data], span.offset, _NOWAIT)
        finally:
            os.close(opened)
    except OSError:  # also that the file system has no such reads
        return None
    is_valid = span.xxh3 is None or xxhash.xxh3_64_intdigest(data) == span.xxh3
    return data if size == span.size_bytes and is_valid else None
