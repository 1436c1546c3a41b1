"""Targets and sources of a conversion.

A target appears complete or not at all, and never replaces an existing path. A library that fails on a damaged source
raises errors of many kinds; callers see one.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from warpdata.errors import AlreadyExistsError, BadInputError, InvalidSourceError, StorageError, WarpError
from warpdata.primitives.atomic_file import staged_path
from warpdata.primitives.paths import check_path

__all__ = ["list_sources", "make_unique", "new_output", "source_errors", "to_file_name"]


def list_sources(sources: object) -> list[Path]:
    """Return the paths of several episodes. A single path is a list of one."""
    if isinstance(sources, str | os.PathLike):
        return [check_path(sources)]
    if not isinstance(sources, Iterable):
        raise BadInputError(f"the sources are a {type(sources).__name__}, not paths of episodes")
    return [check_path(source) for source in sources]


@contextmanager
def new_output(path: Path) -> Iterator[Path]:
    """Yield a temporary name for a file or directory, which is renamed to `path` at the end, or removed."""
    if path.exists():
        raise AlreadyExistsError(f"{path} already exists", hint="Pass another target, or move it.")
    try:
        with staged_path(path) as staged:
            yield staged
    except OSError as error:
        if isinstance(error, WarpError):
            raise
        raise StorageError(f"{path}: {error.strerror or error}") from error


@contextmanager
def source_errors(where: str | Path) -> Iterator[None]:
    """Raise `InvalidSourceError` for any error of a library that reads a foreign file."""
    try:
        yield
    except WarpError:
        raise
    except Exception as error:
        raise InvalidSourceError(f"{where} is damaged: {type(error).__name__}: {error}") from error


def make_unique(name: str, taken: set[str]) -> str:
    """Append underscores until the name is not in `taken`, and add it there."""
    while name in taken:
        name += "_"
    taken.add(name)
    return name


def to_file_name(text: str) -> str:
    """Replace the characters that a file name cannot have by underscores."""
    name = "".join(c if c.isalnum() or c in "-_. " else "_" for c in text).strip(" .")
    return name[:200] or "episode"
