"""Read plans: the requests that fetch the bytes of a view plan. Pure.

A strided run can be read block by block (exact bytes, many requests), or in wide reads that are packed afterwards
(more bytes, fewer requests), with options in between, axis by axis. The planner takes the cheapest by the caller's
cost. A source that can gather, such as a local file, takes a strided run as it is. The plan names every request, so
`explain()` predicts them exactly. Implements "Reads" of docs/specs/tensors.md.
"""

from __future__ import annotations

import math
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from warpdata.errors import BadInputError
from warpdata.formats.tensors.extents import ByteSpace, ExtentMap
from warpdata.formats.tensors.plan import Contiguous, DataRun, Pad, Strided, ViewPlan, iter_blocks
from warpdata.formats.tensors.strided_copy import StridedCopy, copy_of, split_copy

__all__ = [
    "PIECE_BYTES",
    "Choice",
    "ReadCost",
    "ReadPlan",
    "ReadRequest",
    "ViewExplanation",
    "explain_reads",
    "plan_reads",
]

PIECE_BYTES = 8 * 1024**2
"""The default length of the longest request."""
_REQUEST_COST_BYTES = 16 * 1024
_SCRATCH_BYTES = 8 * 1024**2
_MAX_BLOCK_READS = 1_000_000


@dataclass(frozen=True, slots=True)
class ReadCost:
    """The overhead of a request, as the number of bytes that cost as much, and bounds on the length of requests.

    `scratch_bytes` bounds requests of which only parts are kept, `piece_bytes` all requests.
    """

    request_bytes: int = _REQUEST_COST_BYTES
    scratch_bytes: int = _SCRATCH_BYTES
    piece_bytes: int = PIECE_BYTES

    def __post_init__(self) -> None:
        if self.request_bytes < 0 or self.scratch_bytes < 1 or self.piece_bytes < 1:
            raise BadInputError(f"{self!r} is not a valid cost")

    def of(self, requests: int, bytes_read: int) -> int:
        return requests * self.request_bytes + bytes_read


class ReadRequest(NamedTuple):
    """One request, in bytes of its source, and the copies that it serves, with the same source positions.

    `gathers`: only the blocks of its one part are read, without the gaps. `leaves`: the TreeHash leaves of a
    verified request. `placed`: the target positions of the leaves, if all arrive in one piece each, so that they
    can be hashed in the target.
    """

    source: int
    start: int
    end: int
    parts: tuple[StridedCopy, ...]
    gathers: bool = False
    leaves: range = range(0)
    placed: tuple[int, ...] = ()

    @property
    def size(self) -> int:
        """Requested bytes."""
        return self.parts[0].size if self.gathers else self.end - self.start

    @property
    def kept(self) -> int:
        return sum(part.size for part in self.parts)


