"""Reading with every byte checked: requests made of whole leaves of the TreeHash, each leaf hashed on arrival.

Possible where the leaf hashes are known. A leaf is hashed from memory that nobody else writes, and what is
kept is taken from that same memory. Leaves that land in a target as they are can be checked there, which is
how a device checks at its own speed. Implements "Verification" of docs/specs/tensors.md.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from warpdata.errors import TensorsCorruptedError, ViewPreconditionError
from warpdata.formats.tensors.coverage import coverage_error
from warpdata.formats.tensors.extents import Extent, Extents
from warpdata.formats.tensors.hashing import leaf_size
from warpdata.formats.tensors.index import TensorIndex
from warpdata.formats.tensors.plan import DataRun
from warpdata.formats.tensors.reads import Choice, Read, ReadCost, ReadPlan
from warpdata.formats.tensors.strided_copy import Patch, clip_patch, patch_of

__all__ = ["Leaves", "plan_leaves"]


@dataclass(frozen=True, slots=True)
class Leaves:
    """The leaf hashes of an artifact, and which bytes each of them is of."""

    index: TensorIndex
    digests: tuple[bytes, ...]
    size: int = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "size", leaf_size(self.index.total_size))

    def span(self, leaf: int) -> tuple[int, int]:
        return leaf * self.size, min(self.index.total_size, (leaf + 1) * self.size)

    def names(self, start: int, end: int) -> tuple[str, ...]:
        """The tensors that have bytes in a range."""
        return tuple(e.name for e in self.index if e.size and e.offset < end and e.offset + e.size > start)

    def check(self, leaves: range, data: memoryview) -> None:
        """`data` are exactly the bytes of these leaves."""
        first = self.span(leaves.start)[0]
        for leaf in leaves:
            start, end = self.span(leaf)
            self.compare(leaf, hashlib.sha256(data[start - first : end - first]).digest())

    def compare(self, leaf: int, digest: bytes) -> None:
        """`TensorsCorruptedError` that names the range and the tensors in it, if the hash is another."""
        if digest == self.digests[leaf]:
            return
        start, end = self.span(leaf)
        names = self.names(start, end)
        told = ", ".join(repr(name) for name in names[:5]) or "padding"
        raise TensorsCorruptedError(
            f"bytes {start}…{end} are not those that were written; they hold {told}",
            problems=tuple(f"{name!r}: somewhere in {start}…{end}" for name in names),
        )


def plan_leaves(
    runs: Sequence[DataRun], extents: Extents, cost: ReadCost, leaves: Leaves, index_multihash: str
) -> ReadPlan:
    """Every leaf that a view has bytes of, once, several in one request where they follow each other."""
    patches = [patch_of(run) for run in runs]
    touched: dict[int, list[int]] = {}
    for number, patch in enumerate(patches):
        for leaf in _touched(patch, leaves):
            touched.setdefault(leaf, []).append(number)
    homes = {leaf: _home(leaf, leaves, extents, index_multihash) for leaf in sorted(touched)}
    placed = {leaf: _placed(leaf, leaves, patches, touched[leaf]) for leaf in homes}
    reads = []
    for group in _grouped(homes, placed, cost, leaves):
        home = homes[group[0]]
        start, end = leaves.span(group[0])[0], leaves.span(group[-1])[1]
        shift = home.offset - home.start
        serving = sorted({number for leaf in group for number in touched[leaf]})
        parts = tuple(part for number in serving for part in clip_patch(patches[number], start, end))
        if shift:
            parts = tuple(part.moved(shift) for part in parts)
        where = tuple(place for leaf in group if (place := placed[leaf]) is not None)
        numbers = range(group[0], group[-1] + 1)
        reads.append(Read(home.source, start + shift, end + shift, parts, leaves=numbers, placed=where))
    counts = Counter(number for numbers in touched.values() for number in numbers)
    return ReadPlan(tuple(reads), tuple(_choice(run, counts[n], cost, leaves) for n, run in enumerate(runs)))


def _touched(patch: Patch, leaves: Leaves) -> Iterator[int]:
    for leaf in range(patch.source // leaves.size, -(-(patch.source + patch.span) // leaves.size)):
        if patch.is_plain or next(clip_patch(patch, *leaves.span(leaf)), None) is not None:
            yield leaf


def _home(leaf: int, leaves: Leaves, extents: Extents, index_multihash: str) -> Extent:
    """A leaf is checked as a whole, so all of it must be in one place."""
    start, end = leaves.span(leaf)
    home = extents.holding(start, end)
    if home is not None:
        return home
    missing = [(first, last) for first, last, place in extents.pieces(start, end) if place is None]
    if missing:
        raise coverage_error(missing, index_multihash)
    raise ViewPreconditionError(
        f"bytes {start}…{end} have one hash and lie in several sources", hint="read them without checking"
    )


def _placed(leaf: int, leaves: Leaves, patches: Sequence[Patch], among: Sequence[int]) -> int | None:
    """Where in the target a leaf ends up in one piece, if it does."""
    start, end = leaves.span(leaf)
    for patch in (patches[number] for number in among):
        if patch.is_plain and patch.source <= start and end <= patch.source + patch.block:
            return patch.target + start - patch.source
    return None


def _grouped(
    homes: dict[int, Extent], placed: dict[int, int | None], cost: ReadCost, leaves: Leaves
) -> Iterator[list[int]]:
    """Neighbours in the same place, as many as a request may have. Placed ones stay among themselves."""
    most = max(1, min(cost.scratch_bytes, cost.piece_bytes) // leaves.size)
    group: list[int] = []
    for leaf, home in homes.items():
        follows = group and leaf == group[-1] + 1 and len(group) < most and home == homes[group[-1]]
        if group and not (follows and (placed[leaf] is None) == (placed[group[-1]] is None)):
            yield group
            group = []
        group.append(leaf)
    if group:
        yield group


def _choice(run: DataRun, count: int, cost: ReadCost, leaves: Leaves) -> Choice:
    """By itself, a run needs all leaves that it has a byte of."""
    total = min(count * leaves.size, leaves.index.total_size)
    return Choice(run.name, "leaves", count, total, run.size, cost.of(count, total), None)
