"""Sets of bytes, as few ranges as possible. Pure."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator

from warpdata.storage import ByteRange

__all__ = ["Spans"]


class Spans:
    """Which bytes of a blob are there. Ranges that touch are one. Not safe to share between threads."""

    __slots__ = ("_ends", "_starts", "size_bytes")

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []
        self.size_bytes = 0

    def add(self, span: ByteRange) -> None:
        if span.size_bytes:
            self._splice(span, bisect_left(self._ends, span.start), bisect_right(self._starts, span.end), keep=True)

    def discard(self, span: ByteRange) -> None:
        if span.size_bytes:
            self._splice(span, bisect_right(self._ends, span.start), bisect_left(self._starts, span.end), keep=False)

    def covers(self, span: ByteRange) -> bool:
        if not span.size_bytes:
            return True
        at = bisect_right(self._starts, span.start) - 1
        return at >= 0 and self._ends[at] >= span.end

    def touches(self, span: ByteRange) -> bool:
        """Whether any byte of the range is in the set."""
        at = bisect_right(self._ends, span.start)
        return span.size_bytes > 0 and at < len(self._starts) and self._starts[at] < span.end

    def missing(self, span: ByteRange) -> list[ByteRange]:
        """What of the range is not in the set, in order."""
        out: list[ByteRange] = []
        at, position = bisect_right(self._ends, span.start), span.start
        while at < len(self._starts) and self._starts[at] < span.end:
            if self._starts[at] > position:
                out.append(ByteRange(position, self._starts[at]))
            position = max(position, self._ends[at])
            at += 1
        if position < span.end:
            out.append(ByteRange(position, span.end))
        return out

    def __iter__(self) -> Iterator[ByteRange]:
        return (ByteRange(start, end) for start, end in zip(self._starts, self._ends, strict=True))

    def prefix_end(self) -> int:
        """Up to where the bytes are there without a gap, from the first on."""
        return self._ends[0] if self._starts and self._starts[0] == 0 else 0

    def _splice(self, span: ByteRange, first: int, last: int, *, keep: bool) -> None:
        """Replace the ranges `first … last - 1`, which meet the span, by their union with it or their rest."""
        starts, ends = self._starts[first:last], self._ends[first:last]
        low, high = min([span.start, *starts[:1]]), max([span.end, *ends[-1:]])
        pairs = [(low, high)] if keep else [(low, span.start), (span.end, high)]
        pairs = [(start, end) for start, end in pairs if start < end]
        self.size_bytes += sum(end - start for start, end in pairs) - sum(ends) + sum(starts)
        self._starts[first:last] = [start for start, _ in pairs]
        self._ends[first:last] = [end for _, end in pairs]
