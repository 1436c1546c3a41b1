"""Sources of artifacts: directories, files or mappings become files with member paths, in order.

Symbolic links to files of the same directory are followed, others only on request. Links to directories, devices and
sockets are refused.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from warpdata.errors import InvalidSourceError
from warpdata.kinds.artifacts.member import check_member_path
from warpdata.limits import MEMBER_CHUNK_BYTES
from warpdata.primitives.paths import check_inside, check_path

__all__ = ["FileRange", "FilesInput", "MemberSource", "list_sources", "read_pieces"]


@dataclass(frozen=True, slots=True)
class FileRange:
    """A part of a file that will be a member."""

    path: Path
    offset: int
    size_bytes: int


FilesInput: TypeAlias = str | Path | Iterable[str | Path] | Mapping[str, str | Path | bytes | FileRange]
"""A directory, a file, a list of files, or a mapping of member paths to files, parts of files or bytes."""

_ACCEPTED = "Give a directory, files, a mapping of member paths to files or bytes, or an Artifact of a dataset."


@dataclass(frozen=True, slots=True)
class MemberSource:
    """A file or bytes that will be a member. Packing fails if the size has changed."""

    path: str
    content: Path | bytes | FileRange
    size_bytes: int

    @property
    def where(self) -> str:
        return str(self.content) if isinstance(self.content, Path) else f"member {self.path!r}"


def list_sources(source: FilesInput, prefix: str = "", *, follow_links: bool = False) -> list[MemberSource]:
    """Return every member, in order of the UTF-8 bytes of the paths. `prefix` goes before each path.

    Links that leave the directory are refused, or with `follow_links` followed. Files that a list or a mapping names
    are read in any case.
    """
    found = [
        MemberSource(check_member_path(prefix + path, str(where)), content, size)
        for path, content, size, where in _walk(source, follow_links=follow_links)
    ]
    if not found:
        raise InvalidSourceError(f"{source!s} contains no file", hint="Check the path.")
    return sorted(found, key=lambda member: member.path.encode())


def read_pieces(source: MemberSource) -> Iterator[bytes]:
    """Yield the content in pieces of one chunk. Raise `InvalidSourceError` if its length has changed."""
    if isinstance(source.content, bytes):
        for start in range(0, len(source.content), MEMBER_CHUNK_BYTES):
            yield source.content[start : start + MEMBER_CHUNK_BYTES]
        return
    is_part = isinstance(source.content, FileRange)
    path = source.content.path if isinstance(source.content, FileRange) else source.content
    left, is_longer = source.size_bytes, False
    try:
        with path.open("rb", buffering=0) as file:
            if isinstance(source.content, FileRange):
                os.lseek(file.fileno(), source.content.offset, os.SEEK_SET)
            while left and (piece := _read_exactly(file.fileno(), min(left, MEMBER_CHUNK_BYTES))):
                left -= len(piece)
                yield piece
            is_longer = not is_part and bool(os.read(file.fileno(), 1))
    except OSError as error:
        raise InvalidSourceError(f"{path} cannot be read: {error.strerror or error}") from error
    if left or is_longer:
        raise InvalidSourceError(f"{path} changed while it was published")


def _read_exactly(handle: int, size: int) -> bytes:
    data = os.read(handle, size)
    while 0 < len(data) < size:
        more = os.read(handle, size - len(data))
        if not more:
            break
        data += more
    return data


_Found: TypeAlias = tuple[str, Path | bytes | FileRange, int, str | Path]


def _walk(source: FilesInput, *, follow_links: bool) -> Iterator[_Found]:
    if isinstance(source, Mapping):
        for path, content in source.items():
            if isinstance(content, bytes):
                yield path, content, len(content), "the mapping"
            elif isinstance(content, FileRange):
                yield path, content, content.size_bytes, content.path
            else:
                file = _as_path(content)
                yield path, file, _size_of(file), file
        return
    if isinstance(source, str | Path):
        start = check_path(source).expanduser()
        if start.is_dir():
            yield from _walk_directory(start, follow_links=follow_links)
            return
        source = [start]
    if not isinstance(source, Iterable):
        raise InvalidSourceError(f"an artifact cannot be made from a {type(source).__name__}", hint=_ACCEPTED)
    for name in source:
        file = _as_path(name)
        yield file.name, file, _size_of(file), file


def _as_path(given: object) -> Path:
    if not isinstance(given, str | os.PathLike):
        raise InvalidSourceError(f"a member cannot be made from a {type(given).__name__}", hint=_ACCEPTED)
    return check_path(given).expanduser()


def _walk_directory(top: Path, *, follow_links: bool) -> Iterator[_Found]:
    waiting = [(top, "")]
    while waiting:
        directory, prefix = waiting.pop()
        for entry, is_directory in _listed(directory):
            path, name = Path(entry.path), prefix + entry.name
            if not is_directory:
                size = _size_of(path)
                if entry.is_symlink() and not follow_links:
                    check_inside([path], top)
                yield name, path, size, path
            elif entry.is_symlink():
                raise InvalidSourceError(
                    f"{path} is a link to a directory", hint="Copy the directory, or publish it separately."
                )
            else:
                waiting.append((path, f"{name}/"))


def _listed(directory: Path) -> list[tuple[os.DirEntry[str], bool]]:
    """Return the entries of a directory, each with whether it is a directory or a link to one."""
    try:
        with os.scandir(directory) as entries:
            return [(entry, entry.is_dir()) for entry in entries]
    except OSError as error:
        path = error.filename or directory
        raise InvalidSourceError(f"{path} cannot be listed: {error.strerror or error}") from error


def _size_of(path: Path) -> int:
    try:
        status = path.stat()
    except OSError as error:
        raise InvalidSourceError(f"{path} cannot be read: {error.strerror or error}") from error
    except ValueError as error:
        raise InvalidSourceError(f"{str(path)!r} is not a path: {error}") from error
    if not stat.S_ISREG(status.st_mode):
        raise InvalidSourceError(f"{path} is not a regular file")
    return status.st_size
