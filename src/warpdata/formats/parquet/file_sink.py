"""New Parquet files: in memory while they are small, then on disk.

A small commit writes a few kilobytes. Making a file for them in a staging directory, reading it back and removing both
takes longer than all the rest of staging, because each step waits for the journal of the file system.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Self

from warpdata.limits import KIB

__all__ = ["SPOOLED_BYTES", "FileSink", "WrittenFile"]

SPOOLED_BYTES = 64 * KIB
"""Files of up to this size stay in memory. It is the smallest size tier of shards."""


@dataclass(frozen=True, slots=True)
class WrittenFile:
    """A new Parquet file. With `data`, it is in memory, and `path` only names it."""

    path: Path
    data: bytes | None = None

    @property
    def size_bytes(self) -> int:
        return self.path.stat().st_size if self.data is None else len(self.data)


class FileSink:
    """A new file, in memory while it has at most `memory_bytes`.

    It keeps its first error instead of raising it, and ignores writes from then on: Arrow ends the process if a file
    fails between two pages of a column that is cut by content.
    """

    def __init__(self, find_directory: Callable[[], Path], name: str, memory_bytes: int = 0) -> None:
        self._find_directory = find_directory
        self._name = name
        self._memory_bytes = memory_bytes
        self._held = bytearray()
        self._path: Path | None = None
        self._file: BinaryIO | None = None
        self._error: OSError | None = None
        self.closed = False
        if not memory_bytes:
            self._open()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._file is not None:
            self._file.close()

    def write(self, data: bytes) -> int:
        view = memoryview(data)
        if self._file is None and len(self._held) + view.nbytes <= self._memory_bytes:
            self._held += view
            return len(data)
        try:
            if self._error is None and self._file is None:
                self._open()
                self._write(memoryview(bytes(self._held)))
                self._held.clear()
            self._write(view)
        except OSError as error:
            self._error = error
        return len(data)

    def written(self) -> WrittenFile:
        """Return the complete file."""
        return WrittenFile(Path(self._name), bytes(self._held)) if self._path is None else WrittenFile(self._path)

    def check(self) -> None:
        """Raise the first error of the file."""
        if self._error is not None:
            raise self._error

    def flush(self) -> None:
        """The file has no buffer."""

    def close(self) -> None:
        self.closed = True

    def _open(self) -> None:
        self._path = self._find_directory() / self._name
        self._file = self._path.open("wb", buffering=0)

    def _write(self, view: memoryview) -> None:
        while self._error is None and self._file is not None and view.nbytes:
            view = view[self._file.write(view) :]
