"""Opening of an episode: one file, or the manifest of an episode in several files.

Implements "Reading" of docs/specs/wshard.md.
"""

from __future__ import annotations

import os
from pathlib import Path

from warpdata.errors import CorruptError
from warpdata.formats.wshard.chunk_cache import BLOCK_CACHE_BYTES
from warpdata.formats.wshard.chunk_check import validate_chunk_continuity
from warpdata.formats.wshard.chunk_join import JoinedFile
from warpdata.formats.wshard.chunk_manifest import is_chunk_manifest, load_chunk_manifest
from warpdata.formats.wshard.reader import WShardFile, open_file
from warpdata.formats.wshard.source import PathLike
from warpdata.primitives.paths import check_path
from warpdata.storage import RangeSource

__all__ = ["find_chunks", "open_wshard"]


def open_wshard(path: PathLike | RangeSource, *, cache_bytes: int = BLOCK_CACHE_BYTES) -> WShardFile:
    """Open an episode: a path, or an object with `size_bytes` and `read_range(start, end)`.

    Reads the header and the index, nothing else. `cache_bytes` bounds the decoded time chunks that are cached for
    windows of each block; 0 caches none. The path of a chunk manifest opens all its chunks as a `JoinedFile`.
    """
    if isinstance(path, str | os.PathLike) and is_chunk_manifest(path):
        return _open_chunks(check_path(path), cache_bytes)
    return open_file(path, cache_bytes)


def find_chunks(path: Path, *, is_verified: bool = False) -> list[Path]:
    """Return the files of a chunk manifest, in order. With `is_verified`, they are hashed and compared."""
    manifest = load_chunk_manifest(path)
    validate_chunk_continuity(manifest, path.parent if is_verified else None)
    chunks = [path.parent / entry.uri for entry in manifest.chunks]
    for entry, chunk in zip(manifest.chunks, chunks, strict=True):
        if not chunk.is_file():
            raise CorruptError(f"chunk {entry.index} of {manifest.episode_id!r} is missing: {chunk}")
    return chunks


def _open_chunks(path: Path, cache_bytes: int) -> JoinedFile:
    manifest = load_chunk_manifest(path)
    files = [open_file(chunk, cache_bytes) for chunk in find_chunks(path)]
    for entry, file in zip(manifest.chunks, files, strict=True):
        info = file.info
        if info is None or (info.id, info.length) != (manifest.episode_id, entry.length):
            raise CorruptError(f"{entry.uri} does not hold {entry.length} steps of {manifest.episode_id!r}")
    return JoinedFile(files)
