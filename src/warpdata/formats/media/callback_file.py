"""A binary file that a C library reads through callbacks, with its failures kept for the caller.

Libraries such as FFmpeg swallow exceptions of their callbacks. `CallbackFile.decoding` raises them afterwards.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import BinaryIO, TypeAlias

from warpdata.errors import MediaDecodeError, WarpError

__all__ = ["CallbackFile", "Reserve", "describe_error", "reserve_nothing"]

Reserve: TypeAlias = Callable[[int], None]
"""Takes the bytes that a decoder is about to allocate, and raises if these are too many."""


class CallbackFile:
    """A file whose failures are stored, and raised on the other side of the library.

    It holds its own position: a seek outside the file, read from damaged bytes, is a failure of the library and
    not of the file. It has no `name`, because the libraries would trust the suffix.
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
        except BaseException as error:  # noqa: BLE001 - `decoding` raises it
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
        """Raise a failure of the file unchanged, and a failure of the library as `MediaDecodeError`."""
        try:
            yield
        except Exception as error:
            self._raise_failure()
            if isinstance(error, WarpError | MemoryError):
                raise
            raise MediaDecodeError(f"{self.member} cannot be decoded: {describe_error(error)}") from error
        self._raise_failure()

    def _raise_failure(self) -> None:
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure


def reserve_nothing(_size_bytes: int) -> None:
    """Allow every allocation within the limits of the format."""


def describe_error(error: Exception) -> str:
    """Return the message of an exception, or its type if it has no message."""
    return str(getattr(error, "strerror", None) or error or type(error).__name__)
