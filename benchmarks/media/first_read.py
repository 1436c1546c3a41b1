"""Requests until the first reference of an unknown dataset.

A new process with an empty cache reads behind a counting proxy, either through the first row of the table or by the
path of a member. Requests that open the version (head and manifest) are listed but not counted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import warpdata as wd
from benchmarks.harness.data import make_media_files, scratch
from benchmarks.harness.proxy import Exchange, S3Proxy
from benchmarks.harness.timing import RunOptions, format_bytes
from benchmarks.media.dataset import (
    ARTIFACT,
    COLUMN,
    DATASET,
    MediaFiles,
    artifact_shards,
    publish_media,
    start_reader,
)
from benchmarks.results import Measurement, Outcome
from warpdata import Settings
from warpdata.primitives.hashing import blob_key
from warpdata.testing import S3Endpoint, S3Server

__all__ = ["run"]

_TINY_BYTES = 100
_ACCESSES = (
    ("the first row of the table", "remote"),
    ("the first row of the table", "auto"),
    ("a member by path", "auto"),
)


@dataclass(frozen=True, slots=True)
class _PublishedMedia:
    store: str
    member_count: int
    path: str
    kinds: dict[str, str]
    """Kind of each blob by key."""


@dataclass(frozen=True, slots=True)
class _FirstRead:
    case: str
    published: _PublishedMedia
    seen: Sequence[Exchange]


def run(options: RunOptions) -> Outcome:
    few, many = (300, 2000) if options.is_smoke else (20_000, 100_000)
    with S3Server() as s3, S3Proxy(s3.endpoint_url) as proxy:
        settings = s3.settings(cache_dir=scratch("media-publish"))
        small, large = s3.url("first-small"), s3.url("first-large")
        media = MediaFiles.of(make_media_files(few))
        publish_media(media, small, settings)
        _publish_tiny(many, large, settings)
        published = [_describe(small, settings, media.paths[0]), _describe(large, settings, _path(0))]
        through = replace(s3, endpoint_url=proxy.endpoint_url)
        reads = [_read(each, access, mode, through, proxy) for each in published for access, mode in _ACCESSES]
    return Outcome(
        title="The first reference of an unknown dataset",
        method="Loopback S3, an empty cache, a new process. Background requests that fill the cache count as well.",
        measurements=[_measure(read) for read in reads],
        notes=[f"{read.case}: {_list_requests(read)}." for read in reads],
        is_timed=False,
    )


def _publish_tiny(member_count: int, store: str, settings: Settings) -> None:
    """Publish many tiny members; only the size of the index matters."""
    import pyarrow as pa

    files = {_path(number): number.to_bytes(_TINY_BYTES, "little") for number in range(member_count)}
    table = pa.table({"id": list(range(member_count)), COLUMN: list(files)})
    builder = wd.DatasetBuilder(DATASET, store, settings=settings).add_table("main", table)
    builder.add_artifact(ARTIFACT, files).bind("main", COLUMN, ARTIFACT, "file").publish()


def _path(number: int) -> str:
    return f"{number // 1000:04d}/{number:06d}.bin"


def _describe(store: str, settings: Settings, path: str) -> _PublishedMedia:
    opened = wd.dataset(DATASET, store=store, settings=settings)
    artifact = opened.artifact(ARTIFACT)
    kinds = {blob_key(blob.hash): "table" for blob in opened.blobs()}
    kinds |= {key: "member" for key, _ in artifact_shards(store, settings)}
    kinds[blob_key(artifact.entry.index.hash)] = "member index"
    return _PublishedMedia(store, len(artifact), path, kinds)


def _read(published: _PublishedMedia, access: str, mode: str, through: S3Endpoint, proxy: S3Proxy) -> _FirstRead:
    environ = {**through.environ(), "WARP_CACHE_DIR": str(scratch("media-cache")), "WARP_MODE": mode}
    with start_reader(environ) as worker:
        proxy.take()
        if access == "a member by path":
            worker.call("read_member", store=published.store, path=published.path)
        else:
            worker.call("read_first", store=published.store)
        return _FirstRead(f"{access}, {published.member_count:,} members, mode `{mode}`", published, proxy.take())


def _measure(read: _FirstRead) -> Measurement:
    counted = [exchange for exchange in read.seen if "/blobs/" in exchange.path]
    return Measurement(
        case=read.case,
        unit="requests",
        ours=len(counted),
        detail=format_bytes(sum(exchange.body_bytes for exchange in counted)),
        promise="first-read-requests",
    )


def _list_requests(read: _FirstRead) -> str:
    return ", ".join(
        f"{each.method} {_kind(read, each.path)} ({each.status}, {format_bytes(each.body_bytes)})" for each in read.seen
    )


def _kind(read: _FirstRead, path: str) -> str:
    key = "blobs/" + path.rpartition("/blobs/")[2].partition("?")[0]
    kinds = ("latest.json", "heads", "manifests")
    return read.published.kinds.get(key) or next((kind for kind in kinds if f"/{kind}" in path), "other")
