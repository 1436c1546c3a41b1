"""Opening must not cost more because a table has many shards.

Opens by name, asks for the schema and the first five rows, with an empty metadata cache and a fresh
client. Times are taken straight from the server; requests and bytes are counted in a pass of their
own, behind a proxy. The peers are handed the list of files, which we have to find by name.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path

from benchmarks.harness.counting_proxy import CountingProxy, Exchange
from benchmarks.harness.data import many_small_files, scratch
from benchmarks.harness.timing import Arm, Effort, Finding, Report, Timings, interleave, megabytes, seconds
from benchmarks.tables.dataset import open_table, publish, shard_sources, shards_of
from benchmarks.tables.peers import arrow_dataset, connect_duckdb, duckdb_rows, parquet_list
from warpdata.digest import blob_key
from warpdata.settings import Settings
from warpdata.testing import S3Endpoint, S3Server

__all__ = ["run"]

_HEAD_ROWS = 5
_SHARD_BYTES = 64 * 1024
_MOST_REQUESTS = 6
_MOST_SLOWDOWN = 1.5


@dataclass(frozen=True, slots=True)
class _Case:
    """A published table and what it takes to open it as if for the first time."""

    shard_count: int
    store: str
    sources: Sequence[str]
    sizes: dict[str, int]


def run(effort: Effort) -> Report:
    many, few = (100, 20) if effort.quick else (2000, 20)
    caches = _fresh_folders()
    with S3Server() as s3:
        cases = {size: _publish(s3, size) for size in (many, few)}
        large, small = cases[many], cases[few]
        arms: dict[str, Arm] = {
            "many": _ours(large, s3.settings(), caches),
            "few": _ours(small, s3.settings(), caches),
            "duckdb": _duckdb(large, s3.settings()),
            "arrow": _arrow(large, s3.settings()),
        }
        timings = interleave(arms, effort.rounds, warmups=2)
        with CountingProxy(s3.endpoint_url) as proxy:
            through = replace(s3, endpoint_url=proxy.endpoint_url).settings()
            seen = {size: _counted(_ours(case, through, caches), proxy) for size, case in cases.items()}
            peers = {
                "DuckDB": _counted(_duckdb(large, through), proxy),
                "pyarrow.dataset": _counted(_arrow(large, through), proxy),
            }
    findings = [
        _slowdown(timings, many, few),
        *(finding for size in (many, few) for finding in _frugality(cases[size], seen[size])),
        *_against(timings, peers, seen[many], many),
    ]
    return Report(
        "Open, schema and head of a table with many shards",
        f"Loopback S3, shards of {megabytes(_SHARD_BYTES)} in four row groups, empty metadata cache.",
        findings,
        [f"Requests of ours at {many:,} shards: {_listed(seen[many])}."],
    )


def _publish(s3: S3Endpoint, shard_count: int) -> _Case:
    store = s3.url(f"open-{shard_count}")
    publish(many_small_files(shard_count, _SHARD_BYTES), store, s3.settings())
    table = open_table(store, s3.settings())
    sizes = {blob_key(shard.hash): shard.byte_size for shard in shards_of(table)}
    return _Case(shard_count, store, shard_sources(store, s3.settings()), sizes)


def _fresh_folders() -> count[int]:
    scratch("open")
    return count()


def _ours(case: _Case, settings: Settings, caches: count[int]) -> Arm:
    def prepare() -> _Opening:
        cache_dir = Path(scratch(f"open/{next(caches)}"))
        return _Opening(case.store, replace(settings, cache_dir=cache_dir))

    return prepare


@dataclass(frozen=True, slots=True)
class _Opening:
    store: str
    settings: Settings

    def __call__(self) -> int:
        table = open_table(self.store, self.settings)
        assert len(table.schema()) == 2
        return int(table.head(_HEAD_ROWS).num_rows)


def _duckdb(case: _Case, settings: Settings) -> Arm:
    query = f"SELECT * FROM {parquet_list(case.sources)} LIMIT {_HEAD_ROWS}"

    def prepare() -> Callable[[], int]:
        connection = connect_duckdb(settings)
        return lambda: duckdb_rows(connection, query, _HEAD_ROWS)

    return prepare


def _arrow(case: _Case, settings: Settings) -> Arm:
    def read() -> int:
        dataset = arrow_dataset(case.sources, settings)
        assert len(dataset.schema) == 2
        return int(dataset.head(_HEAD_ROWS).num_rows)

    return lambda: read


def _counted(arm: Arm, proxy: CountingProxy) -> list[Exchange]:
    opening = arm()
    proxy.take()
    assert opening() == _HEAD_ROWS
    return proxy.take()


def _slowdown(timings: Timings, many: int, few: int) -> Finding:
    slowdown = 1 / timings.speed_ratio("many", "few")
    return Finding(
        f"time at {many:,} shards against {few}",
        seconds(timings.median_s("many")),
        seconds(timings.median_s("few")),
        f"{slowdown:.2f}× the time",
        f"≤ {_MOST_SLOWDOWN}×",
        slowdown <= _MOST_SLOWDOWN,
    )


def _frugality(case: _Case, seen: Sequence[Exchange]) -> list[Finding]:
    fetched: Counter[str] = Counter()
    for exchange in seen:
        key = "blobs/" + exchange.path.rpartition("/blobs/")[2].partition("?")[0]
        if key in case.sizes:
            fetched[key] += exchange.body_bytes
    largest = max((size / case.sizes[key] for key, size in fetched.items()), default=0.0)
    return [
        Finding(
            f"requests at {case.shard_count:,} shards",
            str(len(seen)),
            target=f"≤ {_MOST_REQUESTS}",
            is_met=len(seen) <= _MOST_REQUESTS,
        ),
        Finding(
            f"bytes fetched at {case.shard_count:,} shards",
            f"{megabytes(sum(e.body_bytes for e in seen))}; {len(fetched)} shard touched, {largest:.0%} of it read",
            target="no whole shard",
            is_met=largest < 1,
        ),
    ]


def _against(timings: Timings, peers: dict[str, list[Exchange]], ours: Sequence[Exchange], many: int) -> list[Finding]:
    findings = []
    for name, arm in (("DuckDB", "duckdb"), ("pyarrow.dataset", "arrow")):
        ratio = timings.speed_ratio("many", arm)
        findings.append(
            Finding(
                f"head at {many:,} shards against {name}",
                f"{seconds(timings.median_s('many'))}, {len(ours)} requests",
                f"{seconds(timings.median_s(arm))}, {len(peers[name])} requests",
                f"{ratio:.2f} ({timings.spread('many', arm)})",
            )
        )
    return findings


def _listed(seen: Sequence[Exchange]) -> str:
    """What each request was for, by the part of its path that tells."""
    return ", ".join(f"{e.method} {_kind(e.path)} ({e.status}, {megabytes(e.body_bytes)})" for e in seen)


def _kind(path: str) -> str:
    for kind in ("latest.json", "heads", "manifests", "blobs"):
        if f"/{kind}" in path:
            return kind
    return "other"
