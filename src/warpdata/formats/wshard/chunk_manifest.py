"""The manifest of an episode in several files: which chunks there are, in which order, with which hashes.

A chunk is a complete file beside the manifest. Encoding checks a manifest by the rules of the parser, so that every
written manifest can be read. Implements "Chunked episodes" of docs/specs/wshard.md.
"""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from warpdata.errors import BadInputError, CorruptError, UnsupportedError
from warpdata.formats.wshard.canonical_json import Json, decode_object, encode_json, is_count
from warpdata.formats.wshard.container import MAGIC, ROLE_MANIFEST
from warpdata.formats.wshard.reader import open_container
from warpdata.formats.wshard.source import PathLike
from warpdata.limits import WSHARD_MAX_CHUNKS, WSHARD_MAX_STEPS
from warpdata.primitives.hashing import is_digest
from warpdata.primitives.paths import check_path
from warpdata.primitives.reprs import short_repr
from warpdata.storage import RangeSource

__all__ = [
    "META_MANIFEST",
    "ChunkEntry",
    "ChunkManifest",
    "chunk_uri",
    "encode_entry",
    "encode_manifest",
    "is_chunk_manifest",
    "is_file_name",
    "load_chunk_manifest",
    "manifest_name",
]

META_MANIFEST = "meta/manifest"
_ROLE_AT = 5
_FILE_NAME = re.compile(r"[^/\\\x00:]{1,200}")


@dataclass(frozen=True, slots=True)
class ChunkEntry:
    """One chunk, with the steps `first_step` to `last_step`, both included, counted over the whole episode."""

    index: int
    uri: str
    sha256: str
    first_step: int
    last_step: int
    length: int
    total: int


@dataclass(frozen=True, slots=True)
class ChunkManifest:
    """The content of a manifest. `validate_chunk_continuity` checks that it is complete and in order."""

    episode_id: str
    env_id: str
    total_chunks: int
    total_timesteps: int
    chunks: tuple[ChunkEntry, ...]

    def __repr__(self) -> str:
        return short_repr("ChunkManifest", self.episode_id, chunks=len(self.chunks), steps=self.total_timesteps)


def chunk_uri(episode_id: str, index: int) -> str:
    """Return the file name of a chunk."""
    return f"{episode_id}_chunk_{index:04d}.wshard"


def manifest_name(episode_id: str) -> str:
    """Return the file name of the manifest."""
    return f"{episode_id}_manifest.wshard"


def load_chunk_manifest(path: PathLike | RangeSource) -> ChunkManifest:
    """Read a manifest of chunks. Checks its structure, not its continuity."""
    with open_container(path) as file:
        if file.header.role != ROLE_MANIFEST:
            raise UnsupportedError(f"the file has the role {file.header.role:#04x}, not that of a manifest")
        if META_MANIFEST not in file:
            raise CorruptError(f"there is no block {META_MANIFEST!r}")
        return _parse(decode_object(file.read_json(META_MANIFEST), META_MANIFEST))


def is_chunk_manifest(path: PathLike) -> bool:
    """Return whether a file begins like a manifest of chunks. False if it cannot be read."""
    with suppress(OSError), check_path(path).open("rb") as file:
        head = file.read(_ROLE_AT + 1)
        return head.startswith(MAGIC) and head[_ROLE_AT:] == bytes([ROLE_MANIFEST])
    return False


def is_file_name(text: str) -> bool:
    """Return whether the text is a file name without directories."""
    return _FILE_NAME.fullmatch(text) is not None and text not in (".", "..")


def encode_manifest(manifest: ChunkManifest) -> bytes:
    """Return the bytes of `meta/manifest`; `BadInputError` for a manifest that no reader accepts."""
    document: dict[str, Json] = {
        "episode_id": manifest.episode_id,
        "env_id": manifest.env_id,
        "total_chunks": manifest.total_chunks,
        "total_timesteps": manifest.total_timesteps,
        "chunks": [_entry_document(entry) for entry in manifest.chunks],
    }
    data = encode_json(document)
    try:
        _parse(decode_object(data, META_MANIFEST))
    except CorruptError as error:
        raise BadInputError(f"the manifest cannot be written: {error.message}") from error
    return data


def encode_entry(entry: ChunkEntry) -> bytes:
    """Return the bytes of one entry in the manifest."""
    return encode_json(_entry_document(entry))


def _entry_document(entry: ChunkEntry) -> dict[str, Json]:
    return {
        "chunk_index": entry.index,
        "uri": entry.uri,
        "sha256": entry.sha256,
        "timestep_range": [entry.first_step, entry.last_step],
        "length_T": entry.length,
        "total_chunks": entry.total,
    }


def _parse(document: dict[str, Any]) -> ChunkManifest:
    listed = document.get("chunks")
    if not isinstance(listed, list) or len(listed) > WSHARD_MAX_CHUNKS:
        raise CorruptError(f"{META_MANIFEST} has no valid list of chunks")
    name, env = document.get("episode_id"), document.get("env_id", "")
    if not isinstance(name, str) or not isinstance(env, str):
        raise CorruptError(f"{META_MANIFEST} has no valid episode_id or env_id")
    total, steps = _count(document, "total_chunks"), _count(document, "total_timesteps")
    return ChunkManifest(name, env, total, steps, tuple(_parse_entry(item) for item in listed))


def _parse_entry(item: Any) -> ChunkEntry:
    if not isinstance(item, dict):
        raise CorruptError(f"{META_MANIFEST} lists {item!r} as a chunk")
    uri, digest, span = item.get("uri"), item.get("sha256"), item.get("timestep_range")
    if not isinstance(uri, str) or not is_file_name(uri):
        raise CorruptError(f"the chunk uri {uri!r} is not a file name beside the manifest")
    if not isinstance(digest, str) or not is_digest(digest):
        raise CorruptError(f"chunk {uri!r} has the sha256 {digest!r}")
    if not (isinstance(span, list) and len(span) == 2 and all(is_count(step, WSHARD_MAX_STEPS) for step in span)):
        raise CorruptError(f"chunk {uri!r} has the timestep_range {span!r}")
    index, length, total = (_count(item, key) for key in ("chunk_index", "length_T", "total_chunks"))
    return ChunkEntry(index, uri, digest, span[0], span[1], length, total)


def _count(item: dict[str, Any], key: str) -> int:
    value = item.get(key)
    if not is_count(value, WSHARD_MAX_STEPS):
        raise CorruptError(f"{META_MANIFEST} has {key} = {value!r}")
    return int(item[key])
