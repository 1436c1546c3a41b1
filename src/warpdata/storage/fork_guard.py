"""Whether the object-store library can work in this process.

It keeps threads of its own. A child that is forked after they were started does not have them, and its
first request would wait for ever; so it is refused instead.
"""

from __future__ import annotations

import os

from warpdata.errors import UnsupportedError

__all__ = ["note_use"]

_state = {"used": False, "orphaned": False}


def note_use(url: str) -> None:
    """Called before each request."""
    if _state["orphaned"]:
        raise UnsupportedError(
            f"{url} can not be read in a process that was forked after the parent had used an object store",
            hint="Start processes with 'forkserver' or 'spawn': DataLoader(..., multiprocessing_context='forkserver').",
        )
    _state["used"] = True


def _after_fork() -> None:
    _state["orphaned"] = _state["used"]


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
