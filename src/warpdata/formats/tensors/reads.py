"""Which requests fetch the bytes of a plan. Pure: runs, extents and costs in, reads out.

A strided run can be fetched block by block, which reads exactly what is kept in many requests, or in wide
reads that are packed afterwards, which reads more in fewer; and anything in between, axis by axis. The
cheapest is taken, by a cost that the caller states. A source that gathers, as local files do, takes such a
run as it is. What is planned here is what is requested, byte for byte, which is why it can be told
beforehand. Implements "Reads" of docs/specs/tensors.md.
"""

from __future__ import annotations

import math
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from warpdata.errors import BadInputError
from warpdata.formats.tensors.extents import Extents
from warpdata.formats.tensors.plan import Contiguous, DataRun, Strided, iter_blocks
from warpdata.formats.tensors.strided_copy import Patch, patch_of, split_patch
from warpdata.limits import (
    MAX_BLOCK_READS,
    VIEW_PIECE_BYTES,
    VIEW_REQUEST_COST_BYTES,
    VIEW_SCRATCH_BYTES,
)

__all__ = ["Choice", "Read", "ReadCost", "ReadPlan", "choice_of", "plan_reads"]


@dataclass(frozen=True, slots=True)
class ReadCost:
    """What a request costs beside its bytes, in bytes that could be read meanwhile; and how long one may be.

    `scratch_bytes` bounds requests of which not everything is kept, `piece_bytes` all of them.
    """

    request_bytes: int = VIEW_REQUEST_COST_BYTES
    scratch_bytes: int = VIEW_SCRATCH_BYTES
    piece_bytes: int = VIEW_PIECE_BYTES

    def __post_init__(self) -> None:
        if self.request_bytes < 0 or self.scratch_bytes < 1 or self.piece_bytes < 1:
            raise BadInputError(f"{self!r} is not a cost")

    def of(self, requests: int, bytes_read: int) -> int:
        return requests * self.request_bytes + bytes_read


class Read(NamedTuple):
    """One request, in bytes of its source, and what it serves (its `source` counted the same way).

    `gathers`: only the blocks of its one part are read, not what lies between. `leaves`: the leaves of the
    TreeHash that the request consists of, where they are to be checked. `placed`: where each of them lies in the
    target as a whole, where checking can wait until they are there.
    """

    source: int
    start: int
    end: int
    parts: tuple[Patch, ...]
    gathers: bool = False
    leaves: range = range(0)
    placed: tuple[int, ...] = ()

    @property
    def size(self) -> int:
        """Bytes asked for."""
        return self.parts[0].size if self.gathers else self.end - self.start

    @property
    def kept(self) -> int:
        return sum(part.size for part in self.parts)


@dataclass(frozen=True, slots=True)
class Choice:
    """How one run is fetched, before neighbours are joined.

    `method` is `contiguous`, `blocks`, `wide`, `gather`, `pieces` or `leaves`.
    `alternative_cost` is what the best other way would have cost; `None` where there was no other.
    """

    name: str
    method: str
    requests: int
    bytes_read: int
    bytes_kept: int
    cost: int
    alternative_cost: int | None


@dataclass(frozen=True, slots=True)
class ReadPlan:
    reads: tuple[Read, ...]
    choices: tuple[Choice, ...]


def plan_reads(
    runs: Sequence[DataRun],
    extents: Extents,
    cost: ReadCost,
    *,
    gathering: Container[int] = (),
) -> ReadPlan:
    """Every byte of every run must lie in an extent; `coverage` asks that first. `gathering`: sources that can."""
    reads: list[Read] = []
    choices: list[Choice] = []
    for run in runs:
        made, choice = _fetch(run, extents, cost, gathering)
        reads += made
        choices.append(choice)
    return ReadPlan(tuple(_join(reads, extents, cost)), tuple(choices))


def _fetch(run: DataRun, extents: Extents, cost: ReadCost, gathering: Container[int]) -> tuple[list[Read], Choice]:
    span = run.size if isinstance(run, Contiguous) else run.span
    home = extents.holding(run.source, run.source + span)
    if home is None:
        reads = list(_pieces(run, extents, cost))
        return reads, choice_of(run, "pieces", reads, cost, None)
    run = replace(run, source=run.source - home.start + home.offset)
    if isinstance(run, Contiguous):
        reads = list(_plain(home.source, patch_of(run), cost))
        return reads, choice_of(run, "contiguous", reads, cost, None)
    if home.source in gathering:
        parts = split_patch(patch_of(run), cost.piece_bytes)
        reads = [Read(home.source, p.source, p.source + p.span, (p,), gathers=not p.is_plain) for p in parts]
        return reads, choice_of(run, "gather" if reads[0].gathers else "blocks", reads, cost, None)
    options = sorted(_options(run, cost))
    best, other = options[0], options[1] if len(options) > 1 else None
    reads = list(_cut(run, home.source, best[3], best[4]))
    method = "blocks" if best[3] == len(run.counts) else "wide"
    if method == "blocks":
        reads = [piece for read in reads for piece in _plain(read.source, read.parts[0], cost)]
    return reads, choice_of(run, method, reads, cost, other[0] if other else None)