@dataclass(frozen=True, slots=True)
class Choice:
    """The method that fetches one run, before neighbours are joined.

    `method` is `contiguous`, `blocks`, `wide`, `gather`, `pieces` or `leaves`. `alternative_cost` is the cost of the
    next best method, or None if there is no other.
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
    """The requests of a plan, and the method chosen for each run."""

    reads: tuple[ReadRequest, ...]
    choices: tuple[Choice, ...]


@dataclass(frozen=True, slots=True, repr=False)
class ViewExplanation:
    """The exact cost of a read, known before it runs.

    `reads` are (source, start, end), one for each request. `bytes_kept` arrive in the view. With `on_device`, the
    device packs blocks and swaps axes. `space_kind` and `space_id` name the ByteSpace that is read. `threads` read at
    the same time at most.
    """

    requests: int
    bytes_read: int
    bytes_kept: int
    pad_bytes: int
    reads: tuple[tuple[int, int, int], ...]
    choices: tuple[Choice, ...]
    transposed: tuple[str, ...]
    on_device: bool = False
    space_kind: str = "canonical"
    space_id: str = ""
    threads: int = 1

    def __repr__(self) -> str:
        counts = f"requests={self.requests}, bytes_read={self.bytes_read}, bytes_kept={self.bytes_kept}"
        return f"ViewExplanation({counts}, on_device={self.on_device}, space_kind={self.space_kind!r})"

    def __str__(self) -> str:
        threads = "1 thread" if self.threads == 1 else f"up to {self.threads} threads"
        lines = [f"{self.requests} requests, {self.bytes_read} bytes read, {self.bytes_kept} kept, {threads}"]
        if self.space_kind == "view":
            lines[0] += f", from kept bytes of the view {self.space_id}"
        place = "on the device" if self.on_device else "in memory"
        for choice in self.choices:
            other = "" if choice.alternative_cost is None else f", the next best costs {choice.alternative_cost}"
            lines.append(
                f"  {choice.name}: {choice.method}, {choice.requests} requests, {choice.bytes_read} bytes read, "
                f"{choice.bytes_kept} kept, cost {choice.cost}{other}"
            )
            if choice.method == "wide":
                lines[-1] += f", packed {place}"
        lines += [f"  {name}: transposed after the read, {place}" for name in self.transposed]
        return "\n".join(lines)


def explain_reads(
    plan: ViewPlan,
    planned: ReadPlan,
    requests: tuple[tuple[int, int, int], ...],
    *,
    on_device: bool,
    space: ByteSpace,
    threads: int,
) -> ViewExplanation:
    """Sum up a read plan and the requests that carry it out."""
    return ViewExplanation(
        requests=len(requests),
        bytes_read=sum(read.size for read in planned.reads),
        bytes_kept=sum(run.size for run in plan.data_runs),
        pad_bytes=sum(run.size for run in plan.runs if isinstance(run, Pad)),
        reads=requests,
        choices=planned.choices,
        transposed=tuple(permute.name for permute in plan.permutes),
        on_device=on_device,
        space_kind=space.kind,
        space_id=space.id,
        threads=threads,
    )


def plan_reads(
    runs: Sequence[DataRun],
    extents: ExtentMap,
    cost: ReadCost,
    *,
    gathering: Container[int] = (),
) -> ReadPlan:
    """Plan the requests of runs whose coverage was checked. `gathering` are the sources that can gather."""
    reads: list[ReadRequest] = []
    choices: list[Choice] = []
    for run in runs:
        made, choice = _fetch(run, extents, cost, gathering)
        reads += made
        choices.append(choice)
    return ReadPlan(tuple(_join(reads, extents, cost)), tuple(choices))


def _fetch(
    run: DataRun, extents: ExtentMap, cost: ReadCost, gathering: Container[int]
) -> tuple[list[ReadRequest], Choice]:
    span = run.size if isinstance(run, Contiguous) else run.span
    home = extents.holding(run.source, run.source + span)
    if home is None:
        reads = list(_pieces(run, extents, cost))
        return reads, _choice(run, "pieces", reads, cost, None)
    run = replace(run, source=run.source - home.start + home.offset)
    if isinstance(run, Contiguous):
        reads = list(_plain(home.source, copy_of(run), cost))
        return reads, _choice(run, "contiguous", reads, cost, None)
    if home.source in gathering:
        parts = split_copy(copy_of(run), cost.piece_bytes)
        reads = [ReadRequest(home.source, p.source, p.source + p.span, (p,), gathers=not p.is_plain) for p in parts]
        return reads, _choice(run, "gather" if reads[0].gathers else "blocks", reads, cost, None)
    options = sorted(_options(run, cost))
    best, other = options[0], options[1] if len(options) > 1 else None
    reads = list(_cut(run, home.source, best[3], best[4]))
    method = "blocks" if best[3] == len(run.counts) else "wide"
    if method == "blocks":
        reads = [piece for read in reads for piece in _plain(read.source, read.parts[0], cost)]
    return reads, _choice(run, method, reads, cost, other[0] if other else None)


def _options(run: Strided, cost: ReadCost) -> Iterator[tuple[int, int, int, int, int]]:
    """Yield (cost, bytes read, requests, axis, group): one request for every `group` steps along `axis`."""
    rank = len(run.counts)
    inner = [0] * rank + [run.block]
    for axis in reversed(range(rank)):
        inner[axis] = (run.counts[axis] - 1) * run.strides[axis] + inner[axis + 1]
    found = False
    for axis in range(rank):
        outer = math.prod(run.counts[:axis])
        count, stride, one = run.counts[axis], run.strides[axis], inner[axis + 1]
        fitting = (cost.scratch_bytes - one) // stride + 1 if stride else count
        group = min(count, fitting)
        if group < 2:
            continue
        full, rest = divmod(count, group)
        spans = full * ((group - 1) * stride + one) + ((rest - 1) * stride + one if rest else 0)
        requests = outer * (full + (1 if rest else 0))
        found = True
        yield cost.of(requests, outer * spans), outer * spans, requests, axis, group
    blocks = math.prod(run.counts)
    if blocks <= _MAX_BLOCK_READS or not found:
        yield cost.of(blocks, run.size), run.size, blocks, rank, 1


def _cut(run: Strided, source: int, axis: int, group: int) -> Iterator[ReadRequest]:
    """Yield the reads of one option, each with its part of the run."""
    rank = len(run.counts)
    below = math.prod(run.counts[axis + 1 :]) * run.block if axis < rank else run.block
    outer = Strided(run.name, 0, run.source, 1, run.counts[:axis], run.strides[:axis])
    target = run.target
    for start, _, _ in iter_blocks(outer):
        if axis == rank:
            yield ReadRequest(source, start, start + run.block, (StridedCopy(start, target, run.block),))
            target += run.block
            continue
        for first in range(0, run.counts[axis], group):
            count = min(group, run.counts[axis] - first)
            begin = start + first * run.strides[axis]
            part = replace(run, target=target, source=begin, counts=(count, *run.counts[axis + 1 :]))
            part = replace(part, strides=run.strides[axis:])
            yield ReadRequest(source, begin, begin + part.span, (copy_of(part),))
            target += count * below


def _plain(source: int, copy: StridedCopy, cost: ReadCost) -> Iterator[ReadRequest]:
    for part in split_copy(copy, cost.piece_bytes):
        yield ReadRequest(source, part.source, part.source + part.block, (part,))


def _pieces(run: DataRun, extents: ExtentMap, cost: ReadCost) -> Iterator[ReadRequest]:
    """Yield reads of exactly the kept bytes, cut where extents end: for sources with parts of an artifact."""
    for source, target, size in iter_blocks(run):
        for start, end, home in extents.pieces(source, source + size):
            assert home is not None, "coverage is checked before reads are planned"
            offset = start - home.start + home.offset
            yield from _plain(home.source, StridedCopy(offset, target + start - source, end - start), cost)


def _join(reads: list[ReadRequest], extents: ExtentMap, cost: ReadCost) -> Iterator[ReadRequest]:
    """Join neighbours where the bytes of the gap cost less than a request, and the source holds the gap."""
    group: list[ReadRequest] = []
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


def _joined(group: list[ReadRequest], end: int) -> ReadRequest:
    first = group[0]
    if len(group) == 1:
        return first
    return ReadRequest(first.source, first.start, end, tuple(part for read in group for part in read.parts))


def _choice(run: DataRun, method: str, reads: Sequence[ReadRequest], cost: ReadCost, other: int | None) -> Choice:
    total = sum(read.size for read in reads)
    return Choice(run.name, method, len(reads), total, run.size, cost.of(len(reads), total), other)
