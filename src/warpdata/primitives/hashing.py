"""Content addresses: SHA-256 names for bytes, and where such bytes live in a store.

Implements "Blobs" of docs/specs/store.md. Knows nothing about how bytes are fetched.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from warpdata.limits import COPY_CHUNK_BYTES

__all__ = [
    "Blob",
    "Fingerprint",
    "OnBytes",
    "are_digests",
    "blob_key",
    "fingerprint_bytes",
    "fingerprint_file",
    "ignore_bytes",
    "is_digest",
    "sha256_chunks",
    "sha256_hex",
]

_DIGEST = re.compile(r"[0-9a-f]{64}")
_HEX = re.compile(r"[0-9a-f]*")


@dataclass(frozen=True, slots=True, order=True)
class Blob:
    """Bytes named by their content."""

    hash: str
    byte_size: int


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """The result of one pass over a file: its blob, and a fast hash for a second pass to compare."""

    blob: Blob
    quick: str


def is_digest(text: str) -> bool:
    """Return whether `text` is 64 lower-case hex digits."""
    return _DIGEST.fullmatch(text) is not None


def are_digests(texts: Sequence[str]) -> bool:
    """Return whether all texts are digests. Faster than `is_digest` for each."""
    return all(len(text) == 64 for text in texts) and _HEX.fullmatch("".join(texts)) is not None


def sha256_hex(data: bytes | memoryview) -> str:
    return hashlib.sha256(data).hexdigest()


def sha256_chunks(chunks: Iterable[bytes | memoryview]) -> Blob:
    """Hash a stream; memory stays at one chunk."""
    hasher, size = hashlib.sha256(), 0
    for chunk in chunks:
        hasher.update(chunk)
        size += len(chunk)
    return Blob(hasher.hexdigest(), size)


OnBytes: TypeAlias = Callable[[int], None]
"""A callback that receives the number of bytes just read or sent, for progress."""


def ignore_bytes(size_bytes: int) -> None:
    """Ignore progress."""


def fingerprint_bytes(data: bytes) -> Fingerprint:
    """Return the fingerprint of a file with this content."""
    import xxhash

    return Fingerprint(Blob(sha256_hex(data), len(data)), xxhash.xxh3_128_hexdigest(data))


def fingerprint_file(path: Path, on_bytes: OnBytes = ignore_bytes) -> Fingerprint:
    """Read the file once, with flat memory."""
    import xxhash

    strong, quick, size = hashlib.sha256(), xxhash.xxh3_128(), 0
    with path.open("rb", buffering=0) as file:
        while chunk := file.read(COPY_CHUNK_BYTES):
            strong.update(chunk)
            quick.update(chunk)
            size += len(chunk)
            on_bytes(len(chunk))
    return Fingerprint(Blob(strong.hexdigest(), size), quick.hexdigest())


def blob_key(digest: str, generation: str | None = None) -> str:
    """The key under a store root; two levels of fan-out keep local directories small.

    A generation makes another key for the same content, because the key of a collected blob is not used again.
    """
    suffix = "" if generation is None else f".{generation}"
    return f"blobs/{digest[:2]}/{digest[2:4]}/{digest}{suffix}"