def _options(run: Strided, cost: ReadCost) -> Iterator[tuple[int, int, int, int, int]]:
    """(cost, bytes read, requests, axis, group): one request for every `group` steps along `axis`."""
    rank = len(run.counts)
    inner = [0] * rank + [run.block]
    for axis in reversed(range(rank)):
        inner[axis] = (run.counts[axis] - 1) * run.strides[axis] + inner[axis + 1]
    found = False
    for axis in range(rank):
        outer = math.prod(run.counts[:axis])
        count, stride, one = run.counts[axis], run.strides[axis], inner[axis + 1]
        room = (cost.scratch_bytes - one) // stride + 1 if stride else count
        group = min(count, room)
        if group < 2:
            continue
        full, rest = divmod(count, group)
        spans = full * ((group - 1) * stride + one) + ((rest - 1) * stride + one if rest else 0)
        requests = outer * (full + (1 if rest else 0))
        found = True
        yield cost.of(requests, outer * spans), outer * spans, requests, axis, group
    blocks = math.prod(run.counts)
    if blocks <= MAX_BLOCK_READS or not found:
        yield cost.of(blocks, run.size), run.size, blocks, rank, 1


def _cut(run: Strided, source: int, axis: int, group: int) -> Iterator[Read]:
    """The reads of one option. Each serves a run of its own, cut out of the whole."""
    rank = len(run.counts)
    below = math.prod(run.counts[axis + 1 :]) * run.block if axis < rank else run.block
    outer = Strided(run.name, 0, run.source, 1, run.counts[:axis], run.strides[:axis])
    target = run.target
    for start, _, _ in iter_blocks(outer):
        if axis == rank:
            yield Read(source, start, start + run.block, (Patch(start, target, run.block),))
            target += run.block
            continue
        for first in range(0, run.counts[axis], group):
            count = min(group, run.counts[axis] - first)
            begin = start + first * run.strides[axis]
            part = replace(run, target=target, source=begin, counts=(count, *run.counts[axis + 1 :]))
            part = replace(part, strides=run.strides[axis:])
            yield Read(source, begin, begin + part.span, (patch_of(part),))
            target += count * below


def _plain(source: int, patch: Patch, cost: ReadCost) -> Iterator[Read]:
    for part in split_patch(patch, cost.piece_bytes):
        yield Read(source, part.source, part.source + part.block, (part,))


def _pieces(run: DataRun, extents: Extents, cost: ReadCost) -> Iterator[Read]:
    """Exactly what is kept, and only from where it is: for sources that have parts of an artifact."""
    for source, target, size in iter_blocks(run):
        for start, end, home in extents.pieces(source, source + size):
            assert home is not None, "coverage is checked before reads are planned"
            place = start - home.start + home.offset
            yield from _plain(home.source, Patch(place, target + start - source, end - start), cost)


def _join(reads: list[Read], extents: Extents, cost: ReadCost) -> Iterator[Read]:
    """Neighbours become one request where reading the gap is cheaper than asking twice, and the gap is there."""
    group: list[Read] = []
    end = 0
    for read in sorted(reads, key=lambda read: (read.source, read.start, read.end)):
        if read.gathers:
            yield read
            continue
        if group and read.source == group[0].source and read.start - end <= cost.request_bytes:
            wide = max(end, read.end)
            start = group[0].start
            if wide - start <= min(cost.scratch_bytes, cost.piece_bytes) and (
                read.start <= end or extents.has(read.source, start, wide)
            ):
                group.append(read)
                end = wide
                continue
        if group:
            yield _joined(group, end)
        group, end = [read], read.end
    if group:
        yield _joined(group, end)


def _joined(group: list[Read], end: int) -> Read:
    first = group[0]
    return first if len(group) == 1 else Read(first.source, first.start, end, tuple(p for r in group for p in r.parts))


def choice_of(run: DataRun, method: str, reads: Sequence[Read], cost: ReadCost, other: int | None) -> Choice:
    """What fetching a run in this way amounts to."""
    total = sum(read.size for read in reads)
    return Choice(run.name, method, len(reads), total, run.size, cost.of(len(reads), total), other)
