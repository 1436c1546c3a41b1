"""Every row of a table, as Arrow batches: ours beside `pyarrow.dataset` and DuckDB, on the same files.

All three read the very blobs the table refers to, first over S3, then from a local store, and give
batches of 50,000 rows. Ours opens by name inside the timing and checks every page's checksum; the
peers are handed the files and by default check nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from benchmarks.harness.data import scratch, trips
from benchmarks.harness.timing import Arm, Effort, Finding, Report, Timings, interleave, megabytes, seconds
from benchmarks.tables.dataset import open_table, publish, shard_sources, shards_of
from benchmarks.tables.peers import arrow_dataset, connect_duckdb, duckdb_rows, parquet_list
from warpdata.settings import Settings
from warpdata.testing import S3Server

__all__ = ["run"]

_BATCH_ROWS = 50_000
_ARROW_OVER_S3 = 1.0
_DUCKDB_OVER_S3 = 2.0
_FASTER_LOCALLY = 0.95


def run(effort: Effort) -> Report:
    paths = trips(2, 50_000) if effort.quick else trips(4, 1_600_000)
    with S3Server() as s3:
        remote_store, settings = s3.url("scan"), s3.settings(cache_dir=scratch("scan-cache"), mode="remote")
        publish(paths, remote_store, settings)
        remote = interleave(_arms(remote_store, settings, settings), effort.rounds)
    local_store = scratch("scan-store").as_uri()
    publish(paths, local_store, settings)
    local = interleave(_arms(local_store, settings, None), effort.rounds)
    size_bytes = sum(shard.byte_size for shard in shards_of(open_table(local_store, settings)))
    scratch("scan-store")
    faster = min(("arrow", "duckdb"), key=local.median_s)
    findings = [
        _finding("S3, against pyarrow.dataset", remote, "arrow", size_bytes, _ARROW_OVER_S3),
        _finding("S3, against DuckDB", remote, "duckdb", size_bytes, _DUCKDB_OVER_S3),
        *(
            _finding(f"local, against {name}", local, arm, size_bytes, _FASTER_LOCALLY if arm == faster else None)
            for name, arm in (("pyarrow.dataset", "arrow"), ("DuckDB", "duckdb"))
        ),
    ]
    method = (
        f"{len(paths)} zstd files, {megabytes(size_bytes)} together, all ten columns in batches of {_BATCH_ROWS:,}."
    )
    return Report(
        "Full scan",
        method,
        findings,
        ["The S3 server runs on the same cores as the readers, so over S3 all sides share what it leaves."],
    )


def _arms(store: str, settings: Settings, s3: Settings | None) -> dict[str, Arm]:
    sources = shard_sources(store, settings)
    query = f"SELECT * FROM {parquet_list(sources)}"

    def ours() -> int:
        return sum(batch.num_rows for batch in open_table(store, settings).batches(_BATCH_ROWS))

    def arrow() -> int:
        batches = arrow_dataset(sources, s3).to_batches(batch_size=_BATCH_ROWS)
        return sum(batch.num_rows for batch in batches)

    def duckdb() -> Callable[[], int]:
        return partial(duckdb_rows, connect_duckdb(s3), query, _BATCH_ROWS)

    return {"ours": lambda: ours, "arrow": lambda: arrow, "duckdb": duckdb}


def _finding(case: str, timings: Timings, peer: str, size_bytes: int, least: float | None) -> Finding:
    ratio = timings.speed_ratio("ours", peer)
    return Finding(
        case,
        _rate(timings, "ours", size_bytes),
        _rate(timings, peer, size_bytes),
        f"{ratio:.2f} ({timings.spread('ours', peer)})",
        "" if least is None else f"≥ {least}",
        None if least is None else ratio >= least,
    )


def _rate(timings: Timings, arm: str, size_bytes: int) -> str:
    took_s = timings.median_s(arm)
    return f"{seconds(took_s)}, {size_bytes / took_s / 1e6:,.0f} MB/s"
