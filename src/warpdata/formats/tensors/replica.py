"""One artifact and where its bytes are. What views, tensors and hashes are made from.

Holds sources but no policy: it does not choose between them, and does not fill in what is missing.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_left, bisect_right
from contextlib import nullcontext
from dataclasses import dataclass, field

from warpdata.formats.tensors.coverage import check_coverage
from warpdata.formats.tensors.engine import Engine
from warpdata.formats.tensors.extents import Extents
from warpdata.formats.tensors.hashing import leaf_size, multihash, tree_root
from warpdata.formats.tensors.index import TensorIndex
from warpdata.formats.tensors.index_json import encode_index
from warpdata.formats.tensors.plan import Contiguous, Pad, Run, ViewPlan, make_plan
from warpdata.formats.tensors.reads import ReadCost, ReadPlan, plan_reads
from warpdata.formats.tensors.sources import ByteSource, CutSource, GatherSource, Stored
from warpdata.formats.tensors.spec import NormalView
from warpdata.formats.tensors.targets import HostTarget
from warpdata.formats.tensors.transfer import Work, fill, threads_for
from warpdata.formats.tensors.verified_read import Leaves, plan_leaves
from warpdata.formats.tensors.workers import for_each

__all__ = ["CanonicalBytes", "Replica", "data_digest", "leaf_hashes_of"]


@dataclass(frozen=True, slots=True)
class Replica:
    """`leaves` are there where the bytes can be checked part by part. `cost` is that of its sources."""

    index: TensorIndex
    index_bytes: bytes
    index_multihash: str
    sources: tuple[ByteSource, ...]
    extents: Extents
    leaves: tuple[bytes, ...] | None = None
    engine: Engine = field(default_factory=Engine, compare=False)
    cost: ReadCost = field(default_factory=ReadCost)

    @classmethod
    def of(
        cls,
        index: TensorIndex,
        sources: tuple[ByteSource, ...],
        extents: Extents,
        *,
        leaves: tuple[bytes, ...] | None = None,
        engine: Engine | None = None,
        cost: ReadCost | None = None,
    ) -> Replica:
        data = encode_index(index)
        digest = multihash(hashlib.sha256(data).digest())
        return cls(index, data, digest, sources, extents, leaves, engine or Engine(), cost or ReadCost())

    def plan_reads(self, plan: ViewPlan, cost: ReadCost, *, verify: bool | None = False) -> ReadPlan:
        """The requests of a plan, after its coverage was checked."""
        check_coverage(plan.data_runs, self.extents, self.index_multihash)
        if self._checks(verify):
            return plan_leaves(plan.data_runs, self.extents, cost, self._known_leaves(), self.index_multihash)
        gathering = {number for number, source in enumerate(self.sources) if isinstance(source, GatherSource)}
        return plan_reads(plan.data_runs, self.extents, cost, gathering=gathering)

    def work(self, plan: ViewPlan, cost: ReadCost, *, verify: bool | None = False) -> Work:
        """What an engine has to do for a plan. `PartialCoverageError` if bytes are missing."""
        reads = self.plan_reads(plan, cost, verify=verify)
        leaves = self._known_leaves() if self._checks(verify) else None
        return Work(plan.runs, plan.permutes, reads.reads, self.sources, leaves)

    def _checks(self, verify: bool | None) -> bool:
        """Whether bytes are compared with hashes: as asked, or, if that is open, where others kept or sent them."""
        if verify is None:
            verify = any(isinstance(source, Stored) for source in self.sources)
        return verify and self.leaves is not None

    def requests(self, planned: ReadPlan) -> tuple[tuple[int, int, int], ...]:
        """What is asked of the sources: (source, start, end). A source in parts is asked for each part by itself."""
        out: list[tuple[int, int, int]] = []
        for read in planned.reads:
            source = self.sources[read.source]
            if isinstance(source, CutSource) and not read.gathers:
                out += [(read.source, start, end) for start, end in source.cuts(read.start, read.end)]
            else:
                out.append((read.source, read.start, read.end))
        return tuple(out)

    def _known_leaves(self) -> Leaves:
        return Leaves(self.index, self.leaves or ())


class CanonicalBytes:
    """The canonical ByteSpace of a replica, to be read from its beginning to its end or in any other order."""

    def __init__(self, replica: Replica) -> None:
        self._replica = replica
        self._plan = make_plan(replica.index, NormalView(()))
        check_coverage(self._plan.data_runs, replica.extents, replica.index_multihash)
        self._starts = [run.target for run in self._plan.runs]
        self.size = self._plan.size

    def read_into(self, start: int, target: memoryview) -> None:
        """Fill the target with the bytes from `start` on, padding included, with one thread."""
        stop = start + len(target)
        near = self._plan.runs[max(0, bisect_right(self._starts, start) - 1) : bisect_left(self._starts, stop)]
        runs = tuple(_clip(near, start, stop))
        data_runs = [run for run in runs if not isinstance(run, Pad)]
        reads = plan_reads(data_runs, self._replica.extents, self._replica.cost)
        fill(Work(runs, (), reads.reads, self._replica.sources), HostTarget([(0, target)]), 1)

    @property
    def threads(self) -> int:
        """From how many it is worth to be read at once."""
        reads = plan_reads(self._plan.data_runs, self._replica.extents, self._replica.cost)
        return threads_for(Work(self._plan.runs, (), reads.reads, self._replica.sources), self._replica.engine.threads)


def leaf_hashes_of(replica: Replica) -> tuple[bytes, ...]:
    """Leaf hashes of the canonical ByteSpace, computed from its bytes. Reads all of them, a leaf for each thread."""
    canonical = CanonicalBytes(replica)
    size = leaf_size(canonical.size)
    out = [b""] * -(-canonical.size // size)

    def hash_one(leaf: int) -> None:
        buffer = memoryview(bytearray(min(size, canonical.size - leaf * size)))
        canonical.read_into(leaf * size, buffer)
        out[leaf] = hashlib.sha256(buffer).digest()

    for_each(range(len(out)), canonical.threads, lambda: nullcontext(hash_one))
    return tuple(out)


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
