"""Reads that are verified, and repeated once if a cached copy was corrupt.

A cache below may hold a corrupt copy of a blob that is valid in the store. So bytes that fail verification are
read a second time if dropping a cached copy may help.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from warpdata.errors import CorruptError
from warpdata.storage.types import ByteRange, Reader

__all__ = ["read_verified", "retry_corrupt"]

T = TypeVar("T")


def read_verified(reader: Reader, key: str, span: ByteRange, check: Callable[[memoryview], T]) -> T:
    """Read a range and return `check(data)`, which raises a `CorruptError` if the bytes are wrong.

    If it does, and a cached copy could be dropped, the range is read and checked once more. An error of the read
    itself is never retried.
    """
    data = reader.read_range(key, span)
    try:
        return check(data)
    except CorruptError:
        if not reader.invalidate(key):
            raise
    return check(reader.read_range(key, span))


def retry_corrupt(
    read: Callable[[], T],
    invalidate: Callable[[], bool],
    errors: type[Exception] | tuple[type[Exception], ...] = CorruptError,
) -> T:
    """Return `read()`. If it raises one of the errors and `invalidate()` returns True, return a second `read()`.

    For reads of several ranges, and for sources that are not a `Reader`.
    """
    try:
        return read()
    except errors:
        if not invalidate():
            raise
    return read()
