"""Episodes on their way into a version: found, validated, hashed and indexed.

Files are published byte for byte. `Episode` objects are saved into the staging directory first. Implements "Episodes"
of docs/specs/publish.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from warpdata.errors import BadInputError, InvalidSourceError
from warpdata.formats.wshard import Episode, save_wshard
from warpdata.kinds import StageContext, StagedBlob, StagedEntry, hash_file, shards_of
from warpdata.kinds.episodes.chunk_groups import EpisodeFile, group_chunks, resolve_manifests
from warpdata.kinds.episodes.entry import EpisodesEntry
from warpdata.kinds.episodes.index_writer import (
    IndexedEpisode,
    describe_episode,
    index_rows,
    join_descriptions,
    write_index,
)
from warpdata.limits import EPISODES_CHECK_BYTES
from warpdata.primitives.hashing import fingerprint_file
from warpdata.primitives.parallel import IO_POOL, disk_threads
from warpdata.primitives.paths import find_files
from warpdata.primitives.progress import ProgressCounter
from warpdata.repository.manifest import ShardList

__all__ = ["EpisodesInput", "EpisodesSpec", "index_row", "stage_episodes", "stage_files"]

EpisodesInput: TypeAlias = Any
"""A path, glob or directory of WShard files, an `Episode`, or a list or iterator of these."""

_SUFFIX, _UNFINISHED = ".wshard", ".wshard.partial"


@dataclass(frozen=True, slots=True)
class EpisodesSpec:
    """Episodes to publish. The first options are those of `save_wshard`, for `Episode` objects."""

    source: EpisodesInput
    compression: str = "none"
    time_chunk_steps: int = 0
    follow_links: bool = False


def stage_episodes(name: str, spec: EpisodesSpec, context: StageContext) -> StagedEntry:
    """Read every file: validate it, hash it, and describe it for the index."""
    episodes = stage_files(name, spec, context, EPISODES_CHECK_BYTES)
    rows = index_rows([index_row(files) for files in episodes])
    index = write_index([rows], rows.schema, context.directory, f"{name}.index")
    index_blob = StagedBlob(index.path, fingerprint_file(index.path))
    files = tuple(blob for chunks in episodes for _, blob in chunks)
    entry = EpisodesEntry(
        shards=ShardList(),
        index=index_blob.fingerprint.blob,
        index_footer=index.footer,
        episode_count=len(episodes),
        step_count=sum(row.length for chunks in episodes for row, _ in chunks),
        check_bytes=EPISODES_CHECK_BYTES,
        file_count=None if len(files) == len(episodes) else len(files),
    )
    return StagedEntry(entry.payload(), shards_of(files), (*files, index_blob), len(episodes))


def stage_files(
    name: str, spec: EpisodesSpec, context: StageContext, check_bytes: int
) -> list[tuple[EpisodeFile, ...]]:
    """Return the files of each episode, validated and hashed. Ids are unique."""
    given = list(_paths(spec.source, spec, context.directory / f"{name}.episodes"))
    if not given:
        raise InvalidSourceError(f"episodes {name!r} were given an empty list")
    paths, manifests = resolve_manifests(given, follow_links=spec.follow_links)
    counter = ProgressCounter(context.progress, "hash", sum(_size(path) for path in paths), len(paths))

    def stage(path: Path) -> EpisodeFile:
        # Hash first: if the file changes after that, its upload fails.
        blob = StagedBlob(path, hash_file(path, counter))
        described = describe_episode(path, check_bytes)
        counter.finish_file()
        return described, blob

    episodes = group_chunks(IO_POOL.map_all(stage, paths, limit=disk_threads()), manifests)
    _check_ids(name, [files[0] for files in episodes])
    return episodes


def index_row(files: Sequence[EpisodeFile]) -> IndexedEpisode:
    """Join the files of an episode."""
    whole = join_descriptions([(row, str(blob.path)) for row, blob in files])
    return IndexedEpisode(whole, tuple((row, blob.fingerprint.blob) for row, blob in files))


def _check_ids(name: str, files: Sequence[EpisodeFile]) -> None:
    seen: dict[str, Path] = {}
    for row, blob in files:
        if row.id in seen:
            raise InvalidSourceError(
                f"two episodes of {name!r} have the id {row.id!r}: {seen[row.id]} and {blob.path}",
                hint="Every episode of a set needs a unique id.",
            )
        seen[row.id] = blob.path


def _paths(source: EpisodesInput, spec: EpisodesSpec, directory: Path) -> Iterator[Path]:
    if isinstance(source, str | Path):
        yield from _find(source, follow_links=spec.follow_links)
    elif isinstance(source, Episode):
        yield _saved(source, spec, directory)
    elif isinstance(source, Iterable) and not isinstance(source, bytes | dict):
        for item in source:
            yield from _paths(item, spec, directory)
    else:
        raise InvalidSourceError(
            f"an episode cannot be made from a {type(source).__name__}",
            hint="Give a path, glob or directory of .wshard files, Episode objects, or a list of these.",
        )


def _saved(episode: Episode, spec: EpisodesSpec, directory: Path) -> Path:
    directory.mkdir(exist_ok=True)
    path = directory / f"{sum(1 for _ in directory.iterdir()):06d}{_SUFFIX}"
    try:
        save_wshard(episode, path, compression=spec.compression, time_chunk_steps=spec.time_chunk_steps)
    except BadInputError as error:
        raise InvalidSourceError(f"episode {episode.id!r} cannot be saved: {error.message}", hint=error.hint) from error
    return path


def _find(source: str | Path, *, follow_links: bool) -> list[Path]:
    """Return the episodes of a file, directory or glob. Refuse a directory with an unfinished recording."""
    path = Path(source).expanduser()
    unfinished = find_files(path, (_UNFINISHED,)) if path.is_dir() else []
    if unfinished:
        raise InvalidSourceError(
            f"{unfinished[0]} is a recording that has not ended",
            hint=f"Finish it: `warp episodes recover {unfinished[0]}`; or name the files to publish.",
        )
    found = find_files(path, (_SUFFIX,), follow_links=follow_links)
    if not found:
        raise InvalidSourceError(f"no episode matches {str(path)!r}", hint="Check the path; quote globs in a shell.")
    return found


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError as error:
        raise InvalidSourceError(f"{path} cannot be read: {error.strerror or error}") from error
