"""Failover: bytes that one source fails to deliver are read from the next source that has them, and verified.

A read goes to the source that its plan names. If that source fails or is in back-off, the read is cut into windows of
one leaf each. Each window is read from any source that has all of it, or put together from several sources. Only when
every way has failed is there an error, which lists what each source did. Implements "Failover" of
docs/specs/tensors.md.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

from warpdata.errors import CorruptError, StorageError, StoreUnavailableError, WarpError
from warpdata.formats.tensors.extents import Extent, ExtentMap
from warpdata.formats.tensors.hashing import leaf_size
from warpdata.formats.tensors.index import TensorIndex
from warpdata.formats.tensors.leaves import LeafDigests
from warpdata.formats.tensors.reads import ReadRequest
from warpdata.formats.tensors.source_health import SourceHealth, error_text
from warpdata.formats.tensors.strided_copy import StridedCopy, clip_copy, copy_strided, iter_copy_blocks
from warpdata.primitives.ranges import RangeSet
from warpdata.storage import InvalidatableSource, RangeSource, retry_corrupt

__all__ = ["AssembledSource", "Failover", "SourcePlace", "assign_extents"]

_FAILURES = (WarpError, OSError)


@dataclass(frozen=True, slots=True, eq=False)
class SourcePlace:
    """One place that holds bytes of the artifact: a file, a directory, a peer or a store, and its record.

    `extents` name sources by their number in the artifact. A place may consist of several sources.
    """

    health: SourceHealth
    extents: ExtentMap
    available: RangeSet = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "available", RangeSet((part.start, part.end) for part in self.extents.parts))


class _Window(NamedTuple):
    """A part of a request: canonical bytes inside of one leaf, and the copies that take bytes from there."""

    start: int
    end: int
    leaf: int
    parts: tuple[StridedCopy, ...]


class Failover:
    """All places of one artifact, in the order of the policy. Safe to share between threads."""

    def __init__(
        self,
        index: TensorIndex,
        sources: Sequence[RangeSource],
        places: Sequence[SourcePlace],
        *,
        extents: ExtentMap,
        leaves: tuple[bytes, ...] | None = None,
        closed: Sequence[SourceHealth] = (),
    ) -> None:
        """`extents` are those that requests are planned with; `closed` the sources that could not be opened."""
        self.places = tuple(places)
        self._planned = _SourceMap(extents)
        self._union = RangeSet(span for place in places for span in place.available)
        self.closed = tuple(closed)
        self.has_alternatives = len(self.places) > 1
        self._sources = tuple(sources)
        self._leaves = None if leaves is None else LeafDigests(index, leaves)
        self._leaf_bytes = leaf_size(index.total_size)
        self._total = index.total_size
        self._storages = RangeSet((entry.offset, entry.offset + entry.size) for entry in index if entry.size)
        self._place_of = {part.source: place for place in self.places for part in place.extents.parts}

    def deliver(
        self,
        read: ReadRequest,
        attempt: Callable[[], None],
        destination: Callable[[StridedCopy], memoryview],
        *,
        verify: bool,
    ) -> None:
        """Call `attempt`, which carries out a request. If it fails, deliver the bytes from other sources.

        With `verify`, the request consists of whole leaves, and no byte is taken from another source before its leaf
        is verified.
        """
        place = self._place_of.get(read.source)
        error: Exception | None = None
        if place is None or not self.has_alternatives or place.health.admit():
            error = _attempt(place, attempt, read.size)
            if error is None:
                return
        windows = list(self._windows(read))
        if not self.has_alternatives and place is not None and error is not None:
            raise self._error(windows[0].start, windows[-1].end, {place: error})
        # A request of several windows may have failed because of one, so its source may still serve the others.
        failed = {place: error} if place is not None and error is not None and len(windows) == 1 else {}
        for window in windows:
            data = self._recover(window, dict(failed), verify=verify)
            for part in window.parts:
                copy_strided(part, data, window.start, destination(part), part.target)

    def read_leaf(self, leaf: int) -> memoryview:
        """Return one leaf from any source, verified."""
        assert self._leaves is not None, "leaves are verified by their digests"
        start, end = self._leaves.span(leaf)
        return self._recover(_Window(start, end, leaf, ()), {}, verify=True)

    def assemble(self, start: int, end: int) -> memoryview:
        """Return canonical bytes from any sources, each byte from the first that delivers it. Not verified."""
        failed: dict[SourcePlace, Exception] = {}
        data = self._read(start, end, self._stored(start, end), self._ordered(), failed)
        if data is None:
            raise self._error(start, end, failed)
        return data

    def _windows(self, read: ReadRequest) -> Iterator[_Window]:
        """Cut a request at the borders of leaves, in canonical bytes."""
        by_leaf: dict[int, list[StridedCopy]] = {}
        for part in read.parts:
            if read.leaves:
                pieces: Iterable[StridedCopy] = [part.moved(read.leaves.start * self._leaf_bytes - read.start)]
            else:
                pieces = self._planned.to_canonical(read.source, part)
            for whole in pieces:
                last = -(-(whole.source + whole.span) // self._leaf_bytes)
                for leaf in range(whole.source // self._leaf_bytes, last):
                    first = leaf * self._leaf_bytes
                    by_leaf.setdefault(leaf, []).extend(clip_copy(whole, first, first + self._leaf_bytes))
        for leaf, parts in by_leaf.items():
            if not parts:
                continue
            if read.leaves:
                start, end = leaf * self._leaf_bytes, min(self._total, (leaf + 1) * self._leaf_bytes)
            else:
                start, end = min(part.source for part in parts), max(part.source + part.span for part in parts)
            yield _Window(start, end, leaf, tuple(parts))

    def _recover(self, window: _Window, failed: dict[SourcePlace, Exception], *, verify: bool) -> memoryview:
        """Return the bytes of a window from the first choice of sources that delivers it."""
        needed = self._needed(window, verify=verify)
        for places in self._choices(needed, failed):

            def fetch(places: Sequence[SourcePlace] = places) -> memoryview | None:
                data = self._read(window.start, window.end, needed, places, failed)
                if data is not None and verify and self._leaves is not None:
                    self._leaves.check(range(window.leaf, window.leaf + 1), data)
                return data

            def invalidate(places: Sequence[SourcePlace] = places) -> bool:
                return self._invalidate(window, places)

            try:
                data = retry_corrupt(fetch, invalidate, CorruptError)
            except CorruptError as error:
                for place in places:
                    failed.setdefault(place, error)
                if len(places) == 1:
                    places[0].health.fail(error)
                continue
            if data is not None:
                return data
        raise self._error(window.start, window.end, failed)

    def _needed(self, window: _Window, *, verify: bool) -> RangeSet:
        """Return the bytes to read: all of the window, or only those that are kept if the rest is missing."""
        whole = self._stored(window.start, window.end)
        if verify or all(self._union.covers(span) for span in whole):
            return whole
        blocks = (block for part in window.parts for block in iter_copy_blocks(part))
        return RangeSet((start, start + size) for start, _, size in blocks)

    def _stored(self, start: int, end: int) -> RangeSet:
        """Return a range without its padding."""
        return RangeSet(self._storages.present((start, end)))

    def _choices(self, needed: RangeSet, failed: dict[SourcePlace, Exception]) -> Iterator[Sequence[SourcePlace]]:
        """Yield the places to read from: one that has everything, then several together, then without one of them."""
        if not needed:  # padding alone, which is zero
            yield []
            return
        holding = [place for place in self._ordered() if any(place.available.overlaps(span) for span in needed)]
        complete = [place for place in holding if all(place.available.covers(span) for span in needed)]
        yield from ([place] for place in complete if place not in failed)
        if len(complete) == len(holding):
            return
        # A place that did not answer is not asked again. One with corrupt bytes may have other, valid ones.
        usable = [place for place in holding if isinstance(failed.get(place, CorruptError("")), CorruptError)]
        yield usable
        for skipped in usable:
            yield [place for place in usable if place is not skipped]

    def _ordered(self) -> list[SourcePlace]:
        """Return the places in policy order, those in back-off last."""
        return sorted(self.places, key=lambda place: not place.health.is_available())

    def _read(
        self,
        start: int,
        end: int,
        needed: RangeSet,
        places: Sequence[SourcePlace],
        failed: dict[SourcePlace, Exception],
    ) -> memoryview | None:
        """Return bytes `start` to `end`, with zeros where nothing is needed; None if needed bytes stay missing."""
        out = memoryview(bytearray(end - start))
        missing = RangeSet(needed)
        for place in places:
            pieces = [piece for span in missing for piece in place.extents.pieces(span.start, span.end)]
            for first, last, home in pieces:
                if home is None:
                    continue
                read = partial(self._read_piece, home, first, last, out[first - start : last - start])
                error = _attempt(place, read, last - first)
                if error is None:
                    missing.discard((first, last))
                else:
                    failed[place] = error
        return None if missing else out

    def _read_piece(self, home: Extent, first: int, last: int, target: memoryview) -> None:
        offset = first - home.start + home.offset
        data = memoryview(self._sources[home.source].read_range(offset, offset + last - first)).cast("B")
        if len(data) != last - first:
            raise StorageError(f"{len(data)} bytes arrived for the range {first}…{last}")
        target[:] = data

    def _invalidate(self, window: _Window, places: Sequence[SourcePlace]) -> bool:
        """Drop cached copies of a window that failed verification."""
        dropped = False
        for place in places:
            for first, last, home in place.extents.pieces(window.start, window.end):
                source: Any = None if home is None else self._sources[home.source]
                if home is not None and isinstance(source, InvalidatableSource):
                    offset = first - home.start + home.offset
                    dropped |= source.invalidate(offset, offset + last - first)
        return dropped

    def unopened(self) -> list[str]:
        """Say which sources could not be opened, and why."""
        return [f"{health.kind} {health.name}: not opened: {health.stats().last_error}" for health in self.closed]

    def _error(self, start: int, end: int, failed: dict[SourcePlace, Exception]) -> Exception:
        """Return one error that lists what every source did."""
        if len(failed) == 1 and len(self.places) == 1 and not self.closed:
            return next(iter(failed.values()))
        found = [
            f"{place.health.kind} {place.health.name}: "
            + (error_text(failed[place]) if place in failed else "does not have these bytes")
            for place in self.places
        ]
        found += self.unopened()
        message = f"bytes {start}…{end} cannot be read from any of {len(found)} sources: {'; '.join(found)}"
        hint = "Add another source. `source_stats()` counts the failures of each."
        if failed and all(isinstance(error, CorruptError) for error in failed.values()):
            return CorruptError(message, problems=tuple(found), hint=hint)
        return StoreUnavailableError(message, hint=hint)


def assign_extents(index: TensorIndex, places: Sequence[SourcePlace], *, by_leaf: bool, assembled: int) -> ExtentMap:
    """Assign each byte to the first place that has it.

    With `by_leaf`, a leaf goes to the first place that has all of it, because a leaf is verified as a whole. A leaf
    that only several places together have goes to the source number `assembled`. Bytes of incomplete leaves are
    assigned one by one.
    """
    total = index.total_size
    taken = RangeSet()
    parts: list[Extent] = []

    def take(place: SourcePlace, *, whole: bool) -> None:
        leaf = leaf_size(total)
        for extent in place.extents.parts:
            start, end = extent.start, extent.end
            if whole:
                start, end = -(-start // leaf) * leaf, end if end == total else end // leaf * leaf
            for first, last in taken.missing((start, end)) if start < end else ():
                parts.append(Extent(first, last, extent.source, extent.offset + first - extent.start))
            taken.add((start, end))

    if by_leaf:
        for place in places:
            take(place, whole=True)
        for start, end in _shared_leaves(index, places, taken):
            parts.append(Extent(start, end, assembled, start))
            taken.add((start, end))
    for place in places:
        take(place, whole=False)
    return ExtentMap(parts)


def _shared_leaves(index: TensorIndex, places: Sequence[SourcePlace], taken: RangeSet) -> list[tuple[int, int]]:
    """Return leaves that no place has whole, but all places together. Padding is never missing."""
    total, leaf = index.total_size, leaf_size(index.total_size)
    storages = RangeSet((entry.offset, entry.offset + entry.size) for entry in index if entry.size)
    missing = storages - RangeSet(span for place in places for span in place.available)
    spans = ((start, min(total, start + leaf)) for start in range(0, total, leaf))
    return [span for span in spans if not taken.covers(span) and not missing.overlaps(span)]


class _SourceMap:
    """Positions in the canonical ByteSpace of bytes of sources: the inverse of extents."""

    def __init__(self, extents: ExtentMap) -> None:
        self._parts: dict[int, list[Extent]] = {}
        for part in sorted(extents.parts, key=lambda part: part.offset):
            self._parts.setdefault(part.source, []).append(part)
        self._offsets = {source: [part.offset for part in parts] for source, parts in self._parts.items()}

    def to_canonical(self, source: int, copy: StridedCopy) -> Iterator[StridedCopy]:
        """Yield a copy with canonical source positions, cut where extents end."""
        parts, offsets = self._parts[source], self._offsets[source]
        for part in parts[
            max(0, bisect_right(offsets, copy.source) - 1) : bisect_left(offsets, copy.source + copy.span)
        ]:
            for piece in clip_copy(copy, part.offset, part.offset + part.end - part.start):
                yield piece.moved(part.start - part.offset)


class AssembledSource:
    """The canonical bytes of an artifact, each from any source that has it. For leaves that no source has whole."""

    def __init__(self, failover: Failover, size_bytes: int, concurrency: int) -> None:
        self._failover = failover
        self.size_bytes = size_bytes
        self.concurrency = concurrency

    def read_range(self, start: int, end: int) -> memoryview:
        return self._failover.assemble(start, end)


def _attempt(place: SourcePlace | None, read: Callable[[], None], size_bytes: int) -> Exception | None:
    """Call `read`, count it, and return its error, if any."""
    try:
        read()
    except _FAILURES as error:
        if place is not None:
            place.health.fail(error)
        return error
    if place is not None:
        place.health.succeed(size_bytes)
    return None
