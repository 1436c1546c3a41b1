"""How many requests stand between a newcomer and the first reference.

A process that has never seen the dataset, with an empty cache, behind a proxy that counts. Once it takes
the first row of the table and reads what that refers to; once it asks the artifact for a member by name.
What belongs to opening (the name, the manifest) is told apart from what comes after.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import warpdata as wd
from benchmarks.harness.counting_proxy import CountingProxy, Exchange
from benchmarks.harness.data import media_files, scratch
from benchmarks.harness.process import reader
from benchmarks.harness.timing import Effort, Finding, Report, megabytes
from benchmarks.media.dataset import ARTIFACT, COLUMN, MEDIA, Media, artifact_shards, publish_media
from warpdata.digest import blob_key
from warpdata.settings import Settings
from warpdata.testing import S3Endpoint, S3Server

__all__ = ["run"]

_MOST_REQUESTS = 5
_TINY_BYTES = 100


@dataclass(frozen=True, slots=True)
class _Case:
    """A published dataset, and what its blobs are, by key."""

    store: str
    member_count: int
    path: str
    kinds: dict[str, str]


@dataclass(frozen=True, slots=True)
class _Way:
    """From the first row of the table, or straight from the artifact."""

    by_table: bool
    mode: str


_WAYS = (_Way(True, "remote"), _Way(True, "auto"), _Way(False, "auto"))


@dataclass(frozen=True, slots=True)
class _First:
    """What a first read took."""

    case: _Case
    way: _Way
    seen: Sequence[Exchange]

    @property
    def title(self) -> str:
        asked = "the first row of the table" if self.way.by_table else "a member by its path"
        return f"{asked}, {self.case.member_count:,} members, mode `{self.way.mode}`"


def run(effort: Effort) -> Report:
    few, many = (300, 2000) if effort.quick else (20_000, 100_000)
    with S3Server() as s3, CountingProxy(s3.endpoint_url) as proxy:
        settings = s3.settings(cache_dir=scratch("media-publish"))
        small, large = s3.url("first-small"), s3.url("first-large")
        media = Media.of(media_files(few))
        publish_media(media, small, settings)
        _publish_tiny(many, large, settings)
        cases = [_case(small, settings, media.paths[0]), _case(large, settings, _path(0))]
        through = replace(s3, endpoint_url=proxy.endpoint_url)
        counted = [_counted(case, way, through, proxy) for case in cases for way in _WAYS]
    return Report(
        "The first reference of a dataset never seen before",
        "Loopback S3, an empty cache, a fresh process. Background requests that fill the cache count as well.",
        [_finding(first) for first in counted],
        [f"{first.title}: {', '.join(_listed(first))}." for first in counted],
        is_timed=False,
    )


def _publish_tiny(member_count: int, store: str, settings: Settings) -> None:
    """Many members that are hardly there: what counts is how many the index has."""
    import pyarrow as pa

    files = {_path(number): number.to_bytes(_TINY_BYTES, "little") for number in range(member_count)}
    table = pa.table({"id": list(range(member_count)), COLUMN: list(files)})
    builder = wd.DatasetBuilder(MEDIA, store, settings=settings).add_table("main", table)
    builder.add_artifact(ARTIFACT, files).bind("main", COLUMN, ARTIFACT, "file").publish()


def _path(number: int) -> str:
    return f"{number // 1000:04d}/{number:06d}.bin"


def _case(store: str, settings: Settings, path: str) -> _Case:
    opened = wd.dataset(MEDIA, store=store, settings=settings)
    artifact = opened.artifact(ARTIFACT)
    kinds = {blob_key(blob.hash): "table" for blob in opened.blobs()}
    kinds |= {key: "member" for key, _ in artifact_shards(store, settings)}
    kinds[blob_key(artifact.entry.index.hash)] = "member index"
    return _Case(store, len(artifact), path, kinds)


def _counted(case: _Case, way: _Way, through: S3Endpoint, proxy: CountingProxy) -> _First:
    environ = {**through.environ(), "WARP_CACHE_DIR": str(scratch("media-cache")), "WARP_MODE": way.mode}
    with reader(environ) as child:
        proxy.take()
        if way.by_table:
            child.ask("first", store=case.store)
        else:
            child.ask("member", store=case.store, path=case.path)
        return _First(case, way, proxy.take())


def _finding(first: _First) -> Finding:
    after = [exchange for exchange in first.seen if "/blobs/" in exchange.path]
    return Finding(
        f"requests after the manifest, {first.title}",
        f"{len(after)} ({megabytes(sum(exchange.body_bytes for exchange in after))})",
        target=f"≤ {_MOST_REQUESTS}",
        is_met=len(after) <= _MOST_REQUESTS,
    )


def _listed(first: _First) -> Iterator[str]:
    for exchange in first.seen:
        key = "blobs/" + exchange.path.rpartition("/blobs/")[2].partition("?")[0]
        kind = first.case.kinds.get(key) or next(
            (kind for kind in ("latest.json", "heads", "manifests") if f"/{kind}" in exchange.path), "other"
        )
        yield f"{exchange.method} {kind} ({exchange.status}, {megabytes(exchange.body_bytes)})"
