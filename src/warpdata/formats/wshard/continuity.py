"""Whether the chunks of an episode follow one another without gap, overlap or doubt.

Checks the "Continuity" section of docs/specs/wshard.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from warpdata.errors import EpisodeCorruptedError
from warpdata.formats.wshard.byte_source import PathLike
from warpdata.formats.wshard.chunked import ChunkEntry, ChunkManifest
from warpdata.formats.wshard.reader import open_wshard
from warpdata.primitives.hashing import fingerprint_file

__all__ = ["validate_chunk_continuity"]

_SHOWN = 10


def validate_chunk_continuity(manifest: ChunkManifest, folder: PathLike | None = None) -> None:
    """`EpisodeCorruptedError` naming every break found. With `folder`, the files are read and compared as well."""
    problems = list(_gaps(manifest))
    if folder is not None:
        for entry in manifest.chunks:
            problems.extend(_file_problems(entry, manifest, Path(folder)))
    if problems:
        more = f"; and {len(problems) - _SHOWN} more" if len(problems) > _SHOWN else ""
        raise EpisodeCorruptedError(f"episode {manifest.episode_id!r}: {'; '.join(problems[:_SHOWN])}{more}")


def _gaps(manifest: ChunkManifest) -> Iterator[str]:
    if manifest.total_chunks != len(manifest.chunks) or not manifest.chunks:
        yield f"{manifest.total_chunks} chunks are promised, {len(manifest.chunks)} are listed"
    following = 0
    for position, entry in enumerate(manifest.chunks):
        if entry.index != position:
            yield f"chunk {entry.index} stands at position {position}"
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


def _file_problems(entry: ChunkEntry, manifest: ChunkManifest, folder: Path) -> Iterator[str]:
    path = folder / entry.uri
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
        yield f"{entry.uri} says that it stands elsewhere in the episode"
