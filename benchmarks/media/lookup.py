"""Finding one member among many: time and peak memory.

The indexes are real and written by the publishing code, but no shard has a blob, because a look-up never reads one.
warpdata opens the dataset by name and finds a member; the peer receives the path of its index file. The peak memory
is that of a process that looks up members from all over the index.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import warpdata as wd
from benchmarks.harness.data import make_once, scratch
from benchmarks.harness.process import Worker
from benchmarks.harness.timing import Arm, RunOptions, interleave
from benchmarks.media.dataset import ARTIFACT, DATASET, start_reader
from benchmarks.media.pypi_peer import PEER_ABSENT, PEER_NAME, PEER_NOTE, PypiPeer, find_pypi_peer
from benchmarks.results import Measurement, Outcome
from warpdata import Settings, connect
from warpdata.kinds.artifacts import ArtifactEntry, Member, PackedMember, write_index
from warpdata.primitives.hashing import blob_key, fingerprint_file
from warpdata.repository.catalog import MAIN, Transaction, commit
from warpdata.repository.manifest import Manifest, Shard, page_shards

__all__ = ["run"]

_MEMBER_BYTES = 10_000
_SHARD_MEMBERS = 10_000
_LOOKUPS = 1000


def run(options: RunOptions) -> Outcome:
    few, many = (2000, 20_000) if options.is_smoke else (100_000, 10_000_000)
    peer = find_pypi_peer(options)
    cache = scratch("media-cache")
    small, large = (make_once(f"members-{count}", partial(_publish, count)).as_uri() for count in (few, many))
    peaks = [
        _find_in_process(small, few, _LOOKUPS, cache),
        _find_in_process(large, many, _LOOKUPS, cache),
        _find_in_process(large, many, 20 * _LOOKUPS, cache),
    ]
    case = f"peak memory of {{:,}} look-ups among {many:,} members"
    return Outcome(
        title="Find one member among many",
        method="A local store.",
        measurements=[
            _measure_time(small, few, peer, cache, options),
            _measure_memory(case.format(_LOOKUPS), peaks[1], peaks[0], f"{few:,} members", "lookup-memory"),
            _measure_memory(case.format(20 * _LOOKUPS), peaks[2], peaks[1], f"{_LOOKUPS:,} look-ups"),
        ],
        notes=[PEER_NOTE, "warpdata also opens the dataset by name; the peer only opens its index."] if peer else [],
        skipped=[] if peer else [PEER_ABSENT],
    )


def _publish(member_count: int, directory: Path) -> None:
    """Publish a dataset whose artifact has an index of `member_count` members and no blobs."""
    store = directory.as_uri()
    session = connect(store, Settings(store_url=store, cache_dir=scratch("media-cache")))
    shards = [
        Shard(hashlib.sha256(number.to_bytes(8, "little")).hexdigest(), _SHARD_MEMBERS * _MEMBER_BYTES)
        for number in range(-(-member_count // _SHARD_MEMBERS))
    ]
    paged = page_shards(shards)
    for digest, data in paged.new_pages.items():
        session.writer.create(blob_key(digest), data)
    staged = scratch("media-index") / "members"
    written = write_index(_members(member_count), len(shards), staged)
    fingerprint = fingerprint_file(staged)
    session.writer.create_file(blob_key(fingerprint.blob.hash), staged, fingerprint)
    entry = ArtifactEntry("tar_shards", paged.shards, fingerprint.blob, written.footer, member_count)
    manifest = Manifest(DATASET, artifacts={ARTIFACT: entry.payload()})
    txn = Transaction(DATASET, MAIN, session.new_id(), "replace", "bench", "members", session.timestamp())
    commit(session.writer, txn, lambda _: manifest, session.pause)
    scratch("media-index")


def _members(member_count: int) -> Iterator[PackedMember]:
    for number in range(member_count):
        shard, position = divmod(number, _SHARD_MEMBERS)
        offset = position * _MEMBER_BYTES + 512
        yield PackedMember(Member(_path(number), shard, offset, _MEMBER_BYTES - 512, _MEMBER_BYTES - 512, number))


def _path(number: int) -> str:
    return f"train/{number // 1000:05d}/{number:08d}.jpg"


def _measure_time(
    store: str, member_count: int, peer: PypiPeer | None, cache: Path, options: RunOptions
) -> Measurement:
    case = f"open an index of {member_count:,} members and find one"
    settings = Settings(store_url=store, cache_dir=cache)
    rng = random.Random(6)

    def ours() -> Callable[[], int]:
        path = _path(rng.randrange(member_count))
        return lambda: int(
            wd.dataset(DATASET, store=store, settings=settings).artifact(ARTIFACT).member(path).path == path
        )

    arms: dict[str, Arm] = {"ours": ours}
    if peer is None:
        return Measurement(case=case, unit="ms", ours=interleave(arms, options.rounds).value("ours", "ms"))
    index = scratch("peer-index") / "index.parquet"
    with peer.start({}) as worker:
        worker.call("write_index", paths=[_path(number) for number in range(member_count)], index=str(index))

        def theirs() -> Callable[[], int]:
            return partial(_find_with_peer, worker, index, _path(rng.randrange(member_count)))

        timings = interleave(arms | {"peer": theirs}, options.rounds)
    scratch("peer-index")
    return timings.compare(case, "ours", "peer", peer_name=PEER_NAME, promise="lookup-time")


def _find_with_peer(worker: Worker, index: Path, path: str) -> int:
    return int(worker.call("find", index=str(index), path=path)["found"])


def _measure_memory(
    case: str, peak_bytes: int, baseline_bytes: int, baseline_name: str, promise: str = ""
) -> Measurement:
    return Measurement(
        case=case,
        unit="MB",
        ours=peak_bytes / 1e6,
        peer=baseline_bytes / 1e6,
        peer_name=baseline_name,
        is_baseline=True,
        ratio=peak_bytes / baseline_bytes,
        quantity="memory",
        promise=promise,
    )


def _find_in_process(store: str, member_count: int, lookup_count: int, cache: Path) -> int:
    """Look up members in a new process and return its peak memory."""
    rng = random.Random(7)
    paths = [_path(rng.randrange(member_count)) for _ in range(lookup_count)]
    with start_reader({"WARP_CACHE_DIR": str(cache)}) as worker:
        answer = worker.call("find", store=store, paths=paths)
    assert answer["found"] == lookup_count
    return int(answer["peak_bytes"])
