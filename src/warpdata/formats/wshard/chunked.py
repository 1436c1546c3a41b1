"""Episodes in several files: chunks that each stand alone, and a manifest that ties them together.

Implements "Chunked episodes" of docs/specs/wshard.md.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from warpdata.errors import BadInputError, EpisodeCorruptedError, UnsupportedFormatError
from warpdata.formats.wshard.byte_source import ByteSource, PathLike
from warpdata.formats.wshard.canonical_json import Json, decode_object, encode_json, is_count
from warpdata.formats.wshard.codecs import CompressionName
from warpdata.formats.wshard.container import JSON_CONTENT, MAGIC, ROLE_MANIFEST
from warpdata.formats.wshard.container_writer import ContainerOptions, plan_bytes, write_container
from warpdata.formats.wshard.dtypes import DType
from warpdata.formats.wshard.model import ChunkPlace, Episode
from warpdata.formats.wshard.reader import open_container
from warpdata.formats.wshard.save import save_wshard
from warpdata.limits import WSHARD_MAX_CHUNKS, WSHARD_MAX_STEPS
from warpdata.primitives.hashing import fingerprint_file, is_digest

__all__ = [
    "META_MANIFEST",
    "ChunkEntry",
    "ChunkManifest",
    "ChunkedEpisodeWriter",
    "is_chunk_manifest",
    "load_chunk_manifest",
]

META_MANIFEST = "meta/manifest"
_ROLE_AT = 5
_FILE_NAME = re.compile(r"[^/\\\x00:]{1,200}")


@dataclass(frozen=True, slots=True)
class ChunkEntry:
    """One chunk. Steps go from `first_step` to `last_step`, both included, counted over the whole episode."""

    index: int
    uri: str
    sha256: str
    first_step: int
    last_step: int
    length: int
    total: int


@dataclass(frozen=True, slots=True)
class ChunkManifest:
    """What a manifest says. Whether it is whole and in order is for `validate_chunk_continuity`."""

    episode_id: str
    env_id: str
    total_chunks: int
    total_timesteps: int
    chunks: tuple[ChunkEntry, ...]


class ChunkedEpisodeWriter:
    """Writes chunks of one episode into `folder`, in order, and then their manifest.

    A chunk is an `Episode` of up to `chunk_size_t` steps with the channels of the first. `total_chunks` is
    written into the chunks where it is known beforehand.
    """

    def __init__(
        self,
        folder: PathLike,
        episode_id: str,
        *,
        chunk_size_t: int = 1000,
        compression: CompressionName = "none",
        total_chunks: int | None = None,
    ) -> None:
        if not is_file_name(episode_id) or chunk_size_t < 1:
            raise BadInputError(f"the episode id {episode_id!r} or chunk_size_t={chunk_size_t} cannot name chunks")
        self._folder, self._id, self._most = Path(folder), episode_id, chunk_size_t
        self._compression, self._total = compression, total_chunks
        self._env_id = ""
        self._shape: Mapping[str, tuple[DType, tuple[int, ...]]] | None = None
        self._chunks: list[ChunkEntry] = []

    def write_chunk(self, chunk: Episode) -> ChunkEntry:
        """Save the next chunk. Its id must be that of the episode; its place is given to it here."""
        self._check(chunk)
        index, first = len(self._chunks), sum(entry.length for entry in self._chunks)
        uri = f"{self._id}_chunk_{index:04d}.wshard"
        self._folder.mkdir(parents=True, exist_ok=True)
        path = self._folder / uri
        placed = replace(chunk, chunk=ChunkPlace(index, self._total, first))
        save_wshard(placed, path, compression=self._compression)
        digest = fingerprint_file(path).blob.hash
        entry = ChunkEntry(index, uri, digest, first, first + chunk.length - 1, chunk.length, self._total or 0)
        self._chunks.append(entry)
        return entry

    def finalize_manifest(self) -> ChunkManifest:
        """Write `{episode_id}_manifest.wshard` and return what it says."""
        count = len(self._chunks)
        if not count or (self._total is not None and self._total != count):
            raise BadInputError(f"{count} chunks were written, {self._total or 'some'} were promised")
        chunks = tuple(replace(entry, total=count) for entry in self._chunks)
        steps = sum(entry.length for entry in chunks)
        manifest = ChunkManifest(self._id, self._env_id, count, steps, chunks)
        plan = plan_bytes(META_MANIFEST, encode_json(_document(manifest)), JSON_CONTENT)
        path = self._folder / f"{self._id}_manifest.wshard"
        write_container(path, [plan], ContainerOptions(role=ROLE_MANIFEST))
        return manifest

    def _check(self, chunk: Episode) -> None:
        if chunk.id != self._id or not 1 <= chunk.length <= self._most:
            raise BadInputError(
                f"a chunk of {chunk.id!r} with {chunk.length} steps is not one of {self._id!r} with 1 to {self._most}"
            )
        shape = {name: (channel.stored_dtype, channel.step_shape) for name, channel in chunk.lanes().items()}
        if self._shape is None:
            self._shape, self._env_id = shape, chunk.env_id
        counted = {name: value for name, value in shape.items() if not name.startswith("residual/")}
        before = {name: value for name, value in self._shape.items() if not name.startswith("residual/")}
        if counted != before or chunk.env_id != self._env_id:
            raise BadInputError(f"chunk {len(self._chunks)} has other channels or another environment than the first")
        if self._total is not None and len(self._chunks) >= self._total:
            raise BadInputError(f"{self._total} chunks were promised, and this is one more")


def load_chunk_manifest(path: PathLike | ByteSource) -> ChunkManifest:
    """Read a manifest of chunks. Checks its form, not its continuity."""
    with open_container(path) as file:
        if file.header.role != ROLE_MANIFEST:
            raise UnsupportedFormatError(f"the file has the role {file.header.role:#04x}, not that of a manifest")
        if META_MANIFEST not in file:
            raise EpisodeCorruptedError(f"there is no block {META_MANIFEST!r}")
        document = decode_object(file.read_json(META_MANIFEST), META_MANIFEST)
    listed = document.get("chunks")
    if not isinstance(listed, list) or len(listed) > WSHARD_MAX_CHUNKS:
        raise EpisodeCorruptedError(f"{META_MANIFEST} has no proper list of chunks")
    name, env = document.get("episode_id"), document.get("env_id", "")
    if not isinstance(name, str) or not isinstance(env, str):
        raise EpisodeCorruptedError(f"{META_MANIFEST} has no proper episode_id or env_id")
    total, steps = _count(document, "total_chunks"), _count(document, "total_timesteps")
    return ChunkManifest(name, env, total, steps, tuple(_entry(item) for item in listed))


def is_chunk_manifest(path: PathLike) -> bool:
    """Whether a file begins as a manifest of chunks does. What cannot be read is none."""
    with suppress(OSError), Path(path).open("rb") as file:
        head = file.read(_ROLE_AT + 1)
        return head.startswith(MAGIC) and head[_ROLE_AT:] == bytes([ROLE_MANIFEST])
    return False


def is_file_name(text: str) -> bool:
    """Whether this names a file in a folder, and cannot lead out of it."""
    return _FILE_NAME.fullmatch(text) is not None and text not in (".", "..")


def _entry(item: Any) -> ChunkEntry:
    if not isinstance(item, dict):
        raise EpisodeCorruptedError(f"{META_MANIFEST} lists {item!r} as a chunk")
    uri, digest, span = item.get("uri"), item.get("sha256"), item.get("timestep_range")
    if not isinstance(uri, str) or not is_file_name(uri):
        raise EpisodeCorruptedError(f"the chunk uri {uri!r} is not the name of a file beside the manifest")
    if not isinstance(digest, str) or not is_digest(digest):
        raise EpisodeCorruptedError(f"chunk {uri!r} has the sha256 {digest!r}")
    if not (isinstance(span, list) and len(span) == 2 and all(is_count(step, WSHARD_MAX_STEPS) for step in span)):
        raise EpisodeCorruptedError(f"chunk {uri!r} has the timestep_range {span!r}")
    index, length, total = (_count(item, key) for key in ("chunk_index", "length_T", "total_chunks"))
    return ChunkEntry(index, uri, digest, span[0], span[1], length, total)


def _count(item: dict[str, Any], key: str) -> int:
    value = item.get(key)
    if not is_count(value, WSHARD_MAX_STEPS):
        raise EpisodeCorruptedError(f"{META_MANIFEST} has {key} = {value!r}")
    return int(item[key])


def _document(manifest: ChunkManifest) -> Json:
    return {
        "episode_id": manifest.episode_id,
        "env_id": manifest.env_id,
        "total_chunks": manifest.total_chunks,
        "total_timesteps": manifest.total_timesteps,
        "chunks": [
            {
                "chunk_index": entry.index,
                "uri": entry.uri,
                "sha256": entry.sha256,
                "timestep_range": [entry.first_step, entry.last_step],
                "length_T": entry.length,
                "total_chunks": entry.total,
            }
            for entry in manifest.chunks
        ],
    }
