"""Validation of a manifest and its chunks: no gap, no repetition, the listed bytes, and equal channels.

Implements "Continuity" of docs/specs/wshard.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from warpdata.errors import BadInputError, CorruptError
from warpdata.formats.wshard.chunk_layout import ChunkLayout, file_layout, find_disagreement
from warpdata.formats.wshard.chunk_manifest import ChunkEntry, ChunkManifest
from warpdata.formats.wshard.reader import open_file
from warpdata.formats.wshard.source import PathLike
from warpdata.primitives.hashing import fingerprint_file
from warpdata.primitives.paths import check_path

__all__ = ["validate_chunk_continuity"]

_MAX_SHOWN_PROBLEMS = 10


def validate_chunk_continuity(manifest: ChunkManifest, directory: PathLike | None = None) -> None:
    """Raise `CorruptError` naming every gap and contradiction.

    With `directory`, the files are hashed and compared with the manifest and with each other too: chunks of one
    episode have the same environment, rate and channels.
    """
    value: object = manifest
    if not isinstance(value, ChunkManifest):
        raise BadInputError(f"a ChunkManifest was expected, not a {type(value).__name__}")
    problems = list(_find_gaps(manifest))
    if directory is not None:
        problems += _find_file_problems(manifest, check_path(directory))
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


def _find_file_problems(manifest: ChunkManifest, directory: Path) -> Iterator[str]:
    first: ChunkLayout | None = None
    for entry in manifest.chunks:
        path = directory / entry.uri
        if not path.is_file():
            yield f"{entry.uri} is missing"
            continue
        if fingerprint_file(path).blob.hash != entry.sha256:
            yield f"{entry.uri} is not the file that was listed"
            continue
        with open_file(path) as file:
            info = file.info
            layout = None if info is None else file_layout(file)
        if info is None or layout is None or (info.id, info.length) != (manifest.episode_id, entry.length):
            yield f"{entry.uri} does not hold {entry.length} steps of this episode"
            continue
        if info.chunk is not None:
            yield from _find_place_problems(entry, manifest, info.chunk.index, info.chunk.first_step, info.chunk.total)
        first = first or layout
        problem = find_disagreement(first, layout)
        if problem is not None:
            yield f"{entry.uri} {problem}"


def _find_place_problems(
    entry: ChunkEntry, manifest: ChunkManifest, index: int | None, first_step: int, total: int | None
) -> Iterator[str]:
    if (index, first_step) != (entry.index, entry.first_step):
        yield f"{entry.uri} says that it has another position in the episode"
    if total is not None and total != manifest.total_chunks:
        yield f"{entry.uri} says that there are {total} chunks"
