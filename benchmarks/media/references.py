"""References read one by one in random order: local store, S3, and the cache.

Every arm reads in a process of its own, which has opened the dataset and holds all references before the clock
starts. warpdata's references come from a table column and are verified. The peer packs the same files into tars. It
is slow, so it reads a part of the order, and speeds are compared per reference.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import Path

from benchmarks.harness.bare_store import upload_in_one_part
from benchmarks.harness.data import make_media_files, scratch
from benchmarks.harness.process import Worker
from benchmarks.harness.timing import Arm, RunOptions, Timings, format_bytes, interleave
from benchmarks.media.dataset import SHARD_BYTES, MediaFiles, publish_media, shuffle_positions, start_reader
from benchmarks.media.pypi_peer import PEER_ABSENT, PEER_NAME, PEER_NOTE, PeerCopy, PypiPeer, find_pypi_peer
from benchmarks.results import Measurement, Outcome
from warpdata import load_settings
from warpdata.testing import S3Endpoint, S3Server

__all__ = ["run"]

_UNIT = "references/s"


@dataclass(frozen=True, slots=True)
class _Read:
    """A command for a process, and the bytes it must return."""

    worker: Worker
    method: str
    expected_bytes: int

    def __call__(self) -> int:
        """Return the number of missing bytes, on which arms of different sizes can agree."""
        return self.expected_bytes - int(self.worker.call(self.method)["bytes"])


def run(options: RunOptions) -> Outcome:
    media = MediaFiles.of(make_media_files(300 if options.is_smoke else 20_000))
    peer = find_pypi_peer(options)
    measurements = _measure_local(media, peer, options)
    with S3Server() as s3:
        store = s3.url("references")
        publish_media(media, store, s3.settings(cache_dir=scratch("media-publish")))
        version = peer and peer.publish(media, s3.url("peer"), s3.environ(), SHARD_BYTES)
        upload_in_one_part(s3)
        bench = _Bench(media, s3, store, peer, version or "", options)
        measurements += [_measure_remote(bench), *_measure_cold_epoch(bench), _measure_cached_epoch(bench)]
    return Outcome(
        title="References in random order",
        method=f"{len(media):,} members of 5 to 15 kB, {format_bytes(media.size_bytes)} in total, "
        "all in the page cache.",
        measurements=measurements,
        notes=[PEER_NOTE, "The peer reads its local tars in its default mode, `hybrid`."] if peer else [],
        skipped=[] if peer else [PEER_ABSENT],
    )


@dataclass(frozen=True, slots=True)
class _Bench:
    """Media that warpdata and the peer published to S3."""

    media: MediaFiles
    s3: S3Endpoint
    store: str
    peer: PypiPeer | None
    version: str
    options: RunOptions

    def environ(self, cache: Path, mode: str) -> dict[str, str]:
        return {**self.s3.environ(), "WARP_CACHE_DIR": str(cache), "WARP_MODE": mode}

    def peer_copy(self, peer: PypiPeer, mode: str, workspace: str = "peer-workspace") -> PeerCopy:
        return PeerCopy(peer, self.s3.environ(), self.s3.url("peer"), self.version, scratch(workspace), mode)


def _measure_local(media: MediaFiles, peer: PypiPeer | None, options: RunOptions) -> list[Measurement]:
    store, cache = scratch("media-store").as_uri(), scratch("media-cache")
    publish_media(media, store, load_settings({"WARP_CACHE_DIR": str(cache)}))
    part = 50 if options.is_smoke else 5000
    order = shuffle_positions(len(media), seed=1)
    counts = {"ours": len(order), "scalars": len(order), "peer": part}
    with ExitStack() as stack:
        ours = stack.enter_context(_open_reader({"WARP_CACHE_DIR": str(cache)}, store, order))
        methods = {"ours": "read", "scalars": "read_scalars"}
        reads = {arm: _Read(ours, method, media.size_bytes) for arm, method in methods.items()}
        if peer is not None:
            workspace = scratch("peer-store")
            version = peer.publish(media, workspace.as_uri(), {}, SHARD_BYTES)
            copy = PeerCopy(peer, {}, workspace.as_uri(), version, workspace, "hybrid")
            worker = stack.enter_context(copy.open(media, order[:part]))
            reads["peer"] = _Read(worker, "read", media.size_of(order[:part]))
        timings = _interleave(reads, counts, options)
    scratch("peer-store")
    scratch("media-store")
    return [
        _measure("local store", timings, "ours", "peer", "reference-local"),
        _measure("local store, elements of the Arrow column", timings, "scalars", "peer"),
    ]


def _measure_remote(bench: _Bench) -> Measurement:
    """Measure mode `remote`, in which every reference is a request."""
    part = 20 if bench.options.is_smoke else 500
    order = shuffle_positions(len(bench.media), seed=2, limit=part)
    size = bench.media.size_of(order)
    environ = bench.environ(scratch("media-cache"), "remote")
    with ExitStack() as stack:
        reads = {"ours": _Read(stack.enter_context(_open_reader(environ, bench.store, order)), "read", size)}
        if bench.peer is not None:
            copy = bench.peer_copy(bench.peer, "remote")
            reads["peer"] = _Read(stack.enter_context(copy.open(bench.media, order)), "read", size)
        timings = _interleave(reads, {"ours": part, "peer": part}, bench.options)
    return _measure("S3, mode `remote`", timings, "ours", "peer", "reference-remote")


def _measure_cold_epoch(bench: _Bench) -> list[Measurement]:
    """Measure mode `auto` over all members with an empty cache, and the peer also in its caching mode."""
    order = shuffle_positions(len(bench.media), seed=3)
    part = 20 if bench.options.is_smoke else 500
    numbers = count()
    with ExitStack() as stack:
        previous_round = stack.enter_context(ExitStack())

        def ours() -> Callable[[], int]:
            previous_round.close()
            cache = scratch(f"media-cache/{next(numbers)}")
            worker = previous_round.enter_context(_open_reader(bench.environ(cache, "auto"), bench.store, order))
            return _Read(worker, "read", bench.media.size_bytes)

        arms: dict[str, Arm] = {"ours": ours}
        if bench.peer is not None:
            worker = stack.enter_context(bench.peer_copy(bench.peer, "remote").open(bench.media, order[:part]))
            arms["peer"] = partial(_prepared, _Read(worker, "read", bench.media.size_of(order[:part])))
            arms["caching"] = _caching_peer(bench, bench.peer, order, stack)
        counts = {"ours": len(order), "peer": part, "caching": len(order)}
        timings = interleave(arms, bench.options.rounds).per_item(counts)
    scratch("media-cache")
    scratch("peer-caching")
    case = "S3, mode `auto`, a cold epoch"
    measurements = [_measure(case, timings, "ours", "peer", "reference-epoch")]
    if bench.peer is not None:
        measurements.append(_measure(f"{case}, peer in its mode `hybrid`", timings, "ours", "caching"))
    return measurements


def _caching_peer(bench: _Bench, peer: PypiPeer, order: Sequence[int], stack: ExitStack) -> Arm:
    numbers = count()
    previous_round = stack.enter_context(ExitStack())

    def prepare() -> Callable[[], int]:
        previous_round.close()
        copy = bench.peer_copy(peer, "hybrid", f"peer-caching/{next(numbers)}")
        worker = previous_round.enter_context(copy.open(bench.media, order, is_cold=True))
        return _Read(worker, "read", bench.media.size_of(order))

    return prepare


def _measure_cached_epoch(bench: _Bench) -> Measurement:
    order = shuffle_positions(len(bench.media), seed=4)
    files = [str(bench.media.directory / path) for path in bench.media.paths]
    environ = bench.environ(scratch("media-cache"), "auto")
    with _open_reader(environ, bench.store, order, files) as worker:
        for _ in range(2):
            worker.call("read")
        methods = {"ours": "read", "files": "read_plain"}
        reads = {arm: _Read(worker, method, bench.media.size_bytes) for arm, method in methods.items()}
        timings = _interleave(reads, dict.fromkeys(methods, len(order)), bench.options)
    scratch("media-cache")
    return timings.compare(
        "S3, mode `auto`, a second epoch from the cache",
        "ours",
        "files",
        peer_name="one plain file per member",
        unit=_UNIT,
        promise="reference-cached",
    )


@contextmanager
def _open_reader(
    environ: Mapping[str, str], store: str, order: Sequence[int], files: Sequence[str] = ()
) -> Iterator[Worker]:
    with start_reader(environ) as worker:
        worker.call("open", store=store)
        worker.call("set_order", positions=list(order), files=list(files))
        yield worker


def _interleave(reads: Mapping[str, _Read], counts: Mapping[str, int], options: RunOptions) -> Timings:
    arms: dict[str, Arm] = {name: partial(_prepared, read) for name, read in reads.items()}
    return interleave(arms, options.rounds).per_item(counts)


def _prepared(read: _Read) -> Callable[[], int]:
    return read


def _measure(case: str, timings: Timings, ours: str, peer: str, promise: str = "") -> Measurement:
    if peer not in timings.by_arm:
        return Measurement(case=case, unit=_UNIT, ours=timings.value(ours, _UNIT))
    return timings.compare(case, ours, peer, peer_name=PEER_NAME, unit=_UNIT, promise=promise)
