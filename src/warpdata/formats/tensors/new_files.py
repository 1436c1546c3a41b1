"""Files in the making: created with all the room they need, under a name that says they are not finished."""

from __future__ import annotations

import errno
import os
from pathlib import Path

from warpdata.errors import AlreadyExistsError, BadInputError, StorageError, StoreFullError

__all__ = ["create_file", "write_all"]


def create_file(path: Path, size: int) -> int:
    """A descriptor of a new file with room for this many bytes."""
    try:
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0), 0o666)
    except FileExistsError as error:
        hint = "remove it, if nobody is writing it"
        raise AlreadyExistsError(f"{path} is left from another run, or in use", hint=hint) from error
    except OSError as error:
        raise BadInputError(f"{path} can not be created: {error.strerror}") from error
    try:
        # Room is taken now: a full disk met through the mapping would end the process.
        if size:
            os.posix_fallocate(file, 0, size)
    except OSError as error:
        os.close(file)
        path.unlink()
        kind = StoreFullError if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG) else StorageError
        raise kind(f"there is no room for {size} bytes at {path}: {error.strerror}") from error
    return file


def write_all(file: int, data: bytes) -> None:
    left = memoryview(data)
    while left:
        left = left[os.write(file, left) :]
