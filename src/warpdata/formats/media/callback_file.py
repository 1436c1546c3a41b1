"""A file that is read by a C library through callbacks, and what becomes of its failures.

Knows no library: whoever hands the file to one puts `decoding` around the call.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO

from warpdata.errors import MediaDecodeError, WarpError

__all__ = ["WatchedFile", "reason_of"]


class WatchedFile:
    """A file whose failures are kept and raised later: C libraries swallow what their callbacks raise.

    It holds its own position, so that a place that can not be sought, read from damaged bytes, is the
    library's failure and not the file's. It has no `name`: the libraries would trust its ending.
    """

    def __init__(self, file: BinaryIO, member: str) -> None:
        self.member = member
        self._file = file
        self._size = file.seek(0, io.SEEK_END)
        self._at = 0
        self._failure: BaseException | None = None

    def read(self, size: int = -1, /) -> bytes:
        if self._failure is not None:
            return b""
        try:
            self._file.seek(self._at)
            data = self._file.read(size)
        except BaseException as error:  # noqa: BLE001 - raised by `decoding`, on the other side of the library
            self._failure = error
            return b""
        self._at += len(data)
        return data

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        if at < 0:
            return -1
        self._at = at
        return at

    def tell(self) -> int:
        return self._at

    @contextmanager
    def decoding(self) -> Iterator[None]:
        """A failure of the file is raised as it was, one of the library as `MediaDecodeError`."""
        try:
            yield
        except Exception as error:
            self._raise_failure()
            if isinstance(error, WarpError | MemoryError):
                raise
            raise MediaDecodeError(f"{self.member} can not be decoded: {reason_of(error)}") from error
        self._raise_failure()

    def _raise_failure(self) -> None:
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure


def reason_of(error: Exception) -> str:
    """In words, also where an exception has none."""
    return str(getattr(error, "strerror", None) or error or type(error).__name__)
