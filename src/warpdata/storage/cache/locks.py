"""Locks on files that all processes of a machine respect, and that vanish with the process.

A lock belongs to an *open file*, which a forked child shares with its parent. So a child closes all
that it inherited, at once, and never unlocks any of it: that would unlock the parent's. Implements
"Locks" of docs/specs/cache.md.
"""

from __future__ import annotations

import errno
import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import Protocol
from weakref import WeakSet

if sys.platform != "win32":
    import fcntl

__all__ = ["Handle", "register_after_fork"]


class Handle:
    """Owns a file descriptor and the lock on it.

    Whoever still works with the file holds the handle, and the last one to let go closes it. So a number
    that the system has given to another file in the meantime is never written to.
    """

    __slots__ = ("__weakref__", "fd")

    def __init__(self, fd: int) -> None:
        self.fd = fd
        _handles.add(self)

    @staticmethod
    def open(path: Path, flags: int) -> Handle:
        return Handle(os.open(path, flags | os.O_CLOEXEC, 0o666))

    def try_lock(self, *, exclusive: bool) -> bool:
        """False when somebody else's lock is in the way. Changes the kind of a lock that is held."""
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
        """Also for copies of the descriptor that a child may have been forked with."""
        if sys.platform != "win32":
            with suppress(OSError):
                fcntl.flock(self.fd, fcntl.LOCK_UN)

    def is_at(self, path: Path) -> bool:
        """Whether the path still names this very file. A lock on a file that lost its name protects nothing."""
        try:
            there = path.stat()
        except FileNotFoundError:
            return False
        here = os.fstat(self.fd)
        return (there.st_ino, there.st_dev) == (here.st_ino, here.st_dev)

    def size_bytes(self) -> int:
        return os.fstat(self.fd).st_size

    def close(self) -> None:
        """Leaves the lock to whoever has a copy of the descriptor, such as a memory mapping."""
        fd, self.fd = self.fd, -1
        if fd >= 0:
            os.close(fd)

    def __del__(self) -> None:
        with suppress(OSError):
            self.close()


class Forkable(Protocol):
    def after_fork(self) -> None:
        """Called in the child, which has no thread but the one that forked: forget threads and locks."""
        ...


_handles: WeakSet[Handle] = WeakSet()
_forkables: WeakSet[Forkable] = WeakSet()


def register_after_fork(who: Forkable) -> None:
    """Have `who.after_fork()` called in each child, as long as it lives."""
    _forkables.add(who)


def _after_fork_in_child() -> None:
    for handle in [*_handles]:
        with suppress(OSError):
            handle.close()
    for who in [*_forkables]:
        who.after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
