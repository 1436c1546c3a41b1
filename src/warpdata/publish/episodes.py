"""Episodes on their way into a version: found, checked whole, hashed, and indexed.

Files are taken byte for byte; objects are saved into the staging folder first. Implements "Episodes" of
docs/specs/publish.md.
"""

from __future__ import annotations

import glob
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from warpdata.errors import BadInputError, InvalidSourceError
from warpdata.formats.wshard import Episode, save_wshard
from warpdata.kinds.episodes import IndexedEpisode, describe_episode, join_descriptions, write_index
from warpdata.limits import EPISODES_CHECK_BYTES
from warpdata.primitives.hashing import Fingerprint, fingerprint_file
from warpdata.primitives.progress import Progress, ProgressCounter
from warpdata.publish.chunks import Found, group_chunks, resolve_manifests
from warpdata.publish.plan import StagedBlob, StagedEpisodes
from warpdata.publish.upload import in_parallel

__all__ = ["EpisodesInput", "EpisodesSpec", "stage_episodes"]

EpisodesInput: TypeAlias = Any
"""A path, glob or folder of WShard files, an `Episode`, or a list or iterator of these."""

_MAGIC = frozenset("*?[")
_SUFFIX, _PARTIAL = ".wshard", ".wshard.partial"


@dataclass(frozen=True, slots=True)
class EpisodesSpec:
    """What `add_episodes` was given."""

    source: EpisodesInput
    compression: str
    time_chunk_steps: int


def stage_episodes(name: str, spec: EpisodesSpec, folder: Path, progress: Progress) -> StagedEpisodes:
    """Read every file: is it whole, what is it called, and what must a reader know to open it?"""
    given = list(_paths(spec.source, spec, folder / f"{name}.episodes"))
    if not given:
        raise InvalidSourceError(f"episodes {name!r} were given an empty list")
    paths, listings = resolve_manifests(given)
    tally = ProgressCounter(progress, "hash", sum(_size(path) for path in paths), len(paths))

    def stage(path: Path) -> Found:
        # Hashed first: should the file change after that, sending it fails.
        staged = StagedBlob(path, _fingerprint(path, tally))
        described = describe_episode(path, EPISODES_CHECK_BYTES)
        tally.finish_file()
        return described, staged

    episodes = group_chunks(in_parallel(stage, paths), listings)
    _check_ids(name, [files[0] for files in episodes])
    rows = [_indexed(files) for files in episodes]
    index = write_index(rows, folder, f"{name}.index")
    return StagedEpisodes(
        files=tuple(blob for files in episodes for _, blob in files),
        index=StagedBlob(index.path, fingerprint_file(index.path)),
        index_footer=index.footer,
        episode_count=len(rows),
        step_count=sum(row.whole.length for row in rows),
        check_bytes=EPISODES_CHECK_BYTES,
    )


def _indexed(files: Sequence[Found]) -> IndexedEpisode:
    whole = join_descriptions([(row, str(blob.path)) for row, blob in files])
    return IndexedEpisode(whole, tuple((row, blob.fingerprint.blob) for row, blob in files))


def _check_ids(name: str, found: Sequence[Found]) -> None:
    seen: dict[str, Path] = {}
    for row, blob in found:
        if row.id in seen:
            raise InvalidSourceError(
                f"two episodes of {name!r} are called {row.id!r}: {seen[row.id]} and {blob.path}",
                hint="Every episode of a set needs an id of its own.",
            )
        seen[row.id] = blob.path


def _paths(source: EpisodesInput, spec: EpisodesSpec, folder: Path) -> Iterator[Path]:
    if isinstance(source, str | Path):
        yield from _find(source)
    elif isinstance(source, Episode):
        yield _saved(source, spec, folder)
    elif isinstance(source, Iterable) and not isinstance(source, bytes | dict):
        for item in source:
            yield from _paths(item, spec, folder)
    else:
        raise InvalidSourceError(
            f"an episode cannot be made from a {type(source).__name__}",
            hint="Give a path, glob or folder of .wshard files, Episode objects, or a list of these.",
        )


def _saved(episode: Episode, spec: EpisodesSpec, folder: Path) -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / f"{sum(1 for _ in folder.iterdir()):06d}{_SUFFIX}"
    try:
        save_wshard(episode, path, compression=spec.compression, time_chunk_steps=spec.time_chunk_steps)
    except BadInputError as error:
        raise InvalidSourceError(f"episode {episode.id!r} cannot be saved: {error.message}", hint=error.hint) from error
    return path


def _find(source: str | Path) -> list[Path]:
    """A file, a folder's episodes, or a glob's, in name order. A folder with an unfinished recording is refused."""
    text = str(Path(source).expanduser())
    path = Path(text)
    if path.is_dir():
        found = sorted(match for match in path.rglob(f"*{_SUFFIX}") if match.is_file())
        unfinished = sorted(path.rglob(f"*{_PARTIAL}"))
        if unfinished:
            raise InvalidSourceError(
                f"{unfinished[0]} is a recording that has not ended",
                hint=f"Finish it: `warp episodes recover {unfinished[0]}`; or name the files to publish.",
            )
    elif path.exists() or not _MAGIC & set(text):
        found = [path]
    else:
        found = sorted(Path(match) for match in glob.glob(text, recursive=True) if Path(match).is_file())  # noqa: PTH207
    if not found:
        raise InvalidSourceError(f"no episode matches {text!r}", hint="Check the path; quote globs in a shell.")
    return found


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError as error:
        raise _unreadable(path, error) from error


def _fingerprint(path: Path, tally: ProgressCounter) -> Fingerprint:
    try:
        return fingerprint_file(path, tally.add_bytes)
    except OSError as error:
        raise _unreadable(path, error) from error


def _unreadable(path: Path, error: OSError) -> InvalidSourceError:
    return InvalidSourceError(f"{path} cannot be read: {error.strerror or error}")
