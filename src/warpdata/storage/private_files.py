"""Files and directories of the cache that no other user can read, change or plant.

A cache directory may be in a place where other users can write, such as `/tmp`. Everything below it belongs to this
user or to root, and is opened without following links. Implements "Sharing" of docs/specs/cache.md.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

from warpdata.errors import AccessDeniedError

__all__ = ["check_private_directory", "is_private_file", "make_private_directories", "open_private"]

_DIRECTORY_MODE = 0o700
_FILE_MODE = 0o600
_FLAGS = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NONBLOCK", 0)
"""A FIFO in place of a file must not block the process, so nothing blocks."""
_IS_LINK = (errno.ELOOP, errno.EMLINK)
_HINT = "Set WARP_CACHE_DIR to a directory of your own."


def open_private(path: Path, flags: int) -> int:
    """Open a regular file that only this user can change, and return its descriptor.

    Anything else under this name is refused with `AccessDeniedError`. If `flags` allow to create the file, it is
    removed first, and a new file is made.
    """
    for _ in range(2):
        try:
            fd = os.open(path, flags | _FLAGS, _FILE_MODE)
        except OSError as error:
            if error.errno not in _IS_LINK:
                raise
        else:
            if _has_private_mode(fd):
                return fd
            os.close(fd)
        if not flags & os.O_CREAT:
            break
        path.unlink(missing_ok=True)
    raise AccessDeniedError(f"{path} is a link, or another user can change it", hint=_HINT)


def is_private_file(status: os.stat_result) -> bool:
    """Return whether a file is regular, has one name, and only this user or root can change it."""
    is_regular = stat.S_ISREG(status.st_mode) and status.st_nlink <= 1
    return is_regular and _is_trusted(status) and not status.st_mode & stat.S_IWOTH


def check_private_directory(root: Path, *names: str) -> None:
    """Check the cache directory `root`, and the directory below it that these names lead to.

    Raise `AccessDeniedError` if another user can replace what is inside. A directory that does not exist is fine.
    `root` may be a link of this user, and may be in a directory such as `/tmp`; those below it may not.
    """
    if not hasattr(os, "geteuid"):
        return
    try:
        link, status = root.lstat(), root.stat()
    except FileNotFoundError:
        return
    if stat.S_ISLNK(link.st_mode) and not _is_trusted(link):
        raise AccessDeniedError(f"the cache directory {root} is a link of another user", hint=_HINT)
    is_sticky = bool(status.st_mode & stat.S_ISVTX)
    if not is_sticky and not _is_trusted(status):
        raise AccessDeniedError(f"the cache directory {root} belongs to another user", hint=_HINT)
    if not is_sticky and status.st_mode & stat.S_IWOTH:
        raise AccessDeniedError(f"every user can write to the cache directory {root}", hint=_HINT)
    for name in names:
        root = root / name
        _check_inner(root)


def make_private_directories(root: Path, *names: str) -> Path:
    """Make the cache directory and those below it, for this user alone. Return the innermost, checked."""
    root.parent.mkdir(parents=True, exist_ok=True)
    root.mkdir(_DIRECTORY_MODE, exist_ok=True)
    check_private_directory(root)
    for name in names:
        root = root / name
        root.mkdir(_DIRECTORY_MODE, exist_ok=True)
        _check_inner(root)
    return root


def _check_inner(directory: Path) -> None:
    try:
        status = directory.lstat()
    except FileNotFoundError:
        return
    if not stat.S_ISDIR(status.st_mode) or not _is_trusted(status):
        raise AccessDeniedError(f"{directory} is a link, or belongs to another user", hint=_HINT)
    if status.st_mode & 0o077 and _is_own(status):
        directory.chmod(_DIRECTORY_MODE)


def _has_private_mode(fd: int) -> bool:
    status = os.fstat(fd)
    if not is_private_file(status):
        return False
    if status.st_mode & 0o077 and _is_own(status):
        os.fchmod(fd, _FILE_MODE)  # made by an older version
    return True


def _is_own(status: os.stat_result) -> bool:
    return not hasattr(os, "geteuid") or status.st_uid == os.geteuid()


def _is_trusted(status: os.stat_result) -> bool:
    return status.st_uid == 0 or _is_own(status)
