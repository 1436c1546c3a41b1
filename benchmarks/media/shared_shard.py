"""Bytes that a server sends for one cold shard which several processes read at once.

Every process reads all members in another random order, with a shared cache that is empty at first. A proxy counts
the bytes of the shard.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace

from benchmarks.harness.data import make_media_files, scratch
from benchmarks.harness.proxy import Exchange, S3Proxy
from benchmarks.harness.timing import RunOptions, format_bytes
from benchmarks.media.dataset import MediaFiles, artifact_shards, publish_media, shuffle_positions, start_reader
from benchmarks.results import Measurement, Outcome
from warpdata.testing import S3Endpoint, S3Server

__all__ = ["run"]

_PROCESS_COUNTS = (1, 8)


def run(options: RunOptions) -> Outcome:
    media = MediaFiles.of(make_media_files(300 if options.is_smoke else 5000))
    with S3Server() as s3, S3Proxy(s3.endpoint_url) as proxy:
        store, settings = s3.url("cold"), s3.settings(cache_dir=scratch("media-publish"))
        publish_media(media, store, settings)
        ((key, shard),) = artifact_shards(store, settings)
        through = replace(s3, endpoint_url=proxy.endpoint_url)
        measurements = []
        for process_count in _PROCESS_COUNTS:
            proxy.take()
            _read_all(media, store, through, process_count)
            measurements.append(_measure(process_count, key, shard.byte_size, proxy.take()))
    return Outcome(
        title="Bytes sent for one cold shard",
        method=f"Loopback S3, {len(media):,} members in one shard of {format_bytes(shard.byte_size)}, mode `auto`; "
        "every process reads all members one by one.",
        measurements=measurements,
        is_timed=False,
    )


def _read_all(media: MediaFiles, store: str, through: S3Endpoint, process_count: int) -> None:
    environ = {**through.environ(), "WARP_CACHE_DIR": str(scratch("media-cache")), "WARP_MODE": "auto"}
    with ExitStack() as stack:
        workers = [stack.enter_context(start_reader(environ)) for _ in range(process_count)]
        for number, worker in enumerate(workers):
            worker.call("open", store=store)
            worker.call("set_order", positions=shuffle_positions(len(media), seed=number))
        for worker in workers:
            worker.send("read")
        for worker in workers:
            assert worker.receive()["bytes"] == media.size_bytes


def _measure(process_count: int, key: str, shard_bytes: int, seen: list[Exchange]) -> Measurement:
    sent = [exchange for exchange in seen if f"/{key}" in exchange.path]
    sent_bytes = sum(exchange.body_bytes for exchange in sent)
    return Measurement(
        case=f"{process_count} {'process' if process_count == 1 else 'processes'}",
        unit="MB",
        ours=sent_bytes / 1e6,
        peer=shard_bytes / 1e6,
        peer_name="the shard",
        is_baseline=True,
        ratio=sent_bytes / shard_bytes,
        quantity="bytes",
        detail=f"{len(sent):,} requests",
        promise="shared-shard-bytes",
    )
