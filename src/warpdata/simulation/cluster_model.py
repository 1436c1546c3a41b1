"""An epoch on many machines: time, requests, bytes and cost, from planned requests and a model of the store.

The plan is that of the real stream. The first windows of some nodes are planned, and stand for all.
docs/concepts/simulation.md explains the model.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any, Unpack

from warpdata.datasets import Dataset
from warpdata.errors import BadInputError, UnsupportedError
from warpdata.kinds.artifacts import Artifact
from warpdata.kinds.tables import Table
from warpdata.limits import MIB
from warpdata.primitives.arguments import check_arguments
from warpdata.simulation.window_reads import MediaLayout, Requests, TableLayout, WindowReader, WindowReads
from warpdata.streaming import RowKeywords, Stream, TableIdentity

__all__ = ["ClusterModel", "EpochSimulation", "StoreModel", "simulate"]

_SIMULATED_WINDOWS = 64
"""Windows that are planned one by one. Later ones are taken to be like the second half of these."""
_SAMPLED_NODES = 2
ROW_CACHE_BYTES = 256 * MIB
"""Decoded rows that a rank keeps, as streams do."""
_OPEN_REQUESTS = 3
"""Small reads, one after the other, that open a dataset."""


@dataclass(frozen=True, slots=True)
class StoreModel:
    """A store as a node sees it. The defaults are those of an object store in the same region."""

    latency_s: float = 0.03
    connection_bytes_per_s: float = 80e6
    prefix_requests_per_s: float = 5500.0
    """Requests that one prefix answers. Blobs are spread over 256 prefixes by their hash."""
    dollars_per_million_requests: float = 0.40
    dollars_per_gb: float = 0.0


@dataclass(frozen=True, slots=True)
class ClusterModel:
    """The machines of a training job. Ranks of one node share a cache."""

    ranks: int
    nodes: int = 1
    node_bytes_per_s: float = 3e9
    requests_in_flight: int = 32
    """Requests of one rank that are on their way at a time."""
    samples_per_s: float | None = None
    """Samples that one rank trains on in a second; None if only the reads are of interest."""

    def __post_init__(self) -> None:
        if self.nodes < 1 or self.ranks < self.nodes or self.ranks % self.nodes:
            raise BadInputError(
                f"{self.ranks} ranks cannot be divided among {self.nodes} nodes", hint="Use a multiple of the nodes."
            )

    @property
    def ranks_per_node(self) -> int:
        return self.ranks // self.nodes

    def ranks_of(self, node: int) -> range:
        return range(node * self.ranks_per_node, (node + 1) * self.ranks_per_node)


@dataclass(frozen=True, slots=True)
class EpochSimulation:
    """What an epoch would do. `waits_s` is the time in which ranks wait for data and do not train."""

    samples: int
    steps: int
    windows: int
    first_batch_s: float
    epoch_s: float
    waits_s: float
    requests: float
    requests_per_s: float
    hottest_prefix_requests_per_s: float
    node_bytes: float
    """Bytes that one node fetches in an epoch, with a cache that its ranks share."""
    uncached_node_bytes: float
    """The same without a shared cache."""
    dollars: float
    resume_s: float
    """Time from a restart in the middle of the epoch to its next batch, as after the loss of a node."""
    resume_bytes: float
    """Bytes that all nodes fetch again then. No sample is repeated."""
    notes: tuple[str, ...] = ()

    def document(self) -> dict[str, Any]:
        """Return the numbers for JSON."""
        return {name: getattr(self, name) for name in self.__slots__}


@check_arguments
def simulate(
    dataset: Dataset,
    table: str | None = None,
    *,
    cluster: ClusterModel,
    store: StoreModel | None = None,
    **keywords: Unpack[RowKeywords],
) -> EpochSimulation:
    """Simulate an epoch of `dataset.stream(table, **keywords)` on a cluster. Reads the manifest and one footer.

    A filter is evaluated, because the order depends on it.
    """
    if "shard" in keywords:
        raise BadInputError("shard= follows from the ranks of the cluster", hint="Leave it out.")
    keywords["shard"] = (0, cluster.ranks)
    stream = dataset.stream(table, **keywords)
    return _Simulation(dataset, stream, cluster, store or StoreModel()).run()


class _Simulation:
    def __init__(self, dataset: Dataset, stream: Stream, cluster: ClusterModel, store: StoreModel) -> None:
        table, identity = getattr(stream.source, "table", None), stream.source.identity
        if not isinstance(table, Table) or not isinstance(identity, TableIdentity):
            raise UnsupportedError("only a stream over one table can be simulated")
        self._cluster, self._store, self._cache_bytes = cluster, store, ROW_CACHE_BYTES
        self._schedule, self._order = stream.schedule(0), identity.order(0)
        group_rows = table.group_rows() or table.entry.shards.row_count
        self._table = TableLayout(table.entry, dataset.load_page, group_rows, table.estimated_bytes())
        bound = dataset.bound_artifacts(table.name) if stream.options.wants_media else {}
        self._media = [_layout(bound[name][0]) for name in table.schema().names if name in bound]
        self._windows = self._order.window_count if self._order.count else 0

    def run(self) -> EpochSimulation:
        cluster, store, schedule = self._cluster, self._store, self._schedule
        nodes = [self._node(cluster.ranks_of(node)) for node in _spread(0, cluster.nodes, _SAMPLED_NODES)]
        loads = [_mean(list(each)) for each in zip(*nodes, strict=True)]
        first, steady = loads[0], _mean(loads[len(loads) // 2 :])
        total = _sum(loads, steady, self._windows - len(loads))
        train_s = schedule.count / cluster.ranks / cluster.samples_per_s if cluster.samples_per_s else 0.0
        # The next window loads while the ranks train on this one, so only what takes longer is waited for.
        later_s = total.seconds - first.seconds
        epoch_s = first.seconds + max(later_s, train_s)
        requests = total.requests * cluster.nodes
        hottest = max(each.hottest for each in loads)
        resumed = _mean([self._fresh_load(cluster.ranks_of(node)) for node in _spread(0, cluster.nodes, 2)])
        dollars = requests / 1e6 * store.dollars_per_million_requests
        return EpochSimulation(
            samples=schedule.count,
            steps=len(schedule),
            windows=self._windows,
            first_batch_s=_OPEN_REQUESTS * store.latency_s + first.seconds,
            epoch_s=epoch_s,
            waits_s=first.seconds + max(0.0, later_s - train_s),
            requests=requests,
            requests_per_s=requests / epoch_s if epoch_s else 0.0,
            hottest_prefix_requests_per_s=hottest,
            node_bytes=total.node_bytes,
            uncached_node_bytes=total.uncached_bytes,
            dollars=dollars + total.node_bytes * cluster.nodes / 1e9 * store.dollars_per_gb,
            resume_s=_OPEN_REQUESTS * store.latency_s + resumed.seconds,
            resume_bytes=resumed.node_bytes * cluster.nodes,
            notes=tuple(self._notes(hottest)),
        )

    def _notes(self, hottest: float) -> list[str]:
        limit = self._store.prefix_requests_per_s
        if hottest <= limit:
            return []
        return [f"the hottest prefix gets {hottest:,.0f} requests a second, and answers {limit:,.0f}"]

    def _node(self, ranks: range) -> list[_Load]:
        """Return what a node does for the first windows, in their order."""
        shared, alone = self._new_reader(None), self._new_reader(self._cache_bytes)
        one = range(ranks.start, ranks.start + 1)
        loads = []
        for window in range(min(self._windows, _SIMULATED_WINDOWS)):
            reads, uncached_bytes = shared.read(window, ranks), alone.read(window, one).size_bytes * len(ranks)
            load = self._load(reads, uncached_bytes, len(ranks))
            loads.append(replace(load, seconds=self._overlapped_s(reads, len(ranks))) if window else load)
        return loads

    def _fresh_load(self, ranks: range) -> _Load:
        """Return what a node does that starts again in the middle of an epoch, with nothing cached."""
        reads = self._new_reader(None).read(self._windows // 2, ranks)
        return self._load(reads, reads.size_bytes, len(ranks))

    def _new_reader(self, cache_bytes: float | None) -> WindowReader:
        return WindowReader(self._table, self._media, self._order, self._schedule, cache_bytes)

    def _load(self, reads: WindowReads, uncached_bytes: float, ranks: int) -> _Load:
        hottest = max((self._hottest_rate(step, ranks) for step in reads.steps if step.count), default=0.0)
        return _Load(self._seconds(reads, ranks), reads.count, reads.size_bytes, uncached_bytes, hottest)

    def _seconds(self, reads: WindowReads, ranks: int) -> float:
        """Return the time for a window: its steps follow each other, and the requests of a step run side by side."""
        return sum(self._step_seconds(step, ranks) for step in reads.steps if step.count)

    def _overlapped_s(self, reads: WindowReads, ranks: int) -> float:
        """Return the time by which a window after the first delays the epoch.

        Its rows load while the media of the window before it are fetched, so the longer of both counts.
        """
        times = [self._step_seconds(step, ranks) if step.count else 0.0 for step in reads.steps]
        return max(sum(times[:-1]), times[-1])

    def _step_seconds(self, step: Requests, ranks: int) -> float:
        hottest = max(step.by_prefix.values()) * self._cluster.nodes
        return max(self._unlimited_s(step, ranks), hottest / self._store.prefix_requests_per_s)

    def _unlimited_s(self, step: Requests, ranks: int) -> float:
        """Return the time for a step on a store that answers any number of requests."""
        cluster, store = self._cluster, self._store
        one = store.latency_s + step.mean_bytes / store.connection_bytes_per_s
        rounds = step.count / min(step.count, ranks * cluster.requests_in_flight)
        return max(rounds * one, step.size_bytes / cluster.node_bytes_per_s)

    def _hottest_rate(self, step: Requests, ranks: int) -> float:
        """Return the requests a second for the prefix that gets most, from all nodes, without its limit."""
        return max(step.by_prefix.values()) * self._cluster.nodes / self._unlimited_s(step, ranks)


def _layout(artifact: Artifact) -> MediaLayout:
    count = len(artifact)
    hashes = tuple(shard.hash for shard in artifact.shards())
    return MediaLayout(artifact.entry.shards.data_bytes / max(count, 1), count, hashes, artifact.entry.index)


@dataclass(frozen=True, slots=True)
class _Load:
    """One window on one node."""

    seconds: float
    requests: float
    node_bytes: float
    uncached_bytes: float
    hottest: float


def _mean(loads: list[_Load]) -> _Load:
    return _Load(*(fmean(getattr(each, name) for each in loads) for name in _Load.__slots__))


def _sum(loads: list[_Load], more: _Load, count: int) -> _Load:
    """Add up loads, and another one `count` times."""
    return _Load(
        *(sum(getattr(each, name) for each in loads) + count * getattr(more, name) for name in _Load.__slots__)
    )


def _spread(start: int, stop: int, most: int) -> list[int]:
    """Return up to `most` numbers of a range, evenly spread, with the first."""
    count = min(most, stop - start)
    return [start + number * (stop - start) // count for number in range(count)]
