"""Episodes in several files: chunks that are complete files, and a manifest that lists them.

Implements "Chunked episodes" and "Continuity" of docs/specs/wshard.md.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from warpdata.errors import BadInputError, CorruptError, UnsupportedError
from warpdata.formats.wshard.canonical_json import Json, decode_object, encode_json, is_count
from warpdata.formats.wshard.codecs import CompressionName
from warpdata.formats.wshard.container import JSON_CONTENT, MAGIC, ROLE_MANIFEST
from warpdata.formats.wshard.container_writer import ContainerOptions, plan_bytes, write_container
from warpdata.formats.wshard.dtypes import DType
from warpdata.formats.wshard.model import ChunkPlace, Episode
from warpdata.formats.wshard.reader import open_container, open_wshard
from warpdata.formats.wshard.save import save_wshard
from warpdata.formats.wshard.source import PathLike
from warpdata.limits import WSHARD_MAX_CHUNKS, WSHARD_MAX_STEPS
from warpdata.primitives.hashing import fingerprint_file, is_digest
from warpdata.primitives.reprs import short_repr
from warpdata.storage import RangeSource

__all__ = [
    "META_MANIFEST",
    "ChunkEntry",
    "ChunkManifest",
    "ChunkedEpisodeWriter",
    "is_chunk_manifest",
    "load_chunk_manifest",
    "validate_chunk_continuity",
]

META_MANIFEST = "meta/manifest"
_ROLE_AT = 5
_MAX_SHOWN_PROBLEMS = 10
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


class ChunkedEpisodeWriter:
    """Writes the chunks of one episode into `directory`, in order, and then their manifest.

    A chunk is an `Episode` of up to `chunk_size_t` steps with the same channels as the first one. `total_chunks`, if
    known, is written into each chunk.
    """

    def __init__(
        self,
        directory: PathLike,
        episode_id: str,
        *,
        chunk_size_t: int = 1000,
        compression: CompressionName = "none",
        total_chunks: int | None = None,
    ) -> None:
        if not is_file_name(episode_id) or chunk_size_t < 1:
            raise BadInputError(
                f"episode_id={episode_id!r} or chunk_size_t={chunk_size_t} is not valid for a chunked episode"
            )
        self._directory, self._id, self._max_steps = Path(directory), episode_id, chunk_size_t
        self._compression, self._total = compression, total_chunks
        self._env_id = ""
        self._shape: Mapping[str, tuple[DType, tuple[int, ...]]] | None = None
        self._chunks: list[ChunkEntry] = []

    def __repr__(self) -> str:
        return short_repr("ChunkedEpisodeWriter", str(self._directory), self._id, chunks=len(self._chunks))

    def write_chunk(self, chunk: Episode) -> ChunkEntry:
        """Save the next chunk. Its id must be that of the episode; its `chunk` field is set here."""
        self._check(chunk)
        index, first = len(self._chunks), sum(entry.length for entry in self._chunks)
        uri = f"{self._id}_chunk_{index:04d}.wshard"
        self._directory.mkdir(parents=True, exist_ok=True)
        path = self._directory / uri
        placed = replace(chunk, chunk=ChunkPlace(index, self._total, first))
        save_wshard(placed, path, compression=self._compression)
        digest = fingerprint_file(path).blob.hash
        entry = ChunkEntry(index, uri, digest, first, first + chunk.length - 1, chunk.length, self._total or 0)
        self._chunks.append(entry)
        return entry

    def finalize_manifest(self) -> ChunkManifest:
        """Write `{episode_id}_manifest.wshard` and return its content."""
        count = len(self._chunks)
        if not count or (self._total is not None and self._total != count):
            raise BadInputError(f"{count} chunks were written, {self._total or 'at least 1'} were expected")
        chunks = tuple(replace(entry, total=count) for entry in self._chunks)
        steps = sum(entry.length for entry in chunks)
        manifest = ChunkManifest(self._id, self._env_id, count, steps, chunks)
        plan = plan_bytes(META_MANIFEST, encode_json(_document(manifest)), JSON_CONTENT)
        path = self._directory / f"{self._id}_manifest.wshard"
        write_container(path, [plan], ContainerOptions(role=ROLE_MANIFEST))
        return manifest

    def _check(self, chunk: Episode) -> None:
        if chunk.id != self._id or not 1 <= chunk.length <= self._max_steps:
            raise BadInputError(
                f"the chunk has the id {chunk.id!r} and {chunk.length} steps; {self._id!r} and 1 to "
                f"{self._max_steps} steps were expected"
            )
        shape = {name: (channel.stored_dtype, channel.step_shape) for name, channel in chunk.lanes().items()}
        if self._shape is None:
            self._shape, self._env_id = shape, chunk.env_id
        layout = {name: value for name, value in shape.items() if not name.startswith("residual/")}
        before = {name: value for name, value in self._shape.items() if not name.startswith("residual/")}
        if layout != before or chunk.env_id != self._env_id:
            raise BadInputError(f"chunk {len(self._chunks)} has other channels or another environment than the first")
        if self._total is not None and len(self._chunks) >= self._total:
            raise BadInputError(f"total_chunks is {self._total}, and this is one more")


def load_chunk_manifest(path: PathLike | RangeSource) -> ChunkManifest:
    """Read a manifest of chunks. Checks its structure, not its continuity."""
    with open_container(path) as file:
        if file.header.role != ROLE_MANIFEST:
            raise UnsupportedError(f"the file has the role {file.header.role:#04x}, not that of a manifest")
        if META_MANIFEST not in file:
            raise CorruptError(f"there is no block {META_MANIFEST!r}")
        document = decode_object(file.read_json(META_MANIFEST), META_MANIFEST)
    listed = document.get("chunks")
    if not isinstance(listed, list) or len(listed) > WSHARD_MAX_CHUNKS:
        raise CorruptError(f"{META_MANIFEST} has no valid list of chunks")
    name, env = document.get("episode_id"), document.get("env_id", "")
    if not isinstance(name, str) or not isinstance(env, str):
        raise CorruptError(f"{META_MANIFEST} has no valid episode_id or env_id")
    total, steps = _count(document, "total_chunks"), _count(document, "total_timesteps")
    return ChunkManifest(name, env, total, steps, tuple(_entry(item) for item in listed))


def is_chunk_manifest(path: PathLike) -> bool:
    """Return whether a file begins like a manifest of chunks. False if it cannot be read."""
    with suppress(OSError), Path(path).open("rb") as file:
        head = file.read(_ROLE_AT + 1)
        return head.startswith(MAGIC) and head[_ROLE_AT:] == bytes([ROLE_MANIFEST])
    return False


def is_file_name(text: str) -> bool:
    """Return whether the text is a file name without directories."""
    return _FILE_NAME.fullmatch(text) is not None and text not in (".", "..")


def _entry(item: Any) -> ChunkEntry:
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


def validate_chunk_continuity(manifest: ChunkManifest, directory: PathLike | None = None) -> None:
    """Raise `CorruptError` naming every gap and contradiction. With `directory`, verify the files too."""
    problems = list(_find_gaps(manifest))
    if directory is not None:
        for entry in manifest.chunks:
            problems.extend(_find_file_problems(entry, manifest, Path(directory)))
    if problems:
        more = f"; and {len(problems) - _MAX_SHOWN_PROBLEMS} more" if len(problems) > _MAX_SHOWN_PROBLEMS else ""
        shown = "; ".join(problems[:_MAX_SHOWN_PROBLEMS])
        raise CorruptError(f"episode {manifest.episode_id!r}: {shown}{more}")


def _find_gaps(manifest: ChunkManifest) -> Iterator[str]:
    if manifest.total_chunks != len(manifest.chunks) or not manifest.chunks:
        yield f"total_chunks is {manifest.total_chunks}, {len(manifest.chunks)} are listed"
    following = 0
    for position, entry in enumerate(manifest.chunks):
        if entry.index != position:
            yield f"chunk {entry.index} is at position {position}"
        if entry.total != manifest.total_chunks:
            yield f"chunk {entry.index} says that there are {entry.total} chunks"
        if entry.first_step != following:
            yield f"chunk {entry.index} begins at step {entry.first_step} instead of {following}"
        if entry.last_step - entry.first_step + 1 != entry.length or not entry.length:
            yield f"chunk {entry.index} has {entry.length} steps from {entry.first_step} to {entry.last_step}"
        following = entry.last_step + 1
    if sum(entry.length for entry in manifest.chunks) != manifest.total_timesteps:
        yield f"the lengths do not add up to {manifest.total_timesteps}"
    if len({entry.uri for entry in manifest.chunks}) != len(manifest.chunks):
        yield "one file is listed twice"


def _find_file_problems(entry: ChunkEntry, manifest: ChunkManifest, directory: Path) -> Iterator[str]:
    path = directory / entry.uri
    if not path.is_file():
        yield f"{entry.uri} is missing"
        return
    if fingerprint_file(path).blob.hash != entry.sha256:
        yield f"{entry.uri} is not the file that was listed"
        return
    with open_wshard(path) as file:
        info = file.info
    if info is None or (info.id, info.length) != (manifest.episode_id, entry.length):
        yield f"{entry.uri} does not hold {entry.length} steps of this episode"
    elif info.chunk is not None and (info.chunk.index, info.chunk.first_step) != (entry.index, entry.first_step):
        yield f"{entry.uri} says that it has another position in the episode"
