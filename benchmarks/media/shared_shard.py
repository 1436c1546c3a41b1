"""Several processes meet one cold shard: does each byte leave the server once?

Every process reads all members, each in another random order, with a cache that all of them share and
that is empty at first. A proxy counts what the server sends of the shard.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace

from benchmarks.harness.counting_proxy import CountingProxy, Exchange
from benchmarks.harness.data import media_files, scratch
from benchmarks.harness.process import reader
from benchmarks.harness.timing import Effort, Finding, Report, megabytes
from benchmarks.media.dataset import Media, artifact_shards, publish_media, shuffled
from warpdata.manifest import Shard
from warpdata.testing import S3Endpoint, S3Server

__all__ = ["run"]

_MOST = 1.1
_PROCESSES = (1, 8)


def run(effort: Effort) -> Report:
    media = Media.of(media_files(300 if effort.quick else 5000))
    with S3Server() as s3, CountingProxy(s3.endpoint_url) as proxy:
        store, settings = s3.url("cold"), s3.settings(cache_dir=scratch("media-publish"))
        publish_media(media, store, settings)
        ((key, shard),) = artifact_shards(store, settings)
        through = replace(s3, endpoint_url=proxy.endpoint_url)
        findings = []
        for process_count in _PROCESSES:
            proxy.take()
            _read_all(media, store, through, process_count)
            findings.append(_finding(process_count, key, shard, proxy.take()))
    return Report(
        "Bytes that leave the server, one cold shard",
        f"Loopback S3, {len(media):,} members in one shard of {megabytes(shard.byte_size)}, mode `auto`; every process "
        "reads all of them one by one.",
        findings,
        is_timed=False,
    )


def _read_all(media: Media, store: str, through: S3Endpoint, process_count: int) -> None:
    environ = {**through.environ(), "WARP_CACHE_DIR": str(scratch("media-cache")), "WARP_MODE": "auto"}
    with ExitStack() as stack:
        children = [stack.enter_context(reader(environ)) for _ in range(process_count)]
        for number, child in enumerate(children):
            child.ask("open", store=store)
            child.ask("order", positions=shuffled(len(media), seed=number))
        for child in children:
            child.tell("read")
        for child in children:
            assert child.hear()["bytes"] == media.size_bytes


def _finding(process_count: int, key: str, shard: Shard, seen: list[Exchange]) -> Finding:
    sent = [exchange for exchange in seen if f"/{key}" in exchange.path]
    share = sum(exchange.body_bytes for exchange in sent) / shard.byte_size
    return Finding(
        f"{process_count} {'process' if process_count == 1 else 'processes'}",
        f"{megabytes(share * shard.byte_size)} in {len(sent):,} requests",
        ratio=f"{share:.3f}× the shard",
        target=f"≤ {_MOST}×",
        is_met=share <= _MOST,
    )
