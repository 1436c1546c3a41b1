"""Condemned lists: the keys that a collection is about to delete, published for all writers to see.

A writer keeps 8 bytes for each key. Two keys with the same 8 bytes are taken for one another, which costs a needless
upload and nothing else. Implements "Condemned lists" of docs/specs/gc.md.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TypeAlias

from warpdata.errors import CorruptError, ObjectNotFoundError, UnsupportedError
from warpdata.primitives.hashing import sha256_hex
from warpdata.primitives.parallel import IO_POOL
from warpdata.primitives.strict_json import decode_json
from warpdata.repository.manifest import Json, canonical_json
from warpdata.storage import ObjectInfo, Reader

__all__ = [
    "CONDEMNED_PREFIX",
    "PART_KEYS",
    "CondemnedKeys",
    "CondemnedPart",
    "decode_part",
    "encode_part",
    "is_in_force",
    "part_key",
    "read_condemned",
]

CONDEMNED_PREFIX = "gc/condemned"
PART_KEYS = 100_000
UNFINISHED_FOR = timedelta(hours=48)
"""An unfinished list is in force for this long. Its collector stops deleting after half of it."""
FINISHED_FOR = timedelta(hours=1)
"""A finished list is in force for this long: a delete that was sent may still be on its way."""
_NAME_DIGITS = 16
_PARALLEL_READS = 8

SizedKey: TypeAlias = tuple[str, int]


@dataclass(frozen=True, slots=True)
class CondemnedPart:
    """One object of a list: keys and sizes, sorted."""

    keys: tuple[SizedKey, ...]
    is_finished: bool


class CondemnedKeys:
    """All keys that some list in force condemns. Immutable; look-ups by the 64 hex digits that a key ends with."""

    def __init__(self, keys: Iterable[str] = ()) -> None:
        self._prefixes = array("Q", sorted(_prefix_of(key) for key in keys))

    def __len__(self) -> int:
        return len(self._prefixes)

    def __contains__(self, digest: str) -> bool:
        """Return whether the blob, manifest or commit with this hash is condemned, in any generation."""
        wanted = int(digest[:_NAME_DIGITS], 16)
        at = bisect_left(self._prefixes, wanted)
        return at < len(self._prefixes) and self._prefixes[at] == wanted


def read_condemned(reader: Reader, listed: Iterable[ObjectInfo], now: datetime | None) -> CondemnedKeys:
    """Read the listed parts that are in force. `now` is the time of the store; without it, every part is in force.

    Raise `CorruptError` or `UnsupportedError` for a list that cannot be read: its keys must not be used.
    """

    def read(info: ObjectInfo) -> tuple[SizedKey, ...]:
        try:
            part = decode_part(reader.read(info.key).data, info.key)
        except ObjectNotFoundError:  # its collection ended meanwhile, and no delete is on its way
            return ()
        return part.keys if is_in_force(info, now, is_finished=part.is_finished) else ()

    younger = [info for info in listed if is_in_force(info, now, is_finished=False)]
    parts = IO_POOL.map_all(read, younger, limit=_PARALLEL_READS)
    return CondemnedKeys(key for part in parts for key, _ in part)


def is_in_force(info: ObjectInfo, now: datetime | None, *, is_finished: bool) -> bool:
    """Return whether writers must respect a list, by the time of its last write."""
    if now is None or info.modified is None:
        return True
    return now - info.modified <= (FINISHED_FOR if is_finished else UNFINISHED_FOR)


def part_key(collection: str, number: int) -> str:
    return f"{CONDEMNED_PREFIX}/{collection}/{number:05d}"


def encode_part(keys: Sequence[SizedKey], *, is_finished: bool = False) -> bytes:
    body = "".join(f"{key} {size_bytes}\n" for key, size_bytes in sorted(keys)).encode()
    header: dict[str, Json] = {
        "checksum": sha256_hex(body),
        "count": len(keys),
        "format": 1,
        "is_finished": is_finished,
    }
    return canonical_json(header) + b"\n" + body


def decode_part(data: bytes, where: str) -> CondemnedPart:
    head, _, body = data.partition(b"\n")
    header = decode_json(head, where)
    if not isinstance(header, dict):
        raise _corrupt(where, "has no header")
    number = header.get("format")
    if isinstance(number, int) and number > 1:
        raise UnsupportedError(f"{where} has format {number}; this warpdata reads 1", hint="Upgrade warpdata.")
    if number != 1 or header.get("checksum") != sha256_hex(body):
        raise _corrupt(where, "does not match its checksum")
    try:
        lines = (line.rsplit(" ", 1) for line in body.decode().splitlines())
        keys = tuple((key, int(size_bytes)) for key, size_bytes in lines)
    except ValueError as error:
        raise _corrupt(where, f"has an invalid line: {error}") from error
    return CondemnedPart(keys, header.get("is_finished") is True)


def _prefix_of(key: str) -> int:
    return int(key.rsplit("/", 1)[-1][:_NAME_DIGITS], 16)


def _corrupt(where: str, finding: str) -> CorruptError:
    return CorruptError(
        f"the condemned list {where} {finding}, so the keys that a collection deletes are unknown",
        hint="Wait until no collection runs, then delete the list.",
    )
