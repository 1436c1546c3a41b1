"""Full scan of a table as Arrow batches, over S3 and from local files.

All arms read the blobs of the table and return batches of 50,000 rows. warpdata opens the table by name inside the
clock and verifies page checksums; the peers receive the file list and by default verify nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from benchmarks.harness.data import make_trips_by_cores, scratch
from benchmarks.harness.timing import Arm, RunOptions, Timings, format_bytes, interleave
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
from warpdata.testing import S3Server

__all__ = ["run"]

_BATCH_ROWS = 50_000
_PEERS = {"arrow": "pyarrow.dataset", "duckdb": "DuckDB"}


def run(options: RunOptions) -> Outcome:
    paths = make_trips_by_cores(is_smoke=options.is_smoke)
    measurements = [] if options.skips_s3 else _measure_s3(paths, options)
    local_store = scratch("scan-store").as_uri()
    settings = Settings(local_store, scratch("scan-cache"))
    publish_table(paths, local_store, settings)
    local = interleave(_arms(local_store, settings, None), options.rounds)
    size_bytes = sum(shard.byte_size for shard in shards_of(open_table(local_store, settings)))
    scratch("scan-store")
    faster = min(_PEERS, key=local.median_s)
    measurements += [
        _measure("local files", local, arm, size_bytes, "scan-local" if arm == faster else "") for arm in _PEERS
    ]
    return Outcome(
        title="Full scan",
        method=f"{len(paths)} zstd files, {format_bytes(size_bytes)} in total, all ten columns in batches of "
        f"{_BATCH_ROWS:,} rows.",
        measurements=measurements,
        notes=["The S3 server shares the cores with the readers, so all arms compete with it."],
    )


def _measure_s3(paths: Sequence[Path], options: RunOptions) -> list[Measurement]:
    with S3Server() as s3:
        store, settings = s3.url("scan"), s3.settings(cache_dir=scratch("scan-cache"), mode="remote")
        publish_table(paths, store, settings)
        timings = interleave(_arms(store, settings, settings), options.rounds)
        size_bytes = sum(shard.byte_size for shard in shards_of(open_table(store, settings)))
    return [_measure("S3", timings, arm, size_bytes, f"scan-s3-{arm}") for arm in _PEERS]


def _arms(store: str, settings: Settings, s3: Settings | None) -> dict[str, Arm]:
    sources = shard_sources(store, settings)
    query = f"SELECT * FROM {parquet_list(sources)}"

    def ours() -> int:
        return sum(batch.num_rows for batch in open_table(store, settings).batches(_BATCH_ROWS))

    def arrow() -> int:
        batches = open_arrow_dataset(sources, s3).to_batches(batch_size=_BATCH_ROWS)
        return sum(batch.num_rows for batch in batches)

    def duckdb() -> Callable[[], int]:
        return partial(count_duckdb_rows, connect_duckdb(s3), query, _BATCH_ROWS)

    return {"ours": lambda: ours, "arrow": lambda: arrow, "duckdb": duckdb}


def _measure(case: str, timings: Timings, arm: str, size_bytes: int, promise: str) -> Measurement:
    rates = [size_bytes / timings.median_s(name) / 1e6 for name in ("ours", arm)]
    detail = f"{rates[0]:,.0f} MB/s against {rates[1]:,.0f} MB/s"
    return timings.compare(case, "ours", arm, peer_name=_PEERS[arm], promise=promise, detail=detail)
