"""Files of a labelled directory, read within bounds, and files that a writer makes.

Readers take any `LabelFiles`: a directory, or bytes in memory. Writers yield files by relative name, so the same code
fills a directory, an archive or a virtual bucket.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from warpdata.errors import BadInputError, CorruptError, InvalidSourceError, LimitExceededError
from warpdata.formats.labels.image_path import check_image_path
from warpdata.formats.media import read_image_size
from warpdata.limits import MAX_LABEL_FILES, MAX_LABEL_JSON_BYTES

__all__ = [
    "DirectoryFiles",
    "ImagePlace",
    "LabelFile",
    "LabelFiles",
    "MemoryFiles",
    "OutputFile",
    "foreign_path",
    "has_image_suffix",
    "image_names",
]

_HEADER_BYTES = 256 * 1024
_IMAGE_SUFFIXES = frozenset({".jpg", ".jpeg", ".png", ".bmp", ".gif", ".tif", ".tiff", ".webp", ".avif", ".jp2"})


class LabelFiles(Protocol):
    """The files that a reader sees, by relative name with `/` between its parts."""

    @property
    def name(self) -> str:
        """The name of the source, for messages."""
        ...

    def names(self) -> list[str]:
        """Return all names, sorted."""
        ...

    def read(self, name: str, limit: int = MAX_LABEL_JSON_BYTES) -> bytes:
        """Return the bytes of a file. `LimitExceededError` if it has more than `limit`."""
        ...

    def image_size(self, name: str) -> tuple[int, int] | None:
        """Return width and height of an image file, from its header."""
        ...


@dataclass(frozen=True, slots=True)
class LabelFile:
    """A file of labels that a writer made: its name in the directory, and its bytes in pieces."""

    name: str
    data: Iterable[bytes]

    def read(self) -> bytes:
        """Return all bytes, once."""
        return b"".join(self.data)


@dataclass(frozen=True, slots=True)
class ImagePlace:
    """The place of an image file in the directory: the image `path` of the set is written as `name`."""

    name: str
    path: str


OutputFile = LabelFile | ImagePlace


class DirectoryFiles:
    """The files of a directory. Symbolic links are not followed. A single file is a directory of one."""

    def __init__(self, top: Path) -> None:
        self._top = top if top.is_dir() else top.parent
        self._only = None if top.is_dir() else top.name
        self._names: list[str] | None = None
        if not top.exists():
            raise InvalidSourceError(f"{top} does not exist")

    @property
    def name(self) -> str:
        return str(self._top if self._only is None else self._top / self._only)

    def names(self) -> list[str]:
        if self._names is None:
            self._names = [self._only] if self._only is not None else self._list()
        return self._names

    def path(self, name: str) -> Path:
        """Return the path of one of the listed files."""
        return self._top / name

    def read(self, name: str, limit: int = MAX_LABEL_JSON_BYTES) -> bytes:
        path = self._top / name
        try:
            size = path.stat().st_size
            if size > limit:
                raise LimitExceededError(f"{path} has {size:,} bytes; the limit is {limit:,}")
            return path.read_bytes()
        except OSError as error:
            raise InvalidSourceError(f"{path} cannot be read: {error.strerror or error}") from error

    def image_size(self, name: str) -> tuple[int, int] | None:
        try:
            with (self._top / name).open("rb") as file:
                size = read_image_size(file.read(_HEADER_BYTES))
        except OSError:
            return None
        return (size[1], size[0]) if size else None

    def _list(self) -> list[str]:
        found: list[str] = []
        for top, _, files in os.walk(self._top, followlinks=False):
            folder = Path(top)
            found += [
                (folder / name).relative_to(self._top).as_posix()
                for name in files
                if not (folder / name).is_symlink() and (folder / name).is_file()
            ]
            if len(found) > MAX_LABEL_FILES:
                raise LimitExceededError(f"{self._top} has more than {MAX_LABEL_FILES:,} files")
        return sorted(found)


class MemoryFiles:
    """Files in memory, by name."""

    def __init__(self, files: Mapping[str, bytes], name: str = "memory") -> None:
        self._files = dict(sorted(files.items()))
        self._name = name

    @property
    def name(self) -> str:
        return self._name

    def names(self) -> list[str]:
        return list(self._files)

    def read(self, name: str, limit: int = MAX_LABEL_JSON_BYTES) -> bytes:
        data = self._files.get(name)
        if data is None:
            raise InvalidSourceError(f"{self._name} has no file {name!r}")
        if len(data) > limit:
            raise LimitExceededError(f"{name} has {len(data):,} bytes; the limit is {limit:,}")
        return data

    def image_size(self, name: str) -> tuple[int, int] | None:
        size = read_image_size(self._files.get(name, b"")[:_HEADER_BYTES])
        return (size[1], size[0]) if size else None


def image_names(files: LabelFiles) -> list[str]:
    """Return the names of image files."""
    return [name for name in files.names() if has_image_suffix(name)]


def has_image_suffix(name: str) -> bool:
    """Return whether tools that list a directory take a file for an image."""
    return name[name.rfind(".") :].lower() in _IMAGE_SUFFIXES


def foreign_path(value: Any, where: str) -> str:
    """Return a path of an image that a foreign file names. `CorruptError` with the place, if it is not a safe one."""
    if not isinstance(value, str):
        raise CorruptError(f"{where}: the name of an image is text, not {value!r}")
    try:
        return check_image_path(value.replace("\\", "/").removeprefix("./"))
    except BadInputError as error:
        raise CorruptError(f"{where}: {error.message}") from error
