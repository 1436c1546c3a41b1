"""Targets of `warp episodes`: the episodes of a dataset, or WShard files on this machine."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from warpdata.cli.context import CliContext
from warpdata.errors import (
    BadInputError,
    CorruptError,
    ObjectNotFoundError,
    UnsupportedError,
)
from warpdata.formats.wshard import (
    EpisodeInfo,
    JoinedFile,
    WShardFile,
    identity,
    is_chunk_manifest,
    joined_identity,
    load_chunk_manifest,
    open_wshard,
    validate_chunk_continuity,
)
from warpdata.kinds.episodes import Episodes, StoredEpisode
from warpdata.primitives.paths import find_files

__all__ = [
    "OpenEpisode",
    "find_episode_files",
    "is_address",
    "iter_episodes",
    "open_episode",
    "open_episodes",
    "open_file",
]

_ADDRESS = re.compile(r"[a-z0-9_-]+/[a-z0-9_-]+(@.+)?")
_SUFFIX = ".wshard"


@dataclass(frozen=True, slots=True)
class OpenEpisode:
    """An open episode of a dataset or of a file.

    `verify` reads the whole episode and returns its identity, or raises if a block is corrupt.
    """

    id: str
    source: str
    size_bytes: int
    file: WShardFile | JoinedFile
    verify: Callable[[], str]

    @property
    def info(self) -> EpisodeInfo:
        info = self.file.info
        assert info is not None, "both constructors below require the block meta/episode"
        return info

    @property
    def file_count(self) -> int:
        return len(self.file.parts) if isinstance(self.file, JoinedFile) else 1

    @property
    def unjoined_blocks(self) -> list[str]:
        """Names of blocks that each chunk has separately, such as encoded video."""
        if not isinstance(self.file, JoinedFile):
            return []
        names = [name for name in self.file.parts[0].blocks if not name.startswith("meta/")]
        return [name for name in names if name not in self.file]


def is_address(target: str) -> bool:
    """Return whether the target names a dataset. A directory with such a path is written `./a/b`."""
    return _ADDRESS.fullmatch(target) is not None


def open_episodes(cli: CliContext, address: str, name: str | None) -> Episodes:
    return cli.open(address).episodes(name)


def open_episode(cli: CliContext, target: str, name: str | None, episode: str | None) -> OpenEpisode:
    """Open one episode: of a dataset by id or number, or the one in a file."""
    if is_address(target):
        episodes = open_episodes(cli, target, name)
        if episode is None:
            raise BadInputError(
                f"{target} needs the id of an episode", hint=f"`warp episodes ls {target}` lists the episodes."
            )
        is_number = episode.removeprefix("-").isdecimal() and episode not in episodes
        return _from_stored(episodes[int(episode) if is_number else episode], f"{target} {episodes.name}")
    if episode is not None:
        raise BadInputError(f"{target} is a file, which has one episode", hint="Omit the id.")
    return open_file(Path(target))


def iter_episodes(
    cli: CliContext, targets: Sequence[str], name: str | None
) -> Iterator[tuple[str, Callable[[], OpenEpisode]]]:
    """Yield the name of each episode and a function that opens it, which raises if the episode is corrupt."""
    for target in targets:
        if is_address(target):
            for stored in open_episodes(cli, target, name):
                yield stored.id, partial(_from_stored, stored, target)
        else:
            for path in find_episode_files((target,)):
                yield str(path), partial(open_file, path)


def find_episode_files(targets: Sequence[str]) -> list[Path]:
    """Return the files that paths, directories and globs name. A chunk manifest replaces its chunks."""
    found: list[Path] = []
    for target in targets:
        matches = find_files(target, (_SUFFIX,))
        if not matches or not matches[0].exists():
            raise ObjectNotFoundError(
                f"no episode file matches {target!r}", hint="A dataset is named WORKSPACE/NAME; quote globs in a shell."
            )
        found += matches
    chunks = {chunk for path in found for chunk in _chunks_of(path)}
    return [path for path in found if path not in chunks]


def _chunks_of(path: Path) -> list[Path]:
    """Return the chunks of a manifest. A corrupt manifest has none here; opening it raises the error."""
    with suppress(CorruptError, UnsupportedError):
        if is_chunk_manifest(path):
            return [path.parent / entry.uri for entry in load_chunk_manifest(path).chunks]
    return []


def open_file(path: Path) -> OpenEpisode:
    """Open a finished episode: one file, or a chunk manifest."""
    if is_chunk_manifest(path):
        return _open_chunks(path)
    file = open_wshard(path)
    if file.info is None:
        raise CorruptError(f"{path} has no block 'meta/episode'")
    return OpenEpisode(file.info.id, str(path), path.stat().st_size, file, lambda: identity(path))


def _open_chunks(path: Path) -> OpenEpisode:
    manifest = load_chunk_manifest(path)
    validate_chunk_continuity(manifest)
    paths = [path.parent / entry.uri for entry in manifest.chunks]
    for entry, chunk in zip(manifest.chunks, paths, strict=True):
        if not chunk.is_file():
            raise CorruptError(f"chunk {entry.index} of {manifest.episode_id!r} is missing: {chunk}")

    def verify() -> str:
        validate_chunk_continuity(manifest, path.parent)
        return joined_identity([identity(chunk) for chunk in paths])

    file = JoinedFile([open_wshard(chunk) for chunk in paths])
    return OpenEpisode(manifest.episode_id, str(path), sum(chunk.stat().st_size for chunk in paths), file, verify)


def _from_stored(stored: StoredEpisode, source: str) -> OpenEpisode:
    def verify() -> str:
        stored.verify()
        return stored.identity

    return OpenEpisode(stored.id, source, stored.size_bytes, stored.file, verify)
