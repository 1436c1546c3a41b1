"""Episodes as the command line names them: those of a dataset, or files on this machine."""

from __future__ import annotations

import glob
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
    EpisodeCorruptedError,
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
_MAGIC = frozenset("*?[")
_SUFFIX = ".wshard"


@dataclass(frozen=True, slots=True)
class OpenEpisode:
    """An open episode, wherever it lies. `identify` reads all of it, and refuses what is damaged."""

    id: str
    where: str
    size_bytes: int
    file: WShardFile | JoinedFile
    identify: Callable[[], str]

    @property
    def info(self) -> EpisodeInfo:
        """What its metadata say."""
        info = self.file.info
        assert info is not None, "an episode that is shown has said what it is"
        return info

    @property
    def file_count(self) -> int:
        return len(self.file.parts) if isinstance(self.file, JoinedFile) else 1

    @property
    def apart(self) -> list[str]:
        """Blocks that do not go on from one file to the next."""
        if not isinstance(self.file, JoinedFile):
            return []
        names = [name for name in self.file.parts[0].blocks if not name.startswith("meta/")]
        return [name for name in names if name not in self.file]


def is_address(target: str) -> bool:
    """Whether this names a dataset. A folder that looks like one is written `./a/b`."""
    return _ADDRESS.fullmatch(target) is not None


def open_episodes(cli: CliContext, address: str, name: str | None) -> Episodes:
    return cli.open(address).episodes(name)


def find_episode_files(targets: Sequence[str]) -> list[Path]:
    """Files, folders and globs, in the order given; each in name order. A manifest stands for the chunks it lists."""
    found = [path for target in targets for path in _find(target)]
    listed = {chunk for path in found for chunk in _listed_in(path)}
    return [path for path in found if path not in listed]


def _listed_in(path: Path) -> list[Path]:
    """The chunks of a manifest; none of one that is damaged, which is told when it is opened."""
    with suppress(CorruptError, UnsupportedError):
        if is_chunk_manifest(path):
            return [path.parent / entry.uri for entry in load_chunk_manifest(path).chunks]
    return []


def open_episode(cli: CliContext, target: str, name: str | None, episode: str | None) -> OpenEpisode:
    """One episode: of a dataset by id or number, or a file."""
    if is_address(target):
        episodes = open_episodes(cli, target, name)
        if episode is None:
            raise BadInputError(
                f"{target} has many episodes", hint=f"Name one: `warp episodes ls {target}` lists them."
            )
        is_number = episode.removeprefix("-").isdecimal() and episode not in episodes
        return _of_stored(episodes[int(episode) if is_number else episode], f"{target} {episodes.name}")
    if episode is not None:
        raise BadInputError(f"{target} is a file, and has one episode", hint="Leave the second name out.")
    return open_file(Path(target))


def iter_episodes(
    cli: CliContext, targets: Sequence[str], name: str | None
) -> Iterator[tuple[str, Callable[[], OpenEpisode]]]:
    """All episodes of the targets: what to call each, and what opens it. A damaged one does not open."""
    for target in targets:
        if is_address(target):
            for stored in open_episodes(cli, target, name):
                yield stored.id, partial(_of_stored, stored, target)
        else:
            for path in find_episode_files((target,)):
                yield str(path), partial(open_file, path)


def open_file(path: Path) -> OpenEpisode:
    """A finished episode in a file of its own, or in chunks that a manifest lists."""
    if is_chunk_manifest(path):
        return _open_chunks(path)
    file = open_wshard(path)
    if file.info is None:
        raise EpisodeCorruptedError(f"{path} has no block 'meta/episode'")
    return OpenEpisode(file.info.id, str(path), path.stat().st_size, file, lambda: identity(path))


def _open_chunks(path: Path) -> OpenEpisode:
    manifest = load_chunk_manifest(path)
    validate_chunk_continuity(manifest)
    paths = [path.parent / entry.uri for entry in manifest.chunks]
    for entry, chunk in zip(manifest.chunks, paths, strict=True):
        if not chunk.is_file():
            raise EpisodeCorruptedError(f"chunk {entry.index} of {manifest.episode_id!r} is missing: {chunk}")

    def identify() -> str:
        validate_chunk_continuity(manifest, path.parent)
        return joined_identity([identity(chunk) for chunk in paths])

    file = JoinedFile([open_wshard(chunk) for chunk in paths])
    return OpenEpisode(manifest.episode_id, str(path), sum(chunk.stat().st_size for chunk in paths), file, identify)


def _of_stored(stored: StoredEpisode, where: str) -> OpenEpisode:
    def identify() -> str:
        stored.verify()
        return stored.identity

    return OpenEpisode(stored.id, where, stored.size_bytes, stored.file, identify)


def _find(target: str) -> Iterator[Path]:
    path = Path(target).expanduser()
    if path.is_dir():
        found = sorted(path.rglob(f"*{_SUFFIX}"))
    elif path.exists() or not _MAGIC & set(target):
        found = [path]
    else:
        found = sorted(Path(match) for match in glob.glob(str(path), recursive=True))  # noqa: PTH207
    if not found or not found[0].exists():
        raise ObjectNotFoundError(
            f"no episode file matches {target!r}", hint="A dataset is named WORKSPACE/NAME; quote globs in a shell."
        )
    yield from found
