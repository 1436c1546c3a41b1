"""A replica: one artifact and the sources of its bytes.

Views, tensors and hashes are computed from it. It has no policy: it neither chooses between sources nor fills in
missing bytes. With a policy, `Failover` reads bytes that one source fails to deliver from another.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_left, bisect_right
from dataclasses import dataclass, field, replace
from typing import Protocol

from warpdata.formats.tensors.buffers import HostTarget
from warpdata.formats.tensors.extents import ByteSpace, ExtentMap, ViewRecord, check_coverage
from warpdata.formats.tensors.failover import Failover
from warpdata.formats.tensors.hashing import leaf_size, multihash, tree_root
from warpdata.formats.tensors.index import TensorIndex, encode_index
from warpdata.formats.tensors.leaves import LeafDigests, plan_leaf_reads
from warpdata.formats.tensors.peer import PeerSource
from warpdata.formats.tensors.plan import Contiguous, Pad, Run, ViewPlan, make_plan
from warpdata.formats.tensors.reads import ReadCost, ReadPlan, plan_reads
from warpdata.formats.tensors.shards import FileShards, StoreShards, can_gather
from warpdata.formats.tensors.source_health import SourceStats
from warpdata.formats.tensors.spec import NormalView
from warpdata.formats.tensors.transfer import Engine, TransferTask, fill, threads_for
from warpdata.primitives.parallel import IO_POOL
from warpdata.storage import ObjectRangeSource, RangeSource

__all__ = ["CanonicalBytes", "Replica", "ViewFinder", "data_digest"]

_VERIFIED_SOURCES = (FileShards, StoreShards, ObjectRangeSource, PeerSource)
"""Sources whose bytes come from a store or a peer, and are verified by default."""


class ViewFinder(Protocol):
    """Finds kept bytes of views among the sources of a policy."""

    def find(self, space_id: str, index_bytes: bytes, expect: str | None) -> Replica | None:
        """Return the bytes of a view whose hash is `expect`, or else the one that the policy names."""
        ...

    def stats(self) -> list[SourceStats]: ...

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True, repr=False)
class Replica:
    """`leaves` are the leaf digests, if they are known. `cost` is that of the sources."""

    index: TensorIndex
    index_bytes: bytes
    index_multihash: str
    sources: tuple[RangeSource, ...]
    extents: ExtentMap
    leaves: tuple[bytes, ...] | None = None
    engine: Engine = field(default_factory=Engine, compare=False)
    cost: ReadCost = field(default_factory=ReadCost)
    failover: Failover | None = field(default=None, compare=False)
    views: ViewFinder | None = field(default=None, compare=False)
    view: ViewRecord | None = None

    def __repr__(self) -> str:
        return f"Replica({self.index_multihash}, {self.index!r}, {len(self.sources)} sources)"

    @classmethod
    def create(
        cls,
        index: TensorIndex,
        sources: tuple[RangeSource, ...],
        extents: ExtentMap,
        *,
        leaves: tuple[bytes, ...] | None = None,
        engine: Engine | None = None,
        cost: ReadCost | None = None,
        failover: Failover | None = None,
        view: ViewRecord | None = None,
    ) -> Replica:
        data = encode_index(index)
        digest = multihash(hashlib.sha256(data).digest())
        made = cls(index, data, digest, sources, extents, leaves, engine or Engine(), cost or ReadCost(), failover)
        return made if view is None else replace(made, view=view)

    def plan_reads(self, plan: ViewPlan, cost: ReadCost, *, verify: bool | None = None) -> ReadPlan:
        """Return the requests of a plan. `PartialCoverageError` if bytes are missing."""
        self.check_coverage(plan)
        leaves = self._leaves_to_verify(verify)
        if leaves is not None:
            return plan_leaf_reads(plan.data_runs, self.extents, cost, leaves, self.space)
        # A file that another process truncates kills a process that maps it, so files with alternatives are read.
        is_mapped = self.failover is None or not self.failover.has_alternatives
        gathering = {number for number, source in enumerate(self.sources) if is_mapped and can_gather(source)}
        return plan_reads(plan.data_runs, self.extents, cost, gathering=gathering)

    def check_coverage(self, plan: ViewPlan) -> None:
        """Raise `PartialCoverageError`, unless every byte of a plan is available."""
        unopened = [] if self.failover is None else self.failover.unopened()
        check_coverage(plan.data_runs, self.extents, self.space, unopened)

    def transfer_task(self, plan: ViewPlan, cost: ReadCost, *, verify: bool | None = None) -> TransferTask:
        """Return the work of a plan for an engine. `PartialCoverageError` if bytes are missing."""
        reads = self.plan_reads(plan, cost, verify=verify)
        leaves = self._leaves_to_verify(verify)
        return TransferTask(plan.runs, plan.permutes, reads.reads, self.sources, leaves, self.failover)

    def threads(self, plan: ViewPlan, cost: ReadCost, *, verify: bool | None = None) -> int:
        """Return the most threads that read a plan at the same time."""
        return threads_for(self.transfer_task(plan, cost, verify=verify), self.engine.threads)

    def requests(self, planned: ReadPlan) -> tuple[tuple[int, int, int], ...]:
        """Return the requests to the sources as (source, start, end), one for each shard of a range."""
        out: list[tuple[int, int, int]] = []
        for read in planned.reads:
            source = self.sources[read.source]
            if isinstance(source, FileShards | StoreShards) and not read.gathers:
                out += [(read.source, start, end) for start, end in source.split_range(read.start, read.end)]
            else:
                out.append((read.source, read.start, read.end))
        return tuple(out)

    def read_bytes(self, start: int, end: int) -> memoryview:
        """Read a range of canonical bytes, verified like any read. `PartialCoverageError` if bytes are missing."""
        out = memoryview(bytearray(end - start))
        plan = ViewPlan(TensorIndex(()), (), (Contiguous("", 0, start, end - start),), (), end - start)
        self.engine.fill(self.transfer_task(plan, ReadCost()), HostTarget([(0, out)]))
        return out

    @property
    def space(self) -> ByteSpace:
        """The ByteSpace of the bytes: canonical, unless these are the kept bytes of a view."""
        if self.view is not None:
            return ByteSpace("view", self.view.space_id)
        return ByteSpace("canonical", self.index_multihash)

    @property
    def verifies(self) -> bool:
        """Reads are verified by default: bytes come from a policy, a store or a peer, and their hashes are known."""
        is_foreign = self.failover is not None or any(isinstance(source, _VERIFIED_SOURCES) for source in self.sources)
        return is_foreign and self.leaves is not None

    def _leaves_to_verify(self, verify: bool | None) -> LeafDigests | None:
        """Return the digests to verify a read with."""
        if verify is None:
            verify = self.verifies
        return LeafDigests(self.index, self.leaves) if verify and self.leaves is not None else None


class CanonicalBytes:
    """The canonical ByteSpace of a replica, readable in any order."""

    def __init__(self, replica: Replica) -> None:
        self._replica = replica
        self._plan = make_plan(replica.index, NormalView(()))
        replica.check_coverage(self._plan)
        self._starts = [run.target for run in self._plan.runs]
        self.size = self._plan.size

    def read_into(self, start: int, target: memoryview) -> None:
        """Fill the target with the bytes from `start` on, padding included, in the calling thread."""
        stop = start + len(target)
        first = max(0, bisect_right(self._starts, start) - 1)
        runs = tuple(_clip(self._plan.runs[first : bisect_left(self._starts, stop)], start, stop))
        fill(self._task(runs), HostTarget([(0, target)]), 1)

    @property
    def threads(self) -> int:
        """The number of threads that may call `read_into` in parallel."""
        return threads_for(self._task(self._plan.runs), self._replica.engine.threads)

    def _task(self, runs: tuple[Run, ...]) -> TransferTask:
        plan = ViewPlan(TensorIndex(()), (), runs, (), self.size)
        # The bytes are hashed or published, so a corrupt file must not pass, even one that the caller opened.
        return self._replica.transfer_task(plan, self._replica.cost, verify=True)


def data_digest(replica: Replica) -> bytes:
    """Return the TreeHash of the canonical ByteSpace. Reads all bytes unless the leaf digests are known."""
    return tree_root(replica.leaves if replica.leaves is not None else _hash_leaves(replica))


def _hash_leaves(replica: Replica) -> list[bytes]:
    canonical = CanonicalBytes(replica)
    size = leaf_size(canonical.size)

    def hash_leaf(start: int) -> bytes:
        buffer = memoryview(bytearray(min(size, canonical.size - start)))
        canonical.read_into(start, buffer)
        return hashlib.sha256(buffer).digest()

    return IO_POOL.map_all(hash_leaf, range(0, canonical.size, size), limit=canonical.threads)


def _clip(runs: tuple[Run, ...], start: int, stop: int) -> list[Run]:
    """Return the part of canonical runs inside of a window, with targets relative to the window."""
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
