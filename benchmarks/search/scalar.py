"""Bitmap and btree indexes beside DuckDB on the same shuffled rows, and Lance with its scalar indexes.

The clock runs from an open table, connection or dataset to the count, or to the last row. All three keep their indexes
and footers open between rounds. Every round asks for another value, so that no result can be remembered.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.harness.data import make_once, scratch
from benchmarks.harness.timing import Arm, RunOptions, format_bytes, interleave_all
from benchmarks.results import Measurement, Outcome
from benchmarks.tables.dataset import DATASET, connect_duckdb, open_table, parquet_list, publish_table
from warpdata import Settings, dataset
from warpdata.settings import load_settings

__all__ = ["run"]

_NOTE = (
    "The three indexes have {size}. Each library reads files of its own: warpdata those of `rewrite=True`, with small "
    "pages; DuckDB those of pyarrow, in row groups of 200,000; Lance its own format. "
    "Lance is left out where it is not installed."
)
_COLUMNS = ["id", "score"]
_LABELS = 1000
_TIMES = 1_000_000_000
_SAMPLE_ROWS = 5000


@dataclass(frozen=True, slots=True)
class _Case:
    """A filter over the number of a round. `columns` empty counts the rows."""

    name: str
    where: Callable[[int], str]
    promise: str
    columns: tuple[str, ...] = ()


def _label_and_split(number: int) -> str:
    return f"label = 'label {number * 7 % _LABELS:04d}' AND split = 'val'"


def _range(number: int) -> str:
    start = number * 7_654_321 % (_TIMES // 2)
    return f"taken >= {start} AND taken < {start + _TIMES // 10_000}"


_CASES = (
    _Case("label and split through bitmaps, counted", _label_and_split, "index-bitmap"),
    _Case("label and split through bitmaps, two columns", _label_and_split, "index-bitmap", tuple(_COLUMNS)),
    _Case("1 row in 10,000 by a range, counted", _range, "index-btree"),
    _Case("1 row in 10,000 by a range, two columns", _range, "index-btree", tuple(_COLUMNS)),
)


def run(options: RunOptions) -> Outcome:
    file_count, rows = (2, 20_000) if options.is_smoke else (4, 1_250_000)
    paths = sorted(make_once(f"labels-{file_count}x{rows}", lambda at: _write(at, file_count, rows)).glob("*.parquet"))
    settings, store = load_settings(), scratch("index-store").as_uri()
    publish_table(paths, store, settings, rewrite=True)
    opened = dataset(DATASET, store=store, settings=settings)
    for column in ("label", "split", "taken"):
        opened = opened.create_index("main", column)
    lance = _open_lance(paths)
    comparisons = {case.name: _arms(case, store, settings, paths, lance) for case in _CASES}
    comparisons["stratified sample"] = _sample_arms(store, settings, paths)
    timings = interleave_all(comparisons, options.rounds)
    measurements: list[Measurement] = []
    for case in _CASES:
        found = timings[case.name]
        measurements.append(found.compare(case.name, "ours", "duckdb", peer_name="DuckDB", promise=case.promise))
        if "lance" in found.by_arm:
            measurements.append(
                found.compare(case.name, "ours", "lance", peer_name="Lance, indexed", promise="index-lance")
            )
    name = f"{_SAMPLE_ROWS:,} rows, stratified by label"
    measurements.append(
        timings["stratified sample"].compare(name, "ours", "duckdb", peer_name="DuckDB", promise="index-sample")
    )
    size_bytes = sum(index.size_bytes for index in opened.indexes())
    scratch("index-store")
    scratch("index-lance")
    return Outcome(
        title="Scalar indexes",
        method=f"{file_count * rows:,} rows in random order, in {file_count} files; {_LABELS} labels, three splits.",
        measurements=measurements,
        notes=[_NOTE.format(size=format_bytes(size_bytes))],
    )


def _write(directory: Path, file_count: int, rows: int) -> None:
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    for number in range(file_count):
        rng = np.random.default_rng(number)
        labels = np.array([f"label {value:04d}" for value in range(_LABELS)])
        table = pa.table(
            {
                "id": np.arange(number * rows, (number + 1) * rows),
                "label": labels[rng.integers(0, _LABELS, rows)],
                "split": np.array(["train", "val", "test"])[rng.choice(3, rows, p=[0.9, 0.05, 0.05])],
                "taken": rng.integers(0, _TIMES, rows),
                "score": rng.random(rows),
            }
        )
        path = directory / f"labels-{number}.parquet"
        pq.write_table(table, path, compression="zstd", row_group_size=200_000, write_page_checksum=True)


def _open_lance(paths: list[Path]) -> Any:
    """Write the rows as a Lance dataset with the same indexes; None if Lance is not installed."""
    try:
        import lance  # type: ignore[import-not-found, unused-ignore]
    except ImportError:
        return None
    import pyarrow.dataset as pads

    target = str(scratch("index-lance") / "rows.lance")
    opened = lance.write_dataset(pads.dataset([str(path) for path in paths]), target)
    kinds: Any = {"label": "BITMAP", "split": "BITMAP", "taken": "BTREE"}
    for column, kind in kinds.items():
        opened.create_scalar_index(column, kind)
    return lance.dataset(target)


def _arms(case: _Case, store: str, settings: Settings, paths: list[Path], lance: Any) -> Mapping[str, Arm]:
    table, connection = open_table(store, settings), connect_duckdb(None)
    files = parquet_list([str(path) for path in paths])
    chosen = table.select(case.columns) if case.columns else table

    def ours(where: str) -> int:
        found = chosen.filter(where)
        return found.to_arrow(allow_large=True).num_rows if case.columns else found.count()

    def duckdb(where: str) -> int:
        if case.columns:
            query = f"SELECT {', '.join(case.columns)} FROM {files} WHERE {where}"
            return int(connection.execute(query).to_arrow_table().num_rows)
        row = connection.execute(f"SELECT count(*) FROM {files} WHERE {where}").fetchone()
        assert row is not None
        return int(row[0])

    def indexed_lance(where: str) -> int:
        if case.columns:
            return int(lance.to_table(columns=list(case.columns), filter=where).num_rows)
        return int(lance.count_rows(filter=where))

    arms = {"ours": ours, "duckdb": duckdb}
    if lance is not None:
        arms["lance"] = indexed_lance
    return {name: _numbered(ask, case) for name, ask in arms.items()}


def _numbered(ask: Callable[[str], int], case: _Case) -> Arm:
    """Ask for another value in each round. All arms ask for the same values in the same order."""
    numbers: Iterator[int] = itertools.count()

    def begin() -> Callable[[], int]:
        where = case.where(next(numbers))
        return lambda: ask(where)

    return begin


def _sample_arms(store: str, settings: Settings, paths: list[Path]) -> Mapping[str, Arm]:
    table, connection = open_table(store, settings), connect_duckdb(None)
    files = parquet_list([str(path) for path in paths])
    share = _SAMPLE_ROWS / max(table.count(), 1)
    ranked = (
        "SELECT row_number() OVER (PARTITION BY label ORDER BY hash(id)) AS place, "
        f"count(*) OVER (PARTITION BY label) AS most FROM {files}"
    )

    def ours() -> int:
        return int(table.sample(_SAMPLE_ROWS, by="label", seed=1).count() > 0)

    def duckdb() -> int:
        row = connection.execute(f"SELECT count(*) FROM ({ranked}) WHERE place <= ceil(most * {share})").fetchone()
        assert row is not None
        return int(row[0] > 0)

    return {"ours": lambda: ours, "duckdb": lambda: duckdb}
