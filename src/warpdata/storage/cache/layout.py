"""Paths of a cache directory, and the record that turns a file into an entry. Takes no locks.

Implements "Files" of docs/specs/cache.md.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from warpdata.primitives.hashing import is_digest, sha256_hex

__all__ = ["MAX_RECORD_BYTES", "CacheLayout", "PartialPaths", "Record", "decode_record", "encode_record"]

_MAGIC = "warp-blob-1"
MAX_RECORD_BYTES = 256


@dataclass(frozen=True, slots=True)
class PartialPaths:
    """The two files of a partial blob: its bytes, and the map of the units that are present."""

    data: Path
    map: Path


@dataclass(frozen=True, slots=True)
class CacheLayout:
    """The paths of everything in the cache at `directory`."""

    directory: Path

    @property
    def quota(self) -> Path:
        return self.directory / "ledger"

    def data(self, digest: str) -> Path:
        return self.directory / digest[:2] / digest

    def record(self, digest: str) -> Path:
        return self.directory / digest[:2] / f"{digest}.ok"

    def staged_record(self, digest: str) -> Path:
        return self.directory / digest[:2] / f"{digest}.new"

    def partial(self, digest: str, source: str) -> PartialPaths:
        """Return the paths for bytes of one source: unverified bytes are never shared between stores."""
        stem = f"{digest}.{source}"
        shard = self.directory / digest[:2]
        return PartialPaths(shard / f"{stem}.part", shard / f"{stem}.map")

    def shard_dirs(self) -> Iterator[Path]:
        """Yield the directories that hold entries; none if the cache does not exist yet."""
        try:
            with os.scandir(self.directory) as found:
                names = sorted(entry.name for entry in found if len(entry.name) == 2 and entry.is_dir())
        except FileNotFoundError:
            return
        yield from (self.directory / name for name in names)


@dataclass(frozen=True, slots=True)
class Record:
    """Size and XXH3-128 of an entry, taken when its SHA-256 was verified."""

    size_bytes: int
    quick: str


def encode_record(digest: str, record: Record) -> bytes:
    body = f"{_MAGIC} {record.size_bytes} {record.quick}"
    return f"{body} {_checksum(digest, body)}\n".encode()


def decode_record(digest: str, data: bytes) -> Record | None:
    """Return the record, or None unless it is valid and belongs to this blob."""
    if len(data) >= MAX_RECORD_BYTES or not data.isascii() or not data.endswith(b"\n"):
        return None
    body, _, checksum = data.decode()[:-1].rpartition(" ")
    words = body.split(" ")
    if checksum != _checksum(digest, body) or len(words) != 3 or words[0] != _MAGIC or not words[1].isdigit():
        return None
    return Record(int(words[1]), words[2])


def _checksum(digest: str, body: str) -> str:
    assert is_digest(digest), digest
    return sha256_hex(f"{digest} {body}".encode())[:32]
