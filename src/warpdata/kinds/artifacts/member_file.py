"""A member as a seekable file. Large ones are fetched a chunk at a time, each chunk verified."""

from __future__ import annotations

import io
from bisect import bisect_right
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import BinaryIO, cast

from warpdata.kinds.artifacts.member_fetch import MemberRange

__all__ = ["open_pieces"]


def open_pieces(pieces: Sequence[MemberRange], fetch: Callable[[Sequence[MemberRange]], list[bytes]]) -> BinaryIO:
    """`pieces` follow one another. One piece is read at once; of several, one is held at a time."""
    if len(pieces) == 1:
        return io.BytesIO(fetch(pieces)[0])
    return cast(BinaryIO, io.BufferedReader(_PiecesFile(pieces, fetch)))


class _PiecesFile(io.RawIOBase):
    def __init__(self, pieces: Sequence[MemberRange], fetch: Callable[[Sequence[MemberRange]], list[bytes]]) -> None:
        super().__init__()
        self._pieces = pieces
        self._fetch = fetch
        self._starts = [0, *accumulate(piece.size_bytes for piece in pieces)]
        self._position = 0
        self._held = -1
        self._content = b""

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._starts[-1]}[whence]
        if base + offset < 0:
            raise ValueError(f"cannot seek to {base + offset}")
        self._position = base + offset
        return self._position

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        if self._position >= self._starts[-1] or not len(buffer):
            return 0
        number = bisect_right(self._starts, self._position) - 1
        if number != self._held:
            self._content, self._held = self._fetch([self._pieces[number]])[0], number
        start = self._position - self._starts[number]
        data = self._content[start : start + len(buffer)]
        buffer[: len(data)] = data
        self._position += len(data)
        return len(data)
