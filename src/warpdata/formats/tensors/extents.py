"""Which canonical bytes are at hand, and in which source. Pure values.

A whole file is one extent; a folder of files has one for each tensor; a replica that holds parts of an
artifact has as many as it has parts. Implements "Extents" of docs/specs/tensors.md.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from warpdata.errors import BadInputError
from warpdata.limits import MAX_TENSOR_SPACE_BYTES

__all__ = ["Extent", "Extents", "merge_ranges", "subtract_ranges"]


@dataclass(frozen=True, slots=True, order=True)
class Extent:
    """Canonical bytes `start` to `end` lie in source number `source`, from `offset` on."""

    start: int
    end: int
    source: int
    offset: int


class Extents:
    """Which canonical bytes are here, and where. Extents do not overlap; neighbours that continue are joined."""

    __slots__ = ("_places", "_starts", "parts")

    def __init__(self, parts: Sequence[Extent]) -> None:
        joined: list[Extent] = []
        for part in sorted(part for part in parts if part.end > part.start):
            last = joined[-1] if joined else None
            if last is not None and part.start < last.end:
                raise BadInputError(f"extents {last} and {part} overlap")
            follows = last is not None and part.start == last.end and part.source == last.source
            if last is not None and follows and part.offset - last.offset == part.start - last.start:
                joined[-1] = replace(last, end=part.end)
            else:
                joined.append(part)
        self.parts: tuple[Extent, ...] = tuple(joined)
        self._starts = [part.start for part in joined]
        self._places = _places(joined)

    def holding(self, start: int, end: int) -> Extent | None:
        """The extent that holds all of a range, if one does."""
        at = bisect_right(self._starts, start) - 1
        return self.parts[at] if at >= 0 and self.parts[at].end >= end else None

    def has(self, source: int, start: int, end: int) -> bool:
        """Whether a range of a source, in its own bytes, is known to be there."""
        places = self._places.get(source, [])
        at = bisect_right(places, (start, MAX_TENSOR_SPACE_BYTES)) - 1
        return at >= 0 and places[at][1] >= end

    def pieces(self, start: int, end: int) -> Iterator[tuple[int, int, Extent | None]]:
        """A range cut where extents begin and end; `None` where nothing is."""
        at = max(0, bisect_right(self._starts, start) - 1)
        while start < end:
            while at < len(self.parts) and self.parts[at].end <= start:
                at += 1
            part = self.parts[at] if at < len(self.parts) else None
            if part is None or part.start >= end:
                yield start, end, None
                return
            if part.start > start:
                yield start, part.start, None
                start = part.start
            stop = min(end, part.end)
            yield start, stop, part
            start = stop


def merge_ranges(ranges: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Sorted; what overlaps or touches becomes one. Empty ranges vanish."""
    out: list[tuple[int, int]] = []
    for start, end in sorted(ranges):
        if start >= end:
            continue
        if out and start <= out[-1][1]:
            out[-1] = (out[-1][0], max(out[-1][1], end))
        else:
            out.append((start, end))
    return out


def subtract_ranges(wanted: Sequence[tuple[int, int]], had: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """What of `wanted` is not in `had`. Both as `merge_ranges` leaves them."""
    out: list[tuple[int, int]] = []
    position = 0
    for first, end in wanted:
        start = first
        while position < len(had) and had[position][1] <= start:
            position += 1
        at = position
        while at < len(had) and had[at][0] < end:
            if had[at][0] > start:
                out.append((start, had[at][0]))
            start = max(start, had[at][1])
            at += 1
        if start < end:
            out.append((start, end))
    return out


def _places(parts: Sequence[Extent]) -> dict[int, list[tuple[int, int]]]:
    out: dict[int, list[tuple[int, int]]] = {}
    for part in parts:
        out.setdefault(part.source, []).append((part.offset, part.offset + part.end - part.start))
    return {source: merge_ranges(ranges) for source, ranges in out.items()}
