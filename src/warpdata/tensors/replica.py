"""One artifact and where its bytes are. What views, tensors and hashes are made from.

Holds sources but no policy: it does not choose between them, and does not fill in what is missing.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_left, bisect_right
from dataclasses import dataclass, replace

from warpdata.tensors.coverage import check_coverage
from warpdata.tensors.extents import Extents
from warpdata.tensors.identity import leaf_size, multihash, tree_root
from warpdata.tensors.index import TensorIndex
from warpdata.tensors.index_json import encode_index
from warpdata.tensors.movement import fill
from warpdata.tensors.plan import Contiguous, Pad, Run, ViewPlan, make_plan
from warpdata.tensors.reads import ReadCost, ReadPlan, plan_reads
from warpdata.tensors.sources import ByteSource
from warpdata.tensors.spec import NormalView
from warpdata.tensors.verification import CheckedSource, align_reads, cut_runs

__all__ = ["Replica", "data_digest", "leaf_hashes_of"]


@dataclass(frozen=True, slots=True)
class Replica:
    """`leaves` are there where the bytes can be checked part by part."""

    index: TensorIndex
    index_bytes: bytes
    index_multihash: str
    sources: tuple[ByteSource, ...]
    extents: Extents
    leaves: tuple[bytes, ...] | None = None

    @classmethod
    def of(cls, index: TensorIndex, sources: tuple[ByteSource, ...], extents: Extents) -> Replica:
        data = encode_index(index)
        return cls(index, data, multihash(hashlib.sha256(data).digest()), sources, extents)

    def plan_reads(self, plan: ViewPlan, cost: ReadCost, *, verify: bool = False) -> ReadPlan:
        """The requests of a plan, after its coverage was checked."""
        check_coverage(plan.data_runs, self.extents, self.index_multihash)
        if not verify or self.leaves is None:
            return plan_reads(plan.data_runs, self.extents, cost)
        leaf = leaf_size(self.index.total_size)
        runs = tuple(cut_runs(plan.data_runs, leaf, cost.scratch_bytes))
        return align_reads(plan_reads(runs, self.extents, cost), leaf, self.index.total_size)

    def fill(self, plan: ViewPlan, cost: ReadCost, target: memoryview, *, verify: bool = False) -> None:
        reads = self.plan_reads(plan, cost, verify=verify)
        sources = self.sources
        if verify and self.leaves is not None:
            sources = tuple(CheckedSource(source, self.index, self.leaves) for source in sources)
        fill(plan, reads, sources, target)


def leaf_hashes_of(replica: Replica) -> tuple[bytes, ...]:
    """Leaf hashes of the canonical ByteSpace, computed from its bytes. Reads all of them; memory stays at a leaf."""
    plan = make_plan(replica.index, NormalView(()))
    check_coverage(plan.data_runs, replica.extents, replica.index_multihash)
    size = leaf_size(plan.size)
    starts = [run.target for run in plan.runs]
    leaves = []
    for start in range(0, plan.size, size):
        stop = min(plan.size, start + size)
        near = plan.runs[bisect_right(starts, start) - 1 : bisect_left(starts, stop)]
        piece = replace(plan, runs=tuple(_clip(near, start, stop)), size=stop - start)
        buffer = memoryview(bytearray(stop - start))
        fill(piece, plan_reads(piece.data_runs, replica.extents, ReadCost()), replica.sources, buffer)
        leaves.append(hashlib.sha256(buffer).digest())
    return tuple(leaves)


def data_digest(replica: Replica) -> bytes:
    """TreeHash of the canonical ByteSpace: from known leaves, or from all of the bytes."""
    return tree_root(replica.leaves if replica.leaves is not None else leaf_hashes_of(replica))


def _clip(runs: tuple[Run, ...], start: int, stop: int) -> list[Run]:
    """The part of a canonical plan that lies in a window, counted from the window's beginning."""
    out: list[Run] = []
    for run in runs:
        first, last = max(start, run.target), min(stop, run.target + run.size)
        if first >= last:
            continue
        if isinstance(run, Pad):
            out.append(Pad(first - start, last - first))
        else:
            source = run.source + first - run.target
            out.append(Contiguous(run.name, first - start, source, last - first))
    return out
