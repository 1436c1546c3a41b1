"""Filters pushed down to the files: ours beside DuckDB's own `read_parquet … WHERE`.

Both read the very blobs the table refers to and give Arrow batches; both are timed from an opened
table or connection to the last row, reading footers anew each time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from benchmarks.data import scratch, trips
from benchmarks.harness import Arm, Effort, Finding, Report, Timings, interleave, megabytes, seconds
from benchmarks.peers import connect_duckdb, duckdb_rows, parquet_list
from benchmarks.published import open_table, publish, shard_sources
from warpdata.settings import Settings
from warpdata.testing import S3Server

__all__ = ["run"]

_BATCH_ROWS = 50_000
_LEAST = 1.0
_ABOUT_NAN = (
    "SQL puts NaN above every number, but Parquet's statistics leave it out. So statistics cannot decide `x1 > 2.0`. "
    "DuckDB lets them all the same, and would miss a NaN; we read the column."
)


@dataclass(frozen=True, slots=True)
class _Case:
    """`columns` None: all of them."""

    name: str
    where: str
    columns: tuple[str, ...] | None = None


_CASES = (
    _Case("1 row in 200 by a float, all columns", "fare > 60"),
    _Case("1 row in 200 by a float, two columns", "fare > 60", ("id", "fare")),
    _Case("1 row in 4 by a float, all columns", "fare > 20"),
    _Case("string equality and a range, all columns", "city = 'cairo' AND dist < 1"),
    _Case("string equality, one other column", "city = 'cairo'", ("fare",)),
    _Case("a sorted column, most row groups pruned", "ts < 100000000"),
    _Case("a few rows of a sorted column", "id BETWEEN 1000 AND 1010"),
    _Case("LIKE on a long string column, two columns", "note LIKE '%999%'", ("id", "note")),
    _Case("LIKE on a long string column, all columns", "note LIKE '%999%'"),
    _Case("arithmetic over two columns", "lat + lon < -33.5", ("id", "lat", "lon")),
    _Case("no row matches, and the statistics tell", "x1 < -1.0"),
    _Case("no row matches, unless it is NaN", "x1 > 2.0"),
)


def run(effort: Effort) -> Report:
    paths = trips(2, 50_000) if effort.quick else trips(4, 1_600_000)
    findings: list[Finding] = []
    with S3Server() as s3:
        settings = s3.settings(cache_dir=scratch("filter-cache"), mode="remote")
        publish(paths, s3.url("filters"), settings)
        findings += _compare("S3", s3.url("filters"), settings, settings, effort)
    local_store = scratch("filter-store").as_uri()
    publish(paths, local_store, settings)
    findings += _compare("local", local_store, settings, None, effort)
    scratch("filter-store")
    size_bytes = sum(path.stat().st_size for path in paths)
    return Report(
        "Filters with pushdown",
        f"{len(paths)} zstd files, {megabytes(size_bytes)} together, against DuckDB reading them directly.",
        findings,
        [_ABOUT_NAN],
    )


def _compare(where: str, store: str, settings: Settings, s3: Settings | None, effort: Effort) -> list[Finding]:
    findings = []
    for case in _CASES:
        timings = interleave(_arms(case, store, settings, s3), effort.rounds)
        findings.append(_finding(f"{where}: {case.name} (`{case.where}`)", timings))
    return findings


def _arms(case: _Case, store: str, settings: Settings, s3: Settings | None) -> dict[str, Arm]:
    sources = shard_sources(store, settings)
    query = f"SELECT {', '.join(case.columns or ('*',))} FROM {parquet_list(sources)} WHERE {case.where}"

    def ours() -> Callable[[], int]:
        table = open_table(store, settings)

        def read() -> int:
            wanted = table if case.columns is None else table.select(case.columns)
            return sum(batch.num_rows for batch in wanted.filter(case.where).batches(_BATCH_ROWS))

        return read

    def duckdb() -> Callable[[], int]:
        return partial(duckdb_rows, connect_duckdb(s3), query, _BATCH_ROWS)

    return {"ours": ours, "duckdb": duckdb}


def _finding(case: str, timings: Timings) -> Finding:
    ratio = timings.speed_ratio("ours", "duckdb")
    return Finding(
        case,
        seconds(timings.median_s("ours")),
        seconds(timings.median_s("duckdb")),
        f"{ratio:.2f} ({timings.spread('ours', 'duckdb')})",
        f"≥ {_LEAST}",
        ratio >= _LEAST,
    )
