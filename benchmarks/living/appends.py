"""Hundred appends of one row, beside LanceDB.

Each append is a commit of its own in a local store. Files count that a reader of the newest version opens.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from pathlib import Path

from benchmarks.harness.data import scratch
from benchmarks.harness.machine import is_installed, skip_lines
from benchmarks.harness.timing import RunOptions, ScenarioUnavailableError, interleave
from benchmarks.living.dataset import DATASET, open_dataset, settings_of
from benchmarks.results import Measurement, Outcome
from warpdata import DatasetBuilder

__all__ = ["run"]

_number = count()


def run(options: RunOptions) -> Outcome:
    if not is_installed("lancedb"):
        raise ScenarioUnavailableError(skip_lines(["lancedb"])[0])
    appends = 10 if options.is_smoke else 100
    files: dict[str, int] = {}
    arms = {"ours": lambda: _ours(appends, files), "LanceDB": lambda: _lancedb(appends, files)}
    timings = interleave(arms, options.rounds)
    return Outcome(
        title=f"{appends} appends of one row",
        method="Local stores; one commit for each row; peers with their defaults.",
        measurements=[
            timings.compare("time of all appends", "ours", "LanceDB", promise="append-time"),
            Measurement(
                case="data files of the newest version",
                unit="files",
                ours=files["ours"],
                peer=files["LanceDB"],
                peer_name="LanceDB",
                ratio=files["LanceDB"] / files["ours"],
                quantity="files",
                promise="append-files",
            ),
        ],
    )


def _row(number: int) -> dict[str, list[object]]:
    return {"id": [number], "x": [number / 3], "label": [f"row {number}"]}


def _ours(appends: int, files: dict[str, int]) -> Callable[[], int]:
    store = scratch(f"appends-{next(_number) % 2}")
    DatasetBuilder(DATASET, settings=settings_of(store)).add_table("main", _row(0)).publish()

    def append_all() -> int:
        for number in range(1, appends + 1):
            with open_dataset(store).edit() as edit:
                edit.append("main", _row(number))
        table = open_dataset(store).table()
        files["ours"] = table.entry.shards.shard_count
        return table.count()

    return append_all


def _lancedb(appends: int, files: dict[str, int]) -> Callable[[], int]:
    import lancedb  # type: ignore[import-not-found,unused-ignore]
    import pyarrow as pa

    directory: Path = scratch(f"lancedb-{next(_number) % 2}")
    table = lancedb.connect(str(directory)).create_table("main", pa.table(_row(0)))

    def append_all() -> int:
        for number in range(1, appends + 1):
            table.add(pa.table(_row(number)))
        files["LanceDB"] = len(list(directory.rglob("*.lance"))) - 1  # one is the directory of the table
        return int(table.count_rows())

    return append_all
