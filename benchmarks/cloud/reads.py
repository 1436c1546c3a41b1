"""Scan, cold stream, tensors, references and uploads over a slow network, beside a bare client.

A proxy in several processes delays each request and limits the bandwidth of each connection, so that throughput is a
matter of requests in flight. The bare client is `obstore` with the same bytes, in ranges of 8 MiB, or the exact ranges
of the references. It knows all ranges in advance, verifies nothing, decodes nothing, and runs with its best number of
concurrent requests.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import Any

import numpy as np

import warpdata as wd
from benchmarks.harness.bare_store import ByteRange, open_bare_store, put_files, read_ranges, upload_in_one_part
from benchmarks.harness.data import make_media_files, make_small_files, scratch
from benchmarks.harness.proxy import CloudProxy
from benchmarks.harness.timing import Arm, RunOptions, Timings, format_bytes, interleave
from benchmarks.media.dataset import ARTIFACT, DATASET, MediaFiles, artifact_shards, publish_media, shuffle_positions
from benchmarks.results import Measurement, Outcome
from benchmarks.tables.dataset import open_table, publish_table, shards_of
from warpdata import Settings
from warpdata.primitives.hashing import blob_key
from warpdata.primitives.parallel import usable_cores
from warpdata.repository.manifest import iter_shards
from warpdata.testing import S3Endpoint, S3Server

__all__ = ["run"]

_MODEL = "bench/model"
_RANGE_BYTES = 8 << 20
_BATCH = 256
_MEDIA_BYTES = (30_000, 50_000)
_CONCURRENCY = (8, 16, 32, 64, 128)
_BYTES_PER_S_PER_CORE = 4e6
"""Bandwidth of a connection for each core of this machine, so that proxies and server are not the limit."""


@dataclass(frozen=True, slots=True)
class _Sizes:
    """Amounts of data. They grow with the cores, as the bandwidth does, so that a run takes as long anywhere."""

    table_files: int
    media_files: int
    tensor_count: int
    references: int

    @staticmethod
    def of(options: RunOptions) -> _Sizes:
        if options.is_smoke:
            return _Sizes(2, 300, 2, _BATCH)
        cores = usable_cores()
        return _Sizes(16 * cores, 10_000 * cores, 8 * cores, 8 * _BATCH * cores)


@dataclass(frozen=True, slots=True)
class _Cloud:
    """A server as seen through the proxy, and the size of the data."""

    s3: S3Endpoint
    sizes: _Sizes

    def settings(self, **overrides: Any) -> Settings:
        return self.s3.settings(cache_dir=scratch("cloud-cache"), **overrides)

    def url(self, name: str) -> str:
        return self.s3.url(name)


@dataclass(frozen=True, slots=True)
class _Comparison:
    """One kind of work: ours, and the bare client with a number of concurrent requests. Both return bytes."""

    case: str
    amount: str
    size_bytes: int
    ours: Arm
    bare: Callable[[int], int]
    promise: str
    item_count: int = 0

    def measure(self, rounds: int) -> tuple[Measurement, str]:
        """Find the best concurrency of the bare client, then compare both in turn."""
        sweep = interleave({str(n): _arm(self.bare, n) for n in _CONCURRENCY}, 1, warmups=0)
        best = min(_CONCURRENCY, key=lambda n: sweep.median_s(str(n)))
        timings = interleave({"ours": self.ours, "bare": _arm(self.bare, best)}, rounds)
        rates = ", ".join(f"{n}: {self._rate(sweep, str(n))}" for n in _CONCURRENCY)
        measurement = timings.compare(
            self.case,
            "ours",
            "bare",
            peer_name="bare client",
            promise=self.promise,
            detail=f"{self._rate(timings, 'ours')} against {self._rate(timings, 'bare')}; {self.amount}",
        )
        return measurement, f"{self.case}: {best} requests at once are best for the bare client ({rates})."

    def _rate(self, timings: Timings, arm: str) -> str:
        median_s = timings.median_s(arm)
        if self.item_count:
            return f"{self.item_count / median_s:,.0f}/s"
        return f"{self.size_bytes / median_s / 1e6:,.0f} MB/s"


def run(options: RunOptions) -> Outcome:
    latency_s = options.latency_s
    bytes_per_s = options.connection_bytes_per_s or _BYTES_PER_S_PER_CORE * usable_cores()
    sizes = _Sizes.of(options)
    measurements, notes = [], []
    with S3Server() as s3:
        comparisons = [_scan, _stream, _tensors, _references]
        prepared = [prepare(s3, sizes) for prepare in comparisons]
        with CloudProxy(s3.endpoint_url, delay_s=latency_s, bytes_per_s=bytes_per_s) as proxy:
            cloud = _Cloud(replace(s3, endpoint_url=proxy.endpoint_url), sizes)
            for compare in (*prepared, _upload):
                measured, note = compare(cloud).measure(options.rounds)
                measurements.append(measured)
                notes.append(note)
    return Outcome(
        title="Reads and uploads over a slow network",
        method=f"{latency_s * 1000:g} ms for each request and {bytes_per_s / 1e6:g} MB/s for each connection; mode "
        "`remote`, except for the stream, which fills an empty cache.",
        measurements=measurements,
        notes=[
            *notes,
            "Server, proxies and readers share the cores.",
        ],
    )


_Compare = Callable[[_Cloud], _Comparison]


def _scan(s3: S3Endpoint, sizes: _Sizes) -> _Compare:
    """Scan all columns of uncompressed Parquet files, as Arrow batches."""
    paths = make_small_files(sizes.table_files, 16_000_000 if sizes.table_files > 2 else 200_000)
    publish_table(paths, s3.url("scan"), s3.settings(cache_dir=scratch("cloud-publish")))
    upload_in_one_part(s3)

    def compare(cloud: _Cloud) -> _Comparison:
        store, settings = cloud.url("scan"), cloud.settings(mode="remote")
        blobs = [(blob_key(shard.hash), shard.byte_size) for shard in shards_of(open_table(store, settings))]
        size_bytes = sum(size for _, size in blobs)

        def ours() -> int:
            rows = sum(batch.num_rows for batch in open_table(store, settings).batches(100_000))
            return size_bytes if rows else 0

        amount = f"{len(blobs)} files, {format_bytes(size_bytes)}"
        bare = _bare_reader(cloud, "scan", blobs)
        return _Comparison("scan of Parquet files", amount, size_bytes, lambda: ours, bare, "cloud-scan")

    return compare


def _stream(s3: S3Endpoint, sizes: _Sizes) -> _Compare:
    """Stream the bytes of media in a shuffled order, into an empty cache."""
    media = MediaFiles.of(make_media_files(sizes.media_files, _MEDIA_BYTES))
    publish_media(media, s3.url("stream"), s3.settings(cache_dir=scratch("cloud-publish")))
    upload_in_one_part(s3)

    def compare(cloud: _Cloud) -> _Comparison:
        store, number, caches = cloud.url("stream"), count(), scratch("cloud-stream")
        blobs = [(key, shard.byte_size) for key, shard in artifact_shards(store, cloud.settings())]
        size_bytes = sum(size for _, size in blobs)

        def ours() -> Callable[[], int]:
            settings = replace(cloud.settings(), cache_dir=caches / str(next(number)))

            def read() -> int:
                opened = wd.dataset(DATASET, store=store, settings=settings)
                stream = opened.stream(shuffle=True, batch_size=_BATCH, collate="dict")
                found = sum(sum(map(len, batch["file"])) for batch in stream.epoch(0))
                assert found == media.size_bytes, (found, media.size_bytes)
                return size_bytes

            return read

        amount = f"{len(media):,} files, {format_bytes(size_bytes)}"
        bare = _bare_reader(cloud, "stream", blobs)
        return _Comparison("cold shuffled stream", amount, size_bytes, ours, bare, "cloud-stream")

    return compare


def _tensors(s3: S3Endpoint, sizes: _Sizes) -> _Compare:
    """Load all tensors into memory of the caller, verified."""
    rng = np.random.default_rng(4)
    side = 64 if sizes.tensor_count <= 2 else 2048
    model = {f"layers.{n:03}.w": rng.random((side, 2 * side), np.float32) for n in range(sizes.tensor_count)}
    settings = s3.settings(cache_dir=scratch("cloud-publish"))
    wd.DatasetBuilder(_MODEL, s3.url("tensors"), settings=settings).add_tensors("weights", model).publish()
    upload_in_one_part(s3)
    size_bytes = sum(array.nbytes for array in model.values())

    def compare(cloud: _Cloud) -> _Comparison:
        store, settings = cloud.url("tensors"), cloud.settings(mode="remote")
        opened = wd.dataset(_MODEL, store=store, settings=settings)
        shards = next(iter(opened.manifest.tensors.values())).shards
        blobs = [(blob_key(s.hash), s.byte_size) for s in iter_shards(shards, opened.session.catalog.load_page)]

        def ours() -> int:
            tensors = wd.dataset(_MODEL, store=store, settings=settings).tensors()
            loaded = tensors.view().materialize()
            del loaded
            return sum(size for _, size in blobs)

        amount, bare = format_bytes(size_bytes), _bare_reader(cloud, "tensors", blobs)
        return _Comparison("tensors, verified", amount, size_bytes, lambda: ours, bare, "cloud-tensors")

    return compare


def _references(_: S3Endpoint, sizes: _Sizes) -> _Compare:
    """Read random references in batches with `read_many`, from the media of the stream."""
    media = MediaFiles.of(make_media_files(sizes.media_files, _MEDIA_BYTES))
    order = shuffle_positions(len(media), seed=5, limit=sizes.references)
    batches = [order[start : start + _BATCH] for start in range(0, len(order), _BATCH)]

    def compare(cloud: _Cloud) -> _Comparison:
        store, settings = cloud.url("stream"), cloud.settings(mode="remote")
        opened = wd.dataset(DATASET, store=store, settings=settings)
        references = opened.table("main").to_arrow()["file"].to_pylist()
        artifact = opened.artifact(ARTIFACT)
        keys = [key for key, _ in artifact_shards(store, settings)]
        members = [[artifact.member(media.paths[position]) for position in batch] for batch in batches]
        ranges = [[(keys[m.shard], m.offset, m.offset + m.stored_bytes) for m in batch] for batch in members]
        size_bytes = sum(media.size_of(batch) for batch in batches)

        def ours() -> int:
            return sum(
                len(content or b"") for batch in batches for content in wd.read_many([references[at] for at in batch])
            )

        def bare(concurrency: int) -> int:
            return read_ranges(open_bare_store(cloud.s3, "stream"), ranges, concurrency)

        case, amount = f"batches of {_BATCH} random references", f"{len(order):,} of {format_bytes(size_bytes)}"
        return _Comparison(case, amount, size_bytes, lambda: ours, bare, "cloud-references", len(order))

    return compare


def _upload(cloud: _Cloud) -> _Comparison:
    """Publish Parquet files, to a new store each time."""
    paths = make_small_files(cloud.sizes.table_files, 16_000_000 if cloud.sizes.table_files > 2 else 200_000)
    paths = paths[: max(2, len(paths) // 2)]
    size_bytes = sum(path.stat().st_size for path in paths)
    number = count()

    def ours() -> int:
        publish_table(paths, cloud.url(f"up-{next(number)}"), cloud.settings())
        return size_bytes

    def bare(concurrency: int) -> int:
        put_files(open_bare_store(cloud.s3, f"up-bare-{next(number)}"), paths, concurrency)
        return size_bytes

    amount = f"{len(paths)} files, {format_bytes(size_bytes)}"
    return _Comparison("publish of Parquet files", amount, size_bytes, lambda: ours, bare, "cloud-upload")


def _bare_reader(cloud: _Cloud, name: str, blobs: Sequence[tuple[str, int]]) -> Callable[[int], int]:
    ranges: list[ByteRange] = [
        (key, start, min(start + _RANGE_BYTES, size)) for key, size in blobs for start in range(0, size, _RANGE_BYTES)
    ]
    return lambda concurrency: read_ranges(open_bare_store(cloud.s3, name), [ranges], concurrency)


def _arm(bare: Callable[[int], int], concurrency: int) -> Arm:
    return lambda: lambda: bare(concurrency)
