"""Batches of 256 random references with `read_many`, over S3 and from a local store.

The ceiling is `obstore` with the exact byte ranges of the members and the best number of concurrent requests; it
verifies nothing. WebDataset streams whole tars in order, and Lance takes blobs of its own format by row: they do
other work and serve as a scale.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import warpdata as wd
from benchmarks.harness.bare_store import ByteRange, open_bare_store, read_ranges, upload_in_one_part
from benchmarks.harness.data import make_media_files, scratch
from benchmarks.harness.machine import is_installed, skip_lines
from benchmarks.harness.timing import Arm, RunOptions, Timings, format_bytes, interleave
from benchmarks.media.dataset import (
    ARTIFACT,
    DATASET,
    MediaFiles,
    artifact_shards,
    open_references,
    publish_media,
    shuffle_positions,
)
from benchmarks.media.peers import lance_options, open_lance, read_lance, stream_tars, write_lance
from benchmarks.results import Measurement, Outcome
from warpdata import FileRef, Settings
from warpdata.testing import S3Endpoint, S3Server

__all__ = ["run"]

_BATCH = 256
_CONCURRENCY = (16, 32, 64)
_UNIT = "references/s"
_PEER_NOTE = "WebDataset streams whole tars, and Lance reads another format: they do other work and serve as a scale."
_PEERS = {"lance": "Lance blobs, taken by row", "webdataset": "WebDataset, whole tars in order"}


@dataclass(frozen=True, slots=True)
class _Workload:
    """References to read, in batches."""

    media: MediaFiles
    batches: Sequence[Sequence[int]]

    @property
    def reference_count(self) -> int:
        return sum(map(len, self.batches))

    @property
    def size_bytes(self) -> int:
        return sum(self.media.size_of(batch) for batch in self.batches)


def run(options: RunOptions) -> Outcome:
    media = MediaFiles.of(make_media_files(300 if options.is_smoke else 20_000))
    order = shuffle_positions(len(media), seed=5, limit=2 * _BATCH if options.is_smoke else 16 * _BATCH)
    workload = _Workload(media, [order[start : start + _BATCH] for start in range(0, len(order), _BATCH)])
    with S3Server() as s3:
        remote = _time_remote(workload, s3, options)
    local = _time_local(workload, options)
    best = min(map(str, _CONCURRENCY), key=remote.median_s)
    measurements = [_measure("S3", remote, best, "bare obstore ranges", "batch-remote")]
    for case, timings in (("S3", remote), ("local store", local)):
        measurements += [_measure(case, timings, arm, name) for arm, name in _PEERS.items() if arm in timings.by_arm]
    if not any(measurement.case == "local store" for measurement in measurements):
        measurements.append(Measurement(case="local store", unit=_UNIT, ours=local.value("ours", _UNIT)))
    bare = ", ".join(f"{remote.value(str(number), _UNIT):,.0f}/s with {number}" for number in _CONCURRENCY)
    return Outcome(
        title=f"Batches of {_BATCH} references in random order",
        method=f"{workload.reference_count:,} of {len(media):,} members of 5 to 15 kB, "
        f"{format_bytes(workload.size_bytes)}; over S3 in mode `remote`.",
        measurements=measurements,
        notes=[f"Bare ranges by the number of concurrent requests: {bare}.", _PEER_NOTE],
        skipped=skip_lines(["webdataset", "pylance"]),
    )


def _time_remote(workload: _Workload, s3: S3Endpoint, options: RunOptions) -> Timings:
    store, settings = s3.url("batches"), s3.settings(cache_dir=scratch("media-cache"))
    publish_media(workload.media, store, settings)
    bare, ranges = open_bare_store(s3, "batches"), _find_ranges(workload, store, settings)
    arms: dict[str, Arm] = {"ours": _ours(workload, open_references(store, settings, "remote"))}
    for concurrency in _CONCURRENCY:
        read = partial(read_ranges, bare, ranges, concurrency)
        arms[str(concurrency)] = partial(_missing_bytes, read, workload.size_bytes)
    if is_installed("pylance"):
        write_lance(workload.media, s3.url("lance"), lance_options(s3))
        arms["lance"] = _lance(workload, open_lance(s3.url("lance"), lance_options(s3)))
    upload_in_one_part(s3)
    if is_installed("webdataset"):
        reader = wd.connect(store, settings).reader
        tars = [reader.signed_url(key, 3600) for key, _ in artifact_shards(store, settings)]
        arms["webdataset"] = partial(_missing_bytes, partial(stream_tars, tars), workload.media.size_bytes)
    return _interleave(arms, workload, options)


def _time_local(workload: _Workload, options: RunOptions) -> Timings:
    store = scratch("media-store").as_uri()
    settings = Settings(store_url=store, cache_dir=scratch("media-cache"))
    publish_media(workload.media, store, settings)
    arms: dict[str, Arm] = {"ours": _ours(workload, open_references(store, settings))}
    if is_installed("pylance"):
        path = str(scratch("media-lance") / "media.lance")
        write_lance(workload.media, path)
        arms["lance"] = _lance(workload, open_lance(path))
    if is_installed("webdataset"):
        reader = wd.connect(store, settings).reader
        tars = [str(reader.local_path(key)) for key, _ in artifact_shards(store, settings)]
        arms["webdataset"] = partial(_missing_bytes, partial(stream_tars, tars), workload.media.size_bytes)
    timings = _interleave(arms, workload, options)
    for name in ("media-store", "media-cache", "media-lance"):
        scratch(name)
    return timings


def _interleave(arms: dict[str, Arm], workload: _Workload, options: RunOptions) -> Timings:
    counts = dict.fromkeys(arms, workload.reference_count) | {"webdataset": len(workload.media)}
    return interleave(arms, options.rounds).per_item(counts)


def _ours(workload: _Workload, references: Sequence[FileRef]) -> Arm:
    batches = [[references[position] for position in batch] for batch in workload.batches]

    def read() -> int:
        return sum(len(content or b"") for batch in batches for content in wd.read_many(batch))

    return partial(_missing_bytes, read, workload.size_bytes)


def _lance(workload: _Workload, opened: object) -> Arm:
    return partial(_missing_bytes, partial(read_lance, opened, workload.batches), workload.size_bytes)


def _missing_bytes(read: Callable[[], int], expected_bytes: int) -> Callable[[], int]:
    """Wrap a read so that arms of different sizes agree on a count of zero."""
    return lambda: expected_bytes - read()


def _find_ranges(workload: _Workload, store: str, settings: Settings) -> list[list[ByteRange]]:
    artifact = wd.dataset(DATASET, store=store, settings=settings).artifact(ARTIFACT)
    keys = [key for key, _ in artifact_shards(store, settings)]

    def find(position: int) -> ByteRange:
        member = artifact.member(workload.media.paths[position])
        return keys[member.shard], member.offset, member.offset + member.stored_bytes

    return [[find(position) for position in batch] for batch in workload.batches]


def _measure(case: str, timings: Timings, peer: str, peer_name: str, promise: str = "") -> Measurement:
    return timings.compare(case, "ours", peer, peer_name=peer_name, unit=_UNIT, promise=promise)
