"""Bytes at hand → a file in the cache, for those who need a path. Implements "Keeping" of docs/specs/cache.md."""

from __future__ import annotations

from pathlib import Path
from threading import Event

from warpdata.errors import StorageError
from warpdata.limits import CACHE_POLL_S
from warpdata.primitives.hashing import Blob, sha256_hex
from warpdata.storage.cache.blob_cache import BlobCache, Refusal
from warpdata.storage.cache.partial import Part

__all__ = ["keep_bytes"]

_TRIES = 200


def keep_bytes(cache: BlobCache, content: bytes) -> Path:
    """An entry of its own, named by its content and pinned while this process remembers it."""
    blob = Blob(sha256_hex(content), len(content))
    refusal: Refusal | OSError = Refusal.BUSY
    for _ in range(_TRIES):
        entry = cache.find_whole(blob.hash)
        if entry is not None:
            return entry.path
        refusal = _try_to_keep(cache, blob, content)
        if refusal is Refusal.BUSY:
            Event().wait(CACHE_POLL_S)
        elif refusal is not Refusal.PRESENT:
            break
    why = refusal.value if isinstance(refusal, Refusal) else refusal.strerror or refusal
    raise StorageError(
        f"no file of {len(content)} bytes can be made in {cache.folder}: {why}",
        hint="Use read_bytes() or open(), or set WARP_CACHE_DIR and WARP_CACHE_SIZE_GB.",
    )


def _try_to_keep(cache: BlobCache, blob: Blob, content: bytes) -> Refusal | OSError:
    """`PRESENT` if it is there now."""
    try:
        part = cache.begin(blob, eager=True)
        if not isinstance(part, Part):
            return part
        try:
            part.write(0, memoryview(content))
            cache.commit(part, part.hashes()[1])
        except OSError:
            cache.abandon(part)
            raise
    except OSError as error:
        return error
    return Refusal.PRESENT
