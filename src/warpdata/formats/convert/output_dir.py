"""Targets appear whole or not at all, and never replace what is there."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from warpdata.errors import AlreadyExistsError, StorageError, WarpError

__all__ = ["free_name", "plain_name", "staged"]


@contextmanager
def staged(path: Path) -> Iterator[Path]:
    """A name beside `path` for a file or a folder, which is renamed when all went well and removed otherwise."""
    if path.exists():
        raise AlreadyExistsError(f"{path} exists already", hint="Name another target, or move it away.")
    making = path.with_name(f".{path.name}.{os.getpid()}.converting")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield making
        making.rename(path)
    except OSError as error:
        if isinstance(error, WarpError):
            raise
        raise StorageError(f"{path}: {error.strerror or error}") from error
    finally:
        if making.is_dir():
            shutil.rmtree(making, ignore_errors=True)
        else:
            making.unlink(missing_ok=True)


def free_name(wanted: str, taken: set[str]) -> str:
    """`wanted`, with underscores after it until nobody else has it. It is then taken."""
    while wanted in taken:
        wanted += "_"
    taken.add(wanted)
    return wanted


def plain_name(text: str) -> str:
    """The text as a file name: what may not stand in one becomes an underscore."""
    name = "".join(c if c.isalnum() or c in "-_. " else "_" for c in text).strip(" .")
    return name[:200] or "episode"
