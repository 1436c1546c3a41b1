"""A pause of Python's cyclic garbage collector, for code that makes many objects without cycles."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["gc_paused"]


@contextmanager
def gc_paused() -> Iterator[None]:
    """Do not look for cycles inside of the block, which would visit all its new objects again and again.

    Reference counts free objects as always. A collector that is off stays off.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
