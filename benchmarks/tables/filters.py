"""Filters with pushdown, beside DuckDB's `read_parquet … WHERE`.

Both sides read the same blobs and return Arrow batches. The clock runs from an open table or connection to the last
row; both read the footers in every round.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from benchmarks.harness.data import make_trips_by_cores, scratch
from benchmarks.harness.timing import Arm, RunOptions, Timings, format_bytes, interleave_all
from benchmarks.results import Measurement, Outcome
from benchmarks.tables.dataset import (
    connect_duckdb,
    count_duckdb_rows,
    open_table,
    parquet_list,
    publish_table,
    shard_sources,
)
from warpdata import Settings
from warpdata.formats.parquet.mmap_cache import MMAP_CACHE
from warpdata.primitives.parallel import usable_cores
from warpdata.testing import S3Server

__all__ = ["run"]

_BATCH_ROWS = 50_000
_NAN_NOTE = (
    "SQL orders NaN above every number, but Parquet statistics exclude NaN, so they cannot decide `x1 > 2.0`. Files "
    "that warpdata writes record which columns have no NaN, and those are pruned. In other files warpdata reads the "
    "column; DuckDB prunes it and loses NaN rows. That case has no target."
)
_CHECKSUM_NOTE = (
    "Local files stay mapped between scans, and their page checksums are verified once. 'First read' discards the "
    "mappings before each run. 'Arrow decoding alone' maps the files, decodes the columns of the filter and of the "
    "result in one thread per core, and counts matches. DuckDB verifies no checksums."
)


@dataclass(frozen=True, slots=True)
class _Case:
    """A filter; `columns` None selects all columns."""

    name: str
    where: str
    columns: tuple[str, ...] | None = None
    has_target: bool = True

    @property
    def title(self) -> str:
        return f"{self.name} (`{self.where}`)"


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
    _Case("no match, decided by statistics", "x1 < -1.0"),
    _Case("no match, except possible NaN", "x1 > 2.0", has_target=False),
)
_REWRITTEN = (_Case("no match, files written by warpdata", "x1 > 2.0"),)
_FIRST_READ = "first read"
_DETAILED = ("1 row in 200 by a float, all columns", "string equality, one other column")


def run(options: RunOptions) -> Outcome:
    paths = make_trips_by_cores(is_smoke=options.is_smoke)
    measurements: list[Measurement] = []
    if not options.skips_s3:
        measurements += _compare_over_s3(paths, options)
    settings = Settings(scratch("filter-store").as_uri(), scratch("filter-cache"))
    for cases in (_CASES, _REWRITTEN):
        store = scratch("filter-store").as_uri()
        publish_table(paths, store, settings, rewrite=cases is _REWRITTEN)
        measurements += _compare("local", cases, store, settings, None, options)
        if cases is _CASES:
            measurements += _compare_details(store, settings, options)
    nan_counts = _count_nan(scratch("filter-store"), settings)
    scratch("filter-store")
    size_bytes = sum(path.stat().st_size for path in paths)
    return Outcome(
        title="Filters with pushdown",
        method=f"{len(paths)} zstd files, {format_bytes(size_bytes)} in total, against DuckDB reading them directly.",
        measurements=measurements,
        notes=[f"{_NAN_NOTE} {nan_counts}", _CHECKSUM_NOTE],
    )


def _compare_over_s3(paths: Sequence[Path], options: RunOptions) -> list[Measurement]:
    measurements = []
    with S3Server() as s3:
        settings = s3.settings(cache_dir=scratch("filter-cache"), mode="remote")
        for store, cases in ((s3.url("filters"), _CASES), (s3.url("filters-rewritten"), _REWRITTEN)):
            publish_table(paths, store, settings, rewrite=cases is _REWRITTEN)
            measurements += _compare("S3", cases, store, settings, settings, options)
    return measurements


def _count_nan(directory: Path, settings: Settings) -> str:
    """Count the rows above 5 of the values 1, NaN and 3 in a file from another writer."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = pa.table({"x": [1.0, math.nan, 3.0]})
    path, store = directory / "three.parquet", (directory / "store").as_uri()
    pq.write_table(rows, path)
    publish_table([path], store, settings)
    ours = open_table(store, settings).filter("x > 5").count()
    with connect_duckdb(None) as connection:
        over_file = count_duckdb_rows(connection, f"FROM {parquet_list([str(path)])} WHERE x > 5", _BATCH_ROWS)
        connection.register("arrow", rows)
        connection.execute("CREATE TABLE three AS FROM arrow")
        in_memory = count_duckdb_rows(connection, "FROM three WHERE x > 5", _BATCH_ROWS)
    return (
        f"In this run, of 1, NaN and 3 the filter `x > 5` keeps {ours} row in warpdata, {in_memory} in a DuckDB "
        f"table, and {over_file} in DuckDB over a Parquet file."
    )


