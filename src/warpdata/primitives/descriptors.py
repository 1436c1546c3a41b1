"""Bounds on open files for the whole process, from the limit that the system sets."""

from __future__ import annotations

import sys

__all__ = ["descriptor_share"]

if sys.platform != "win32":
    import resource


def descriptor_share(fraction: float, most: int) -> int:
    """Return a fraction of the soft limit of open files, at least 8 and at most `most`. One system call."""
    if sys.platform == "win32":
        return most
    else:
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        return most if soft == resource.RLIM_INFINITY else max(8, min(most, int(soft * fraction)))
