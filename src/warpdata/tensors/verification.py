"""Reading with every byte checked: reads widened to the leaves of the TreeHash, each leaf hashed on arrival.

Possible where the leaf hashes are known, which is in our own files. Implements "Verification" of
docs/specs/tensors.md.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from warpdata.errors import TensorsCorruptedError
from warpdata.tensors.identity import leaf_size
from warpdata.tensors.index import TensorIndex
from warpdata.tensors.plan import Contiguous, DataRun
from warpdata.tensors.reads import Read, ReadPlan
from warpdata.tensors.sources import ByteSource

__all__ = ["CheckedSource", "align_reads", "cut_runs"]


@dataclass(frozen=True, slots=True)
class CheckedSource:
    """A source whose byte n is canonical byte n, and that is asked for whole leaves only."""

    source: ByteSource
    index: TensorIndex
    leaves: tuple[bytes, ...]

    def read_range(self, start: int, end: int) -> memoryview:
        data = memoryview(self.source.read_range(start, end)).cast("B")
        size = leaf_size(self.index.total_size)
        assert start % size == 0, "reads are aligned before they come here"
        for at in range(start, end, size):
            leaf = data[at - start : at - start + size]
            if hashlib.sha256(leaf).digest() != self.leaves[at // size]:
                raise self._damage(at, min(at + size, end))
        return data

    def _damage(self, start: int, end: int) -> TensorsCorruptedError:
        names = [e.name for e in self.index if e.size and e.offset < end and e.offset + e.size > start]
        told = ", ".join(repr(name) for name in names[:5]) or "padding"
        return TensorsCorruptedError(
            f"bytes {start}…{end} are not those that were written; they hold {told}",
            problems=tuple(f"{name!r}: somewhere in {start}…{end}" for name in names),
        )


def cut_runs(runs: Sequence[DataRun], leaf: int, most: int) -> Iterator[DataRun]:
    """Long contiguous runs in pieces that end where leaves do, so that checking needs little memory."""
    piece = max(leaf, most // leaf * leaf)
    for run in runs:
        if not isinstance(run, Contiguous):
            yield run
            continue
        at, end = run.source, run.source + run.size
        while at < end:
            stop = min(end, (at // piece + 1) * piece)
            yield Contiguous(run.name, run.target + at - run.source, at, stop - at)
            at = stop


def align_reads(plan: ReadPlan, leaf: int, total: int) -> ReadPlan:
    """The same reads, each widened to whole leaves; those that then share a leaf become one."""
    out: list[Read] = []
    for read in plan.reads:
        start, end = read.start // leaf * leaf, min(total, -(-read.end // leaf) * leaf)
        if out and start < out[-1].end:
            last = out[-1]
            out[-1] = Read(last.source, last.start, max(last.end, end), (*last.parts, *read.parts))
        else:
            out.append(Read(read.source, start, end, read.parts))
    return ReadPlan(tuple(out), plan.choices)