def _compare(
    where: str, cases: Sequence[_Case], store: str, settings: Settings, s3: Settings | None, options: RunOptions
) -> list[Measurement]:
    arms = {case.title: _arms(case, store, settings, s3) for case in cases}
    timings = interleave_all(arms, options.rounds)
    promise = "filter-s3" if where == "S3" else "filter-local"
    return [
        _measure(f"{where}: {case.title}", timings[case.title], promise if case.has_target else "") for case in cases
    ]


def _arms(case: _Case, store: str, settings: Settings, s3: Settings | None) -> dict[str, Arm]:
    sources = shard_sources(store, settings)
    query = f"SELECT {', '.join(case.columns or ('*',))} FROM {parquet_list(sources)} WHERE {case.where}"

    def ours() -> Callable[[], int]:
        table = open_table(store, settings)

        def read() -> int:
            selected = table if case.columns is None else table.select(case.columns)
            return sum(batch.num_rows for batch in selected.filter(case.where).batches(_BATCH_ROWS))

        return read

    def duckdb() -> Callable[[], int]:
        return partial(count_duckdb_rows, connect_duckdb(s3), query, _BATCH_ROWS)

    return {"ours": ours, "duckdb": duckdb}


def _compare_details(store: str, settings: Settings, options: RunOptions) -> list[Measurement]:
    """Compare a first read, and the decoding that any reader on top of Arrow needs, with DuckDB's filter."""
    sources = shard_sources(store, settings)
    comparisons: dict[str, dict[str, Arm]] = {}
    for case in (case for case in _CASES if case.name in _DETAILED):
        arms = _arms(case, store, settings, None)
        comparisons[f"local: {case.title}"] = {
            "duckdb": arms["duckdb"],
            _FIRST_READ: partial(_forget_mappings, arms["ours"]),
            "Arrow decoding alone, checksums verified": partial(partial, _decode, sources, case, verify=True),
            "Arrow decoding alone, checksums ignored": partial(partial, _decode, sources, case, verify=False),
        }
    return [
        _measure(f"{name}, {arm}", timings, "", arm)
        for name, timings in interleave_all(comparisons, options.rounds).items()
        for arm in timings.by_arm
        if arm != "duckdb"
    ]


def _forget_mappings(arm: Arm) -> Callable[[], int]:
    MMAP_CACHE.clear()
    return arm()


def _decode(sources: Sequence[str], case: _Case, *, verify: bool) -> int:
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    def count_matches(name: str, column: pa.ChunkedArray) -> int:
        if name == "fare" and case.where == "fare > 60":
            return int(pc.greater(column, 60.0).chunk(0).true_count)
        if name == "city" and case.where == "city = 'cairo'":
            codes, words = column.chunk(0).indices, column.chunk(0).dictionary
            return int(pc.equal(codes, pc.index(words, "cairo").cast(codes.type)).true_count)
        return 0

    def read(source: str) -> int:
        file = pq.ParquetFile(
            pa.memory_map(source), page_checksum_verification=verify, read_dictionary=["city"], pre_buffer=False
        )
        names = file.schema_arrow.names if case.columns is None else ["city", *case.columns]
        return sum(
            count_matches(name, file.read_row_group(group, columns=[name], use_threads=False)[name])
            for group in range(file.num_row_groups)
            for name in names
        )

    with ThreadPoolExecutor(usable_cores()) as pool:
        return sum(pool.map(read, sources))


def _measure(case: str, timings: Timings, promise: str, arm: str = "ours") -> Measurement:
    return timings.compare(case, arm, "duckdb", peer_name="DuckDB", promise=promise)
