"""Where the files of a cache lie, and the record that makes an entry of one. Knows nothing of locks.

Implements "Files" of docs/specs/cache.md.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from warpdata.primitives.hashing import is_digest, sha256_hex

__all__ = ["MAX_RECORD_BYTES", "Places", "Record", "decode_record", "encode_record", "sync_folder"]

_MAGIC = "warp-blob-1"
MAX_RECORD_BYTES = 256


@dataclass(frozen=True, slots=True)
class Places:
    """The paths of everything in the cache at `folder`."""

    folder: Path

    @property
    def ledger(self) -> Path:
        return self.folder / "ledger"

    def data(self, digest: str) -> Path:
        return self.folder / digest[:2] / digest

    def record(self, digest: str) -> Path:
        return self.folder / digest[:2] / f"{digest}.ok"

    def staged_record(self, digest: str) -> Path:
        return self.folder / digest[:2] / f"{digest}.new"

    def part(self, digest: str) -> Path:
        return self.folder / digest[:2] / f"{digest}.part"

    def map(self, digest: str) -> Path:
        return self.folder / digest[:2] / f"{digest}.map"

    def shelves(self) -> Iterator[str]:
        """The folders that hold entries; none where there is no cache yet."""
        try:
            with os.scandir(self.folder) as found:
                names = sorted(entry.name for entry in found if len(entry.name) == 2 and entry.is_dir())
        except FileNotFoundError:
            return
        yield from (f"{self.folder}/{name}" for name in names)


@dataclass(frozen=True, slots=True)
class Record:
    """What the bytes of an entry were when they had been checked against their name."""

    size_bytes: int
    quick: str


def encode_record(digest: str, record: Record) -> bytes:
    body = f"{_MAGIC} {record.size_bytes} {record.quick}"
    return f"{body} {_check(digest, body)}\n".encode()


def decode_record(digest: str, data: bytes) -> Record | None:
    """None unless the record is sound and is this blob's."""
    if len(data) >= MAX_RECORD_BYTES or not data.isascii() or not data.endswith(b"\n"):
        return None
    body, _, check = data.decode()[:-1].rpartition(" ")
    words = body.split(" ")
    if check != _check(digest, body) or len(words) != 3 or words[0] != _MAGIC or not words[1].isdigit():
        return None
    return Record(int(words[1]), words[2])


def _check(digest: str, body: str) -> str:
    assert is_digest(digest), digest
    return sha256_hex(f"{digest} {body}".encode())[:32]


def sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
