"""The target of an export: a directory that appears complete or not at all.

Files are written below a temporary name beside the target, which is renamed at the end. A killed export leaves at most
a hidden directory that ends in `.tmp`. No name of a member or a label leads out of the directory.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from warpdata.errors import AlreadyExistsError, BadInputError, ErrorKind, StorageError, WarpError
from warpdata.exporters.file_copies import FileCopies
from warpdata.exporters.options import Content
from warpdata.kinds.artifacts import check_member_path
from warpdata.limits import MIB
from warpdata.primitives.atomic_file import staged_path
from warpdata.primitives.paths import check_path
from warpdata.primitives.progress import ProgressCounter

__all__ = ["ExportDirectory", "check_name", "check_split_count", "check_target", "new_directory", "read_pieces"]

_PIECE_BYTES = 4 * MIB
_UNSAFE = re.compile(r"[/\\\0]|^\.{1,2}$|^$")
_MAX_NAME_BYTES = 200
_MAX_SPLITS = 256


def check_target(folder: str | Path) -> Path:
    """Return the absolute path of the target. `AlreadyExistsError` unless it is absent or an empty directory."""
    try:
        target = check_path(folder).expanduser().resolve()
        if Path.cwd().is_relative_to(target):
            raise BadInputError(f"{target} holds the current directory", hint="Name a new directory.")
    except FileNotFoundError as error:
        raise StorageError("the current directory does not exist any more") from error
    try:
        if target.exists() and (not target.is_dir() or any(target.iterdir())):
            what = "is not empty" if target.is_dir() else "is a file"
            raise AlreadyExistsError(f"{target} {what}", hint="Pass another directory, or empty this one first.")
    except OSError as error:
        if isinstance(error, WarpError):
            raise
        raise StorageError(f"{target} cannot be listed: {error.strerror or error}") from error
    return target


@contextmanager
def new_directory(
    target: Path, counter: ProgressCounter, copies: FileCopies | None = None
) -> Iterator[ExportDirectory]:
    """Yield a directory that becomes `target` when the block ends, and vanishes if the block raises.

    With `copies`, the files of references are written when the block ends.
    """
    try:
        with staged_path(target, replaces_empty=True) as staged:
            staged.mkdir()
            yield ExportDirectory(staged, counter, copies)
            if copies is not None:
                copies.write(staged, counter)
    except FileExistsError as error:
        if isinstance(error, WarpError):
            raise
        raise AlreadyExistsError(f"{target} appeared during the export", hint="Pass another directory.") from error
    except OSError as error:
        if isinstance(error, WarpError):
            raise
        raise StorageError(f"{target} cannot be written: {error.strerror or error}") from error


class ExportDirectory:
    """Writes files below one directory, each name once."""

    def __init__(self, path: Path, counter: ProgressCounter, copies: FileCopies | None = None) -> None:
        """`copies` writes the files of references at the end of the export, with the workers of an engine."""
        self.path = path
        self.counter = counter
        self._copies = copies

    def place(self, name: str) -> Path:
        """Return the path of a new file, and make its directories. `BadInputError` for a name that leads out."""
        check_member_path(name, "the export")
        if "\\" in name:
            raise BadInputError(
                f"the export: {name!r} has a backslash, which separates directories on some systems",
                kind=ErrorKind.INVALID_NAME,
            )
        path = self.path / name
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except (FileExistsError, NotADirectoryError) as error:
            raise BadInputError(
                f"the export: {name!r} needs a directory where another file is", hint="Filter one of them out."
            ) from error
        except OSError as error:
            raise StorageError(f"the export: {name!r} cannot be written: {error.strerror or error}") from error
        return path

    def new_file(self, name: str) -> Path:
        """Return the path of a file that another library will write. `BadInputError` if the name is taken."""
        path = self.place(name)
        if path.exists():
            raise BadInputError(f"the export has two files with the name {name!r}", hint="Change or filter the rows.")
        return path

    def write(self, name: str, content: Content) -> None:
        """Write a new file. `BadInputError` if the name is taken, as on a file system that ignores case."""
        path = self.place(name)
        if self._copies is not None and not isinstance(content, bytes):
            self._copies.add(name, content)
            if self._copies.is_full:
                self._copies.write(self.path, self.counter)
            return
        try:
            with path.open("xb") as file:
                for piece in read_pieces(content):
                    file.write(piece)
                    self.counter.add_bytes(len(piece))
        except (FileExistsError, IsADirectoryError) as error:
            raise BadInputError(f"the export has two files with the name {name!r}", hint="Filter one out.") from error
        except OSError as error:
            if isinstance(error, WarpError):
                raise
            raise StorageError(f"the export: {name!r} cannot be written: {error.strerror or error}") from error
        self.counter.finish_file()


def read_pieces(content: Content) -> Iterator[bytes]:
    """Yield the bytes of a content; those of a large file piece by piece, each verified."""
    if isinstance(content, bytes):
        yield content
        return
    with content.open() as file:
        while piece := file.read(_PIECE_BYTES):
            yield piece


def check_split_count(count: int, column: str | None) -> None:
    """Raise `BadInputError` if there are `count` splits and one more comes: each has an open file."""
    if count >= _MAX_SPLITS:
        raise BadInputError(
            f"column {column!r} has more than {_MAX_SPLITS} values, and each would be a split",
            hint="Pass split=False (--no-split), or name another column.",
        )


def check_name(value: object, what: Callable[[], str]) -> str:
    """Return a value that can be the name of a file or directory, or raise `BadInputError`."""
    if not isinstance(value, str) or _UNSAFE.search(value) or value.startswith("."):
        raise BadInputError(
            f"{what()} is {value!r}, which cannot be the name of a directory",
            hint="Leave the column out of the names, or filter these rows out.",
            kind=ErrorKind.INVALID_NAME,
        )
    if len(value.encode("utf-8", "surrogatepass")) > _MAX_NAME_BYTES:
        raise BadInputError(f"{what()} is longer than {_MAX_NAME_BYTES} bytes", kind=ErrorKind.INVALID_NAME)
    return value
