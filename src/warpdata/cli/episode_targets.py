"""Episodes as the command line names them: those of a dataset, or files on this machine."""

from __future__ import annotations

import glob
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from warpdata.cli.invocation import Invocation
from warpdata.episodes import Episodes, StoredEpisode
from warpdata.errors import BadInputError, EpisodeCorruptedError, ObjectNotFoundError
from warpdata.wshard import WShardFile, identity, open_wshard

__all__ = ["ShownEpisode", "every", "find_files", "is_address", "open_file", "open_set", "shown"]

_ADDRESS = re.compile(r"[a-z0-9_-]+/[a-z0-9_-]+(@.+)?")
_MAGIC = frozenset("*?[")
_SUFFIX = ".wshard"


@dataclass(frozen=True, slots=True)
class ShownEpisode:
    """An open episode, wherever it lies. `identify` reads all of it, and refuses what is damaged."""

    id: str
    where: str
    size_bytes: int
    file: WShardFile
    identify: Callable[[], str]


def is_address(target: str) -> bool:
    """Whether this names a dataset. A folder that looks like one is written `./a/b`."""
    return _ADDRESS.fullmatch(target) is not None


def open_set(invocation: Invocation, address: str, name: str | None) -> Episodes:
    return invocation.open(address).episodes(name)


def find_files(targets: Sequence[str]) -> list[Path]:
    """Files, folders and globs, in the order given; each in name order."""
    return [path for target in targets for path in _find(target)]


def shown(invocation: Invocation, target: str, name: str | None, episode: str | None) -> ShownEpisode:
    """One episode: of a dataset by id or number, or a file."""
    if is_address(target):
        episodes = open_set(invocation, target, name)
        if episode is None:
            raise BadInputError(
                f"{target} has many episodes", hint=f"Name one: `warp episodes ls {target}` lists them."
            )
        is_number = episode.removeprefix("-").isdecimal() and episode not in episodes
        return _of_stored(episodes[int(episode) if is_number else episode], f"{target} {episodes.name}")
    if episode is not None:
        raise BadInputError(f"{target} is a file, and has one episode", hint="Leave the second name out.")
    return open_file(Path(target))


def every(
    invocation: Invocation, targets: Sequence[str], name: str | None
) -> Iterator[tuple[str, Callable[[], ShownEpisode]]]:
    """All episodes of the targets: what to call each, and what opens it. A damaged one does not open."""
    for target in targets:
        if is_address(target):
            for stored in open_set(invocation, target, name):
                yield stored.id, partial(_of_stored, stored, target)
        else:
            for path in find_files((target,)):
                yield str(path), partial(open_file, path)


def open_file(path: Path) -> ShownEpisode:
    """A finished episode in a file of its own."""
    file = open_wshard(path)
    if file.info is None:
        raise EpisodeCorruptedError(f"{path} has no block 'meta/episode'")
    return ShownEpisode(file.info.id, str(path), path.stat().st_size, file, lambda: identity(path))


def _of_stored(stored: StoredEpisode, where: str) -> ShownEpisode:
    def identify() -> str:
        stored.verify()
        return stored.identity

    return ShownEpisode(stored.id, where, stored.size_bytes, stored.file, identify)


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
