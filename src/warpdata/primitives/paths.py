"""Local paths as a user writes them: a file, a directory or a glob."""

from __future__ import annotations

import glob
import os
import unicodedata
from collections.abc import Iterable, Sequence
from itertools import count
from pathlib import Path

from warpdata.errors import InvalidSourceError

__all__ = [
    "check_inside",
    "check_path",
    "expand_glob",
    "find_files",
    "fold_path",
    "glob_root",
    "is_glob",
    "take_free_path",
]

_WILDCARDS = frozenset("*?[")


def check_path(source: object) -> Path:
    """Return a path. `InvalidSourceError` for other types, and for text with NUL or with lone surrogates."""
    if not isinstance(source, str | os.PathLike):
        raise InvalidSourceError(f"{str(source)[:40]!r} is not a path: it is a {type(source).__name__}, not text")
    try:
        path = Path(os.fspath(source))
        is_valid = b"\0" not in os.fsencode(path)
    except (TypeError, UnicodeEncodeError) as error:
        raise InvalidSourceError(f"{source!r} is not a path") from error
    if not is_valid:
        raise InvalidSourceError(f"{source!r} is not a path: it has a NUL character")
    return path


def is_glob(path: str | Path) -> bool:
    """Return whether the path has wildcards. A path that exists is itself, not a glob."""
    return not _WILDCARDS.isdisjoint(str(path)) and not Path(path).expanduser().exists()


def expand_glob(pattern: str | Path) -> list[Path]:
    """Return the matching files and directories, sorted. `**` matches directories of any depth."""
    return sorted(map(Path, glob.glob(str(Path(pattern).expanduser()), recursive=True)))  # noqa: PTH207


def glob_root(pattern: str | Path) -> Path:
    """Return the directory before the first wildcard of a glob."""
    parts = Path(pattern).expanduser().parts
    return Path(*parts[: next(index for index, part in enumerate(parts) if not _WILDCARDS.isdisjoint(part))])


def check_inside(paths: Iterable[Path], top: Path) -> None:
    """Raise `InvalidSourceError` for a file that a symbolic link takes out of the directory `top`."""
    root = top.resolve()
    for path in paths:
        target = path.resolve()
        if not target.is_relative_to(root):
            raise InvalidSourceError(
                f"{path} is a link to {target}, outside of {top}",
                hint="Copy the file into the directory, or pass follow_links=True (--follow-links) to publish it.",
            )


def find_files(
    source: str | Path, suffixes: Sequence[str], *, ignore_case: bool = False, follow_links: bool = True
) -> list[Path]:
    """Return the files that `source` names, sorted; an empty list if there are none.

    Of a directory, these are the files at any depth whose name ends with one of the suffixes. Of a glob, all
    matching files. Any other path is returned as it is, whether it exists or not. Without `follow_links`, a link that
    leaves the directory, or the directory of the glob, is an `InvalidSourceError`.
    """
    path = check_path(source).expanduser()
    if path.is_dir():
        top = path
        named = (file for file in path.rglob("*") if _ends_with(file.name, tuple(suffixes), ignore_case=ignore_case))
        found = sorted(file for file in named if file.is_file())
    elif is_glob(path):
        top = glob_root(path)
        found = [file for file in expand_glob(path) if file.is_file()]
    else:
        return [path]
    if not follow_links:
        check_inside(found, top)
    return found


def _ends_with(name: str, suffixes: tuple[str, ...], *, ignore_case: bool) -> bool:
    return (name.lower() if ignore_case else name).endswith(suffixes)


def fold_path(path: str) -> str:
    """Return a key that is equal for paths that one file system or another takes for the same.

    Some ignore case, and some the Unicode form.
    """
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", path).casefold())


def take_free_path(directory: str, name: str, row: int, taken: set[str]) -> str:
    """Return `directory/name` and add its key to `taken`. A taken name gets the row, and then a number, in front."""
    for number in count():
        candidate = name if not number else f"{row:08d}-{name}" if number == 1 else f"{row:08d}-{number}-{name}"
        path = f"{directory}/{candidate}" if directory else candidate
        if fold_path(path) not in taken:
            break
    taken.add(fold_path(path))
    return path
