"""Opening a table with many shards: time, requests and bytes until the first five rows.

Each run opens by name, asks for the schema and for the first five rows, with an empty metadata cache and a new
client. Times are measured without a proxy; requests and bytes are counted separately behind one. The peers receive
the file list, which warpdata resolves from the name.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import count

from benchmarks.harness.data import make_small_files, scratch
from benchmarks.harness.proxy import Exchange, S3Proxy
from benchmarks.harness.timing import Arm, RunOptions, format_bytes, interleave
from benchmarks.results import Measurement, Outcome
from benchmarks.tables.dataset import (
    connect_duckdb,
    count_duckdb_rows,
    open_arrow_dataset,
    open_table,
    parquet_list,
    publish_table,
    shard_sources,
    shards_of,
)
from warpdata import Settings
from warpdata.primitives.hashing import blob_key
from warpdata.testing import S3Endpoint, S3Server

__all__ = ["run"]

_HEAD_ROWS = 5
_SHARD_BYTES = 64 * 1024
_PEERS = {"duckdb": "DuckDB", "arrow": "pyarrow.dataset"}


@dataclass(frozen=True, slots=True)
class _PublishedTable:
    shard_count: int
    store: str
    sources: Sequence[str]
    sizes: dict[str, int]
    """Size of each shard by key."""


def run(options: RunOptions) -> Outcome:
    many, few = (100, 20) if options.is_smoke else (2000, 20)
    scratch("open")
    cache_numbers = count()
    with S3Server() as s3:
        large, small = (_publish(s3, shard_count) for shard_count in (many, few))
        arms: dict[str, Arm] = {
            "many": _ours(large, s3.settings(), cache_numbers),
            "few": _ours(small, s3.settings(), cache_numbers),
            "duckdb": _duckdb(large, s3.settings()),
            "arrow": _arrow(large, s3.settings()),
        }
        timings = interleave(arms, options.rounds, warmups=2)
        with S3Proxy(s3.endpoint_url) as proxy:
            through = replace(s3, endpoint_url=proxy.endpoint_url).settings()
            seen = {
                "many": _count(_ours(large, through, cache_numbers), proxy),
                "few": _count(_ours(small, through, cache_numbers), proxy),
                "duckdb": _count(_duckdb(large, through), proxy),
                "arrow": _count(_arrow(large, through), proxy),
            }
    time = timings.slowdown(
        f"time at {many:,} shards", "many", "few", baseline_name=f"{few} shards", promise="open-time"
    )
    peers = [
        timings.compare(
            f"head at {many:,} shards",
            "many",
            arm,
            peer_name=name,
            detail=f"{len(seen['many'])} requests against {len(seen[arm])}",
        )
        for arm, name in _PEERS.items()
    ]
    return Outcome(
        title="Open, schema and head of a table with many shards",
        method=f"Loopback S3, shards of {format_bytes(_SHARD_BYTES)} in four row groups, empty metadata cache.",
        measurements=[time, *_measure_traffic(large, seen["many"]), *_measure_traffic(small, seen["few"]), *peers],
        notes=[f"Requests at {many:,} shards: {_list_requests(seen['many'])}."],
    )


def _publish(s3: S3Endpoint, shard_count: int) -> _PublishedTable:
    store = s3.url(f"open-{shard_count}")
    publish_table(make_small_files(shard_count, _SHARD_BYTES), store, s3.settings())
    sizes = {blob_key(shard.hash): shard.byte_size for shard in shards_of(open_table(store, s3.settings()))}
    return _PublishedTable(shard_count, store, shard_sources(store, s3.settings()), sizes)


def _ours(published: _PublishedTable, settings: Settings, cache_numbers: count[int]) -> Arm:
    def prepare() -> Callable[[], int]:
        fresh = replace(settings, cache_dir=scratch(f"open/{next(cache_numbers)}"))

        def read() -> int:
            table = open_table(published.store, fresh)
            assert len(table.schema()) == 2
            return int(table.head(_HEAD_ROWS).num_rows)

        return read

    return prepare


def _duckdb(published: _PublishedTable, settings: Settings) -> Arm:
    query = f"SELECT * FROM {parquet_list(published.sources)} LIMIT {_HEAD_ROWS}"

    def prepare() -> Callable[[], int]:
        connection = connect_duckdb(settings)
        return lambda: count_duckdb_rows(connection, query, _HEAD_ROWS)

    return prepare


def _arrow(published: _PublishedTable, settings: Settings) -> Arm:
    def read() -> int:
        dataset = open_arrow_dataset(published.sources, settings)
        assert len(dataset.schema) == 2
        return int(dataset.head(_HEAD_ROWS).num_rows)

    return lambda: read


def _count(arm: Arm, proxy: S3Proxy) -> list[Exchange]:
    read = arm()
    proxy.take()
    assert read() == _HEAD_ROWS
    return proxy.take()


def _measure_traffic(published: _PublishedTable, seen: Sequence[Exchange]) -> list[Measurement]:
    fetched: Counter[str] = Counter()
    for exchange in seen:
        key = "blobs/" + exchange.path.rpartition("/blobs/")[2].partition("?")[0]
        if key in published.sizes:
            fetched[key] += exchange.body_bytes
    largest = max((size / published.sizes[key] for key, size in fetched.items()), default=0.0)
    total = format_bytes(sum(exchange.body_bytes for exchange in seen))
    where = f"at {published.shard_count:,} shards"
    return [
        Measurement(case=f"requests {where}", unit="requests", ours=len(seen), promise="open-requests"),
        Measurement(
            case=f"largest part of a shard fetched {where}",
            unit="% of a shard",
            ours=round(100 * largest, 1),
            detail=f"{total} in total, shards touched: {len(fetched)}",
            promise="open-bytes",
        ),
    ]


def _list_requests(seen: Sequence[Exchange]) -> str:
    return ", ".join(f"{e.method} {_kind(e.path)} ({e.status}, {format_bytes(e.body_bytes)})" for e in seen)


def _kind(path: str) -> str:
    return next((kind for kind in ("latest.json", "heads", "manifests", "blobs") if f"/{kind}" in path), "other")
