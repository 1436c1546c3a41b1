"""Verified reads: requests of whole TreeHash leaves, so that every leaf can be hashed.

A leaf is hashed in the same memory that its bytes are taken from. A leaf that a target receives in one piece can be
hashed in the target, which lets a device verify it. Implements "Verification" of docs/specs/tensors.md.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from warpdata.errors import CorruptError, UnsupportedError
from warpdata.formats.tensors.extents import ByteSpace, Extent, ExtentMap, coverage_error
from warpdata.formats.tensors.hashing import leaf_size
from warpdata.formats.tensors.index import TensorIndex
from warpdata.formats.tensors.plan import DataRun
from warpdata.formats.tensors.reads import Choice, ReadCost, ReadPlan, ReadRequest
from warpdata.formats.tensors.strided_copy import StridedCopy, clip_copy, copy_of
from warpdata.primitives.ranges import RangeSet

__all__ = ["LeafDigests", "plan_leaf_reads"]


@dataclass(frozen=True, slots=True)
class LeafDigests:
    """The leaf digests of an artifact, and the bytes that each of them covers."""

    index: TensorIndex
    digests: tuple[bytes, ...] = field(repr=False)
    size: int = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "size", leaf_size(self.index.total_size))

    def span(self, leaf: int) -> tuple[int, int]:
        return leaf * self.size, min(self.index.total_size, (leaf + 1) * self.size)

    def names(self, start: int, end: int) -> tuple[str, ...]:
        """Return the tensors with bytes in a range."""
        return tuple(e.name for e in self.index if e.size and e.offset < end and e.offset + e.size > start)

    def check(self, leaves: range, data: memoryview) -> None:
        """Check leaves; `data` holds exactly their bytes."""
        first = self.span(leaves.start)[0]
        for leaf in leaves:
            start, end = self.span(leaf)
            self.compare(leaf, hashlib.sha256(data[start - first : end - first]).digest())

    def compare(self, leaf: int, digest: bytes) -> None:
        """Raise `CorruptError` with the range and its tensors if the digest of a leaf differs."""
        if digest == self.digests[leaf]:
            return
        start, end = self.span(leaf)
        names = self.names(start, end)
        shown = ", ".join(repr(name) for name in names[:5]) or "padding"
        raise CorruptError(
            f"bytes {start}…{end} do not match their hash; they hold {shown}",
            problems=tuple(f"{name!r}: in bytes {start}…{end}" for name in names),
        )


def plan_leaf_reads(
    runs: Sequence[DataRun], extents: ExtentMap, cost: ReadCost, leaves: LeafDigests, space: ByteSpace
) -> ReadPlan:
    """Plan requests for every leaf that a view has bytes of. Neighbours share a request."""
    copies = [copy_of(run) for run in runs]
    touched: dict[int, list[int]] = {}
    for number, copy in enumerate(copies):
        for leaf in _touched_leaves(copy, leaves):
            touched.setdefault(leaf, []).append(number)
    homes = {leaf: _home(leaf, leaves, extents, space) for leaf in sorted(touched)}
    placed = {leaf: _target_position(leaf, leaves, copies, touched[leaf]) for leaf in homes}
    reads = []
    for group in _grouped(homes, placed, cost, leaves):
        home = homes[group[0]]
        start, end = leaves.span(group[0])[0], leaves.span(group[-1])[1]
        shift = home.offset - home.start
        serving = sorted({number for leaf in group for number in touched[leaf]})
        parts = tuple(part for number in serving for part in clip_copy(copies[number], start, end))
        if shift:
            parts = tuple(part.moved(shift) for part in parts)
        positions = tuple(at for leaf in group if (at := placed[leaf]) is not None)
        numbers = range(group[0], group[-1] + 1)
        reads.append(ReadRequest(home.source, start + shift, end + shift, parts, leaves=numbers, placed=positions))
    counts = Counter(number for numbers in touched.values() for number in numbers)
    return ReadPlan(tuple(reads), tuple(_choice(run, counts[n], cost, leaves) for n, run in enumerate(runs)))


def _touched_leaves(copy: StridedCopy, leaves: LeafDigests) -> Iterator[int]:
    for leaf in range(copy.source // leaves.size, -(-(copy.source + copy.span) // leaves.size)):
        if copy.is_plain or next(clip_copy(copy, *leaves.span(leaf)), None) is not None:
            yield leaf


def _home(leaf: int, leaves: LeafDigests, extents: ExtentMap, space: ByteSpace) -> Extent:
    """Return the extent that holds all of a leaf. A leaf is hashed as a whole, so it must be in one source."""
    start, end = leaves.span(leaf)
    home = extents.holding(start, end)
    if home is not None:
        return home
    missing = RangeSet(extents.missing(start, end))
    if missing:
        raise coverage_error(missing, space)
    raise UnsupportedError(
        f"bytes {start}…{end} have one hash, but several sources", hint="Read them with verify=False."
    )


def _target_position(leaf: int, leaves: LeafDigests, copies: Sequence[StridedCopy], among: Sequence[int]) -> int | None:
    """Return the target position of a leaf that arrives in one piece; None if it does not."""
    start, end = leaves.span(leaf)
    for copy in (copies[number] for number in among):
        if copy.is_plain and copy.source <= start and end <= copy.source + copy.block:
            return copy.target + start - copy.source
    return None


def _grouped(
    homes: dict[int, Extent], placed: dict[int, int | None], cost: ReadCost, leaves: LeafDigests
) -> Iterator[list[int]]:
    """Group neighbours in one extent up to the size of a request. Placed and other leaves do not mix."""
    max_leaves = max(1, min(cost.scratch_bytes, cost.piece_bytes) // leaves.size)
    group: list[int] = []
    for leaf, home in homes.items():
        follows = group and leaf == group[-1] + 1 and len(group) < max_leaves and home == homes[group[-1]]
        if group and not (follows and (placed[leaf] is None) == (placed[group[-1]] is None)):
            yield group
            group = []
        group.append(leaf)
    if group:
        yield group


def _choice(run: DataRun, count: int, cost: ReadCost, leaves: LeafDigests) -> Choice:
    """Return the cost of one run alone: all leaves that it has a byte of."""
    total = min(count * leaves.size, leaves.index.total_size)
    return Choice(run.name, "leaves", count, total, run.size, cost.of(count, total), None)
