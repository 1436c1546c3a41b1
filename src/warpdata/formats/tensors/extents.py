"""Extents: the canonical bytes that sources hold, and coverage of a plan by them. Pure.

A canonical file is one extent, a directory of safetensors files has one per tensor, and a partial file one per
range. Missing bytes are reported before a target is written; nothing is filled in. Implements "Extents" and
"Coverage" of docs/specs/tensors.md.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from warpdata.errors import BadInputError, PartialCoverageDetail, PartialCoverageError
from warpdata.formats.tensors.plan import Contiguous, DataRun, iter_blocks
from warpdata.primitives.ranges import RangeSet

__all__ = ["ByteSpace", "Extent", "ExtentMap", "ViewRecord", "check_coverage", "coverage_error", "missing_ranges"]

_MAX_REPORTED_RANGES = 10_000


@dataclass(frozen=True, slots=True, order=True)
class Extent:
    """Canonical bytes `start` to `end` are in source number `source`, from `offset` on."""

    start: int
    end: int
    source: int
    offset: int


@dataclass(frozen=True, slots=True)
class ByteSpace:
    """A ByteSpace by its kind, `canonical` or `view`, and its id. Every offset belongs to one."""

    kind: str
    id: str


@dataclass(frozen=True, slots=True)
class ViewRecord:
    """The view whose bytes a view file holds: the index multihash of its artifact, and the id of its ByteSpace."""

    artifact_index: str
    space_id: str


class ExtentMap:
    """The available canonical bytes. Extents do not overlap; neighbours that continue each other are joined."""

    __slots__ = ("_source_ranges", "_starts", "parts")

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
        self._source_ranges = _source_ranges(joined)

    def __repr__(self) -> str:
        return f"ExtentMap({len(self.parts)} extents, {sum(part.end - part.start for part in self.parts):,} bytes)"

    def holding(self, start: int, end: int) -> Extent | None:
        """Return the extent that holds all of a range, if one does."""
        at = bisect_right(self._starts, start) - 1
        return self.parts[at] if at >= 0 and self.parts[at].end >= end else None

    def has(self, source: int, start: int, end: int) -> bool:
        """Return whether a source holds a range, in bytes of the source."""
        ranges = self._source_ranges.get(source)
        return ranges is not None and ranges.covers((start, end))

    def pieces(self, start: int, end: int) -> Iterator[tuple[int, int, Extent | None]]:
        """Yield a range, cut where extents begin and end; None for bytes that are missing."""
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

    def missing(self, start: int, end: int) -> list[tuple[int, int]]:
        """Return the parts of a range that no source holds."""
        return [(first, last) for first, last, part in self.pieces(start, end) if part is None]


def check_coverage(runs: Iterable[DataRun], extents: ExtentMap, space: ByteSpace, unopened: Sequence[str] = ()) -> None:
    """Raise `PartialCoverageError` with the exact missing ranges, unless every byte is available.

    `unopened` says which sources could not be opened, and why.
    """
    missing = missing_ranges(runs, extents)
    if missing:
        raise coverage_error(missing, space, unopened)


def missing_ranges(runs: Iterable[DataRun], extents: ExtentMap) -> RangeSet:
    """Return the bytes of runs that no source holds."""

    def parts() -> Iterator[tuple[int, int]]:
        for run in runs:
            span = run.size if isinstance(run, Contiguous) else run.span
            if extents.holding(run.source, run.source + span) is None:
                for source, _, size in iter_blocks(run):
                    yield from extents.missing(source, source + size)

    return RangeSet(parts())


def coverage_error(missing: RangeSet, space: ByteSpace, unopened: Sequence[str] = ()) -> PartialCoverageError:
    """Return the error for missing bytes. It carries at most 10,000 ranges; the message counts all."""
    ranges = list(missing)
    shown = tuple((span.start, span.size_bytes) for span in ranges[:_MAX_REPORTED_RANGES])
    return PartialCoverageError(
        f"{missing.size_bytes} bytes in {len(ranges)} ranges of the {space.kind} ByteSpace are missing; "
        f"the first is {'; '.join([f'{ranges[0].start}…{ranges[0].end}', *unopened])}",
        detail=PartialCoverageDetail(space.kind, space.id, shown),
        hint="Add a source that has these bytes.",
    )


def _source_ranges(parts: Sequence[Extent]) -> dict[int, RangeSet]:
    out: dict[int, list[tuple[int, int]]] = {}
    for part in parts:
        out.setdefault(part.source, []).append((part.offset, part.offset + part.end - part.start))
    return {source: RangeSet(ranges) for source, ranges in out.items()}
