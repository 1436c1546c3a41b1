"""Files with locks that all processes of a machine respect, and that end with the process.

A lock belongs to an *open file*, which a forked child shares with its parent. A child therefore closes all files
it inherited and never unlocks them: unlocking would take the lock from the parent. Implements "Locks" of
docs/specs/cache.md.
"""

from __future__ import annotations

import errno
import os
import struct
import sys
from contextlib import suppress
from pathlib import Path
from weakref import WeakSet

from warpdata.primitives.fork import register_after_fork

if sys.platform != "win32":
    import fcntl

__all__ = ["HAS_RANGE_LOCKS", "LockFile", "claim_file"]

HAS_RANGE_LOCKS = sys.platform == "linux" and hasattr(fcntl, "F_OFD_SETLK") and sys.maxsize > 2**32
"""Range locks of an open file, which Linux has. On other systems range locks belong to a process."""

_ATTEMPTS = 10
_NO_LOCKS = {errno.ENOSYS, errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EBADF}
"""Errors of file systems without `flock`. NFS answers EBADF for a file that is not open for writing."""
_FLOCK = "hhqqi4x"
"""`struct flock` of 64-bit Linux: type, whence, start, length, process id."""


class LockFile:
    """A file descriptor and the locks on it.

    The descriptor is closed when the last reference goes. A thread that still holds the object therefore never
    writes to a number that the system has given to another file.
    """

    __slots__ = ("__weakref__", "fd")

    def __init__(self, fd: int) -> None:
        self.fd = fd
        _open_files.add(self)

    @staticmethod
    def open(path: Path, flags: int) -> LockFile:
        return LockFile(os.open(path, flags | os.O_CLOEXEC, 0o666))

    def try_lock(self, *, exclusive: bool) -> bool:
        """Lock the whole file, or change the kind of lock. False: another open file has a conflicting lock.

        A failed change may lose the lock that was held.
        """
        if sys.platform == "win32":
            raise OSError(errno.ENOSYS, "this system has no flock")
        else:
            try:
                fcntl.flock(self.fd, (fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH) | fcntl.LOCK_NB)
            except OSError as error:
                if error.errno == errno.EWOULDBLOCK:
                    return False
                raise
            return True

    def unlock(self) -> None:
        """Release the lock of `try_lock`, also for copies of the descriptor in a forked child."""
        if sys.platform != "win32":
            with suppress(OSError):
                fcntl.flock(self.fd, fcntl.LOCK_UN)

    def lock_range(self, start: int, end: int) -> tuple[int, int] | None:
        """Lock the numbers `start … end - 1`. None: locked. Else the numbers that another open file has locked.

        The numbers need not be bytes of the file. A range locked by this open file does not conflict. Without range
        locks, nothing conflicts.
        """
        if sys.platform != "linux" or not HAS_RANGE_LOCKS:
            return None
        else:
            wanted = struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, start, end - start, 0)
            for _ in range(_ATTEMPTS):
                with suppress(BlockingIOError, PermissionError):
                    fcntl.fcntl(self.fd, fcntl.F_OFD_SETLK, wanted)
                    return None
                kind, _, first, count, _ = struct.unpack(_FLOCK, fcntl.fcntl(self.fd, fcntl.F_OFD_GETLK, wanted))
                if kind != fcntl.F_UNLCK:  # else the other lock has just ended
                    return max(start, first), min(end, first + count) if count else end
            return start, end

    def unlock_range(self, start: int, end: int) -> None:
        if sys.platform == "linux" and HAS_RANGE_LOCKS:
            with suppress(OSError):
                released = struct.pack(_FLOCK, fcntl.F_UNLCK, os.SEEK_SET, start, end - start, 0)
                fcntl.fcntl(self.fd, fcntl.F_OFD_SETLK, released)

    def is_at(self, path: Path) -> bool:
        """Return whether the path still names this file. A lock on a file without a name protects nothing."""
        try:
            named = path.stat()
        except FileNotFoundError:
            return False
        status = os.fstat(self.fd)
        return (named.st_ino, named.st_dev) == (status.st_ino, status.st_dev)

    def size_bytes(self) -> int:
        return os.fstat(self.fd).st_size

    def close(self) -> None:
        """Close the descriptor. A copy of it, such as a memory mapping, keeps the lock."""
        fd, self.fd = self.fd, -1
        if fd >= 0:
            os.close(fd)

    def __del__(self) -> None:
        with suppress(OSError):
            self.close()


def claim_file(path: Path, flags: int) -> LockFile | None:
    """Open the file and lock it for this process alone. None: another open file has the lock.

    The lock ends with the process. On a file system without locks, every claim succeeds.
    """
    for _ in range(_ATTEMPTS):
        file = LockFile.open(path, flags)
        try:
            if not file.try_lock(exclusive=True):
                file.close()
                return None
        except OSError as error:
            if error.errno not in _NO_LOCKS:
                file.close()
                raise
        if file.is_at(path):
            return file
        file.close()  # the last owner has just removed or replaced it
    return None


_open_files: WeakSet[LockFile] = WeakSet()


def _close_in_child() -> None:
    for file in [*_open_files]:
        with suppress(OSError):
            file.close()


register_after_fork(_close_in_child)
