"""How a file comes into being: beside its place first, then renamed, so that nobody sees half of it."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from warpdata.formats.wshard.byte_source import translate

__all__ = ["appearing", "sync_data", "sync_folder"]


@contextmanager
def appearing(path: Path, is_durable: bool) -> Iterator[BinaryIO]:
    """A temporary file beside `path`, renamed into place when all went well and removed otherwise."""
    staged = path.with_name(f".{path.name}.{os.getpid()}-{threading.get_ident()}.saving")
    try:
        try:
            with staged.open("w+b") as file:
                yield file
                file.flush()
                if is_durable:
                    os.fsync(file.fileno())
            staged.replace(path)
        finally:
            staged.unlink(missing_ok=True)
        if is_durable:
            sync_folder(path.parent)
    except OSError as error:
        raise translate(error, path) from error


def sync_folder(folder: Path) -> None:
    """Make renames in this folder survive a power cut."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def sync_data(handle: int) -> None:
    """Force a file's bytes, and its size, to the disk."""
    # Not every system has the cheaper call.
    getattr(os, "fdatasync", os.fsync)(handle)
