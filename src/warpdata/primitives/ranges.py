"""Half-open byte ranges, sets of them, and the requests that serve them. Pure.

A range is a pair `(start, end)`; functions accept plain pairs and return `ByteRange`. Coalescing implements
"Coalescing" of docs/specs/store.md.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from warpdata.errors import BadInputError

__all__ = ["ByteRange", "RangeRequest", "RangeSet", "check_ranges", "coalesce", "split_range", "split_reply"]


class ByteRange(NamedTuple):
    """Half-open: `start` is in, `end` is out."""

    start: int
    end: int

    @property
    def size_bytes(self) -> int:
        return self.end - self.start


class RangeSet:
    """A set of bytes, held as the fewest ranges. Empty ranges vanish. Not safe to share between threads."""

    __slots__ = ("_ends", "_starts", "size_bytes")

    def __init__(self, ranges: Iterable[tuple[int, int]] = ()) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []
        for start, end in sorted(ranges):
            if start >= end:
                continue
            if self._ends and start <= self._ends[-1]:
                self._ends[-1] = max(self._ends[-1], end)
            else:
                self._starts.append(start)
                self._ends.append(end)
        self.size_bytes = sum(self._ends) - sum(self._starts)

    def __iter__(self) -> Iterator[ByteRange]:
        return map(ByteRange, self._starts, self._ends)

    def __len__(self) -> int:
        """Return the number of ranges."""
        return len(self._starts)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, RangeSet):
            return NotImplemented
        return list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]  # mutable

    def __repr__(self) -> str:
        return f"RangeSet({[tuple(one) for one in self]})"

    def __or__(self, other: RangeSet) -> RangeSet:
        return RangeSet([*self, *other])

    def __sub__(self, other: RangeSet) -> RangeSet:
        return RangeSet(gap for one in self for gap in other.missing(one))

    def __and__(self, other: RangeSet) -> RangeSet:
        return RangeSet(part for one in self for part in other.present(one))

    def add(self, span: tuple[int, int]) -> None:
        if span[0] < span[1]:
            first, last = bisect_left(self._ends, span[0]), bisect_right(self._starts, span[1])
            self._splice(span, first, last, keep=True)

    def discard(self, span: tuple[int, int]) -> None:
        if span[0] < span[1]:
            first, last = bisect_right(self._ends, span[0]), bisect_left(self._starts, span[1])
            self._splice(span, first, last, keep=False)

    def covers(self, span: tuple[int, int]) -> bool:
        """Return whether every byte of the range is in the set."""
        start, end = span
        at = bisect_right(self._starts, start) - 1
        return start >= end or (at >= 0 and self._ends[at] >= end)

    def overlaps(self, span: tuple[int, int]) -> bool:
        """Return whether any byte of the range is in the set."""
        start, end = span
        at = bisect_right(self._ends, start)
        return start < end and at < len(self._starts) and self._starts[at] < end

    def present(self, span: tuple[int, int]) -> list[ByteRange]:
        """Return the parts of the range that are in the set, in order."""
        start, end = span
        at, out = bisect_right(self._ends, start), []
        while at < len(self._starts) and self._starts[at] < end and start < end:
            out.append(ByteRange(max(start, self._starts[at]), min(end, self._ends[at])))
            at += 1
        return out

    def missing(self, span: tuple[int, int]) -> list[ByteRange]:
        """Return the parts of the range that are not in the set, in order."""
        position, end = span
        out = []
        for held in self.present(span):
            if held.start > position:
                out.append(ByteRange(position, held.start))
            position = held.end
        if position < end:
            out.append(ByteRange(position, end))
        return out

    def prefix_end(self) -> int:
        """Return the first byte that is not in the set."""
        return self._ends[0] if self._starts and self._starts[0] == 0 else 0

    def _splice(self, span: tuple[int, int], first: int, last: int, *, keep: bool) -> None:
        """Replace the ranges `first … last - 1`, which meet the span, by their union with it or their rest."""
        starts, ends = self._starts[first:last], self._ends[first:last]
        low, high = min([span[0], *starts[:1]]), max([span[1], *ends[-1:]])
        pairs = [(low, high)] if keep else [(low, span[0]), (span[1], high)]
        pairs = [(start, end) for start, end in pairs if start < end]
        self.size_bytes += sum(end - start for start, end in pairs) - sum(ends) + sum(starts)
        self._starts[first:last] = [start for start, _ in pairs]
        self._ends[first:last] = [end for _, end in pairs]


@dataclass(frozen=True, slots=True)
class RangeRequest:
    """One read, and the wanted ranges that it serves, by position."""

    span: ByteRange
    serves: tuple[int, ...]


def coalesce(spans: Sequence[ByteRange], gap_bytes: int, *, max_bytes: int | None = None) -> list[RangeRequest]:
    """Merge ranges that overlap or are at most `gap_bytes` apart. Return the requests in offset order.

    Empty ranges get no request. No merge makes a request of more than `max_bytes`, so that requests for a
    long stretch can run in parallel.
    """
    check_ranges(spans)
    order = sorted((i for i, span in enumerate(spans) if span.size_bytes), key=lambda i: spans[i])
    merged: list[tuple[ByteRange, list[int]]] = []
    for index in order:
        span = spans[index]
        if merged and span.start - merged[-1][0].end <= gap_bytes:
            last, serves = merged[-1]
            union = ByteRange(last.start, max(last.end, span.end))
            if max_bytes is None or union == last or union.size_bytes <= max_bytes:
                serves.append(index)
                merged[-1] = (union, serves)
                continue
        merged.append((span, [index]))
    return [RangeRequest(span, tuple(serves)) for span, serves in merged]


def split_range(span: ByteRange, max_bytes: int) -> list[ByteRange]:
    """Split a range into the fewest parts of at most `max_bytes`, of nearly equal size."""
    count = max(1, -(-span.size_bytes // max_bytes))
    borders = [span.start + span.size_bytes * number // count for number in range(count + 1)]
    return [ByteRange(start, end) for start, end in pairwise(borders)]


def check_ranges(spans: Iterable[ByteRange]) -> None:
    """Raise `BadInputError` for a range that is negative or descending."""
    for start, end in spans:
        if not 0 <= start <= end:
            raise BadInputError(f"byte range {start}…{end} is not ascending")


def split_reply(
    spans: Sequence[ByteRange], requests: Sequence[RangeRequest], replies: Sequence[memoryview]
) -> list[memoryview]:
    """Cut the replies back into the wanted ranges, without copying."""
    out = [memoryview(b"")] * len(spans)
    for request, reply in zip(requests, replies, strict=True):
        for index in request.serves:
            start = spans[index].start - request.span.start
            out[index] = reply[start : start + spans[index].size_bytes]
    return out
