"""Filters pushed down to the files: ours beside DuckDB's own `read_parquet … WHERE`.

Both read the very blobs the table refers to and give Arrow batches; both are timed from an opened
table or connection to the last row, reading footers anew each time.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from benchmarks.data import scratch, trips
from benchmarks.harness import Arm, Effort, Finding, Report, Timings, interleave_all, megabytes, seconds
from benchmarks.peers import connect_duckdb, duckdb_rows, parquet_list
from benchmarks.published import open_table, publish, shard_sources
from warpdata.formats.parquet.mmap_cache import MMAP_CACHE
from warpdata.primitives.parallel import usable_cores
from warpdata.settings import Settings
from warpdata.testing import S3Server

__all__ = ["run"]

_BATCH_ROWS = 50_000
_LEAST = 1.0
_ABOUT_NAN = (
    "SQL puts NaN above every number, but Parquet's statistics leave it out. So they alone cannot decide `x1 > 2.0`. "
    "Files that we write say which columns have no NaN, and there we prune. Of files from elsewhere we read the "
    "column, while DuckDB prunes them too and loses a NaN, so that this line has no target. "
)


@dataclass(frozen=True, slots=True)
class _Case:
    """`columns` None: all of them."""

    name: str
    where: str
    columns: tuple[str, ...] | None = None
    has_target: bool = True


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
    _Case("no row matches, unless it is NaN", "x1 > 2.0", has_target=False),
)
_CLOSER = ("1 row in 200 by a float, all columns", "string equality, one other column")
_ABOUT_CHECKSUMS = (
    "Local files stay mapped between scans, and their pages are compared with their checksums once while they do "
    "(decision 13). Read for the first time: before each run they are forgotten, so that they are mapped and compared "
    "anew. Nothing but decoding: Arrow maps the files anew and reads the columns of a filter and of its answer one "
    "after another, in a thread for each core, and what matches is counted. DuckDB compares nothing, so that "
    "`Table.duckdb()` does not either."
)
_REWRITTEN = (_Case("no row matches, in files that we wrote", "x1 > 2.0"),)


def run(effort: Effort) -> Report:
    paths = trips(2, 50_000) if effort.quick else trips(4, 1_600_000)
    findings: list[Finding] = []
    with S3Server() as s3:
        settings = s3.settings(cache_dir=scratch("filter-cache"), mode="remote")
        for store, cases in ((s3.url("filters"), _CASES), (s3.url("filters-rewritten"), _REWRITTEN)):
            publish(paths, store, settings, rewrite=cases is _REWRITTEN)
            findings += _compare("S3", cases, store, settings, settings, effort)
    for cases in (_CASES, _REWRITTEN):
        store = scratch("filter-store").as_uri()
        publish(paths, store, settings, rewrite=cases is _REWRITTEN)
        findings += _compare("local", cases, store, settings, None, effort)
        if cases is _CASES:
            findings += _look_closer(store, settings, effort)
    about_nan = _ABOUT_NAN + _count_nan(scratch("filter-store"), settings)
    scratch("filter-store")
    size_bytes = sum(path.stat().st_size for path in paths)
    return Report(
        "Filters with pushdown",
        f"{len(paths)} zstd files, {megabytes(size_bytes)} together, against DuckDB reading them directly.",
        findings,
        [about_nan, _ABOUT_CHECKSUMS],
    )


def _count_nan(folder: Path, settings: Settings) -> str:
    """One row of three is NaN, in a file from elsewhere: who finds it?"""
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = pa.table({"x": [1.0, math.nan, 3.0]})
    path, store = folder / "three.parquet", (folder / "store").as_uri()
    pq.write_table(rows, path)
    publish([path], store, settings)
    ours = open_table(store, settings).filter("x > 5").count()
    with connect_duckdb(None) as connection:
        over_file = duckdb_rows(connection, f"FROM {parquet_list([str(path)])} WHERE x > 5", _BATCH_ROWS)
        connection.register("arrow", rows)
        connection.execute("CREATE TABLE three AS FROM arrow")
        in_memory = duckdb_rows(connection, "FROM three WHERE x > 5", _BATCH_ROWS)
    return (
        f"Seen in this run: of 1, NaN and 3, `x > 5` keeps {ours} with us, {in_memory} with DuckDB over a table "
        f"of its own, and {over_file} with DuckDB over a Parquet file."
    )


def _compare(
    where: str, cases: Sequence[_Case], store: str, settings: Settings, s3: Settings | None, effort: Effort
) -> list[Finding]:
    told = {f"{where}: {case.name} (`{case.where}`)": case for case in cases}
    timings = interleave_all({name: _arms(case, store, settings, s3) for name, case in told.items()}, effort.rounds)
    return [_finding(name, timings[name], has_target=case.has_target) for name, case in told.items()]


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


def _look_closer(store: str, settings: Settings, effort: Effort) -> list[Finding]:
    """A first time beside DuckDB's filter, and what anybody needs at least who leaves decoding to Arrow."""
    sources = shard_sources(store, settings)
    told = {f"local: {case.name} (`{case.where}`)": case for case in _CASES if case.name in _CLOSER}
    comparisons: dict[str, dict[str, Arm]] = {}
    for name, case in told.items():
        arms = _arms(case, store, settings, None)
        comparisons[name] = {
            "duckdb": arms["duckdb"],
            "read for the first time": partial(_first_time, arms["ours"]),
            "nothing but decoding, checksums compared": partial(partial, _decode, sources, case, checks=True),
            "nothing but decoding, checksums not compared": partial(partial, _decode, sources, case, checks=False),
        }
    return [
        _finding(f"{name}, {arm}", timings, arm, has_target=False)
        for name, timings in interleave_all(comparisons, effort.rounds).items()
        for arm in timings.by_arm
        if arm != "duckdb"
    ]


def _first_time(arm: Arm) -> Callable[[], int]:
    MMAP_CACHE.clear()
    return arm()


def _decode(sources: Sequence[str], case: _Case, *, checks: bool) -> int:
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    def match(name: str, column: pa.ChunkedArray) -> int:
        if name == "fare" and case.where == "fare > 60":
            return int(pc.greater(column, 60.0).chunk(0).true_count)
        if name == "city" and case.where == "city = 'cairo'":
            codes, words = column.chunk(0).indices, column.chunk(0).dictionary
            return int(pc.equal(codes, pc.index(words, "cairo").cast(codes.type)).true_count)
        return 0

    def read(source: str) -> int:
        file = pq.ParquetFile(
            pa.memory_map(source), page_checksum_verification=checks, read_dictionary=["city"], pre_buffer=False
        )
        names = file.schema_arrow.names if case.columns is None else ["city", *case.columns]
        groups = range(file.num_row_groups)
        return sum(
            match(name, file.read_row_group(group, columns=[name], use_threads=False)[name])
            for group in groups
            for name in names
        )

    with ThreadPoolExecutor(usable_cores()) as pool:
        return sum(pool.map(read, sources))


def _finding(case: str, timings: Timings, arm: str = "ours", *, has_target: bool) -> Finding:
    ratio = timings.speed_ratio(arm, "duckdb")
    return Finding(
        case,
        seconds(timings.median_s(arm)),
        seconds(timings.median_s("duckdb")),
        f"{ratio:.2f} ({timings.spread(arm, 'duckdb')})",
        f"≥ {_LEAST}" if has_target else "",
        ratio >= _LEAST if has_target else None,
    )
