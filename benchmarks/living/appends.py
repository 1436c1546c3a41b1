"""Hundred appends of one row, beside LanceDB.

Each append is a commit of its own in a local store. Files count that a reader of the newest version opens. LanceDB
syncs nothing, so a power cut may lose what it has acknowledged. In a third arm, each file that it has written is synced
with its directory before the next append, as a durable commit needs it. In a fourth, warpdata syncs nothing either.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from itertools import count
from pathlib import Path

from benchmarks.harness.data import scratch
from benchmarks.harness.machine import is_installed, skip_lines
from benchmarks.harness.timing import RunOptions, ScenarioUnavailableError, interleave
from benchmarks.living.dataset import DATASET, open_dataset, settings_beside, settings_of
from benchmarks.results import Measurement, Outcome
from warpdata import DatasetBuilder, dataset

__all__ = ["run"]

_number = count()
_DURABLE = "LanceDB, synced"
_UNSYNCED = "ours, unsynced"


def run(options: RunOptions) -> Outcome:
    if not is_installed("lancedb"):
        raise ScenarioUnavailableError(skip_lines(["lancedb"])[0])
    appends = 10 if options.is_smoke else 100
    files: dict[str, int] = {}
    arms = {
        "ours": lambda: _ours(appends, files, sync_writes=True),
        _UNSYNCED: lambda: _ours(appends, files, sync_writes=False),
        "LanceDB": lambda: _lancedb(appends, files, is_durable=False),
        _DURABLE: lambda: _lancedb(appends, files, is_durable=True),
    }
    timings = interleave(arms, options.rounds)
    return Outcome(
        title=f"{appends} appends of one row",
        method="Local stores; one commit for each row; peers with their defaults. LanceDB does not sync its files to "
        f"the disk; in the arm `{_DURABLE}` the benchmark syncs each new file and its directory after each append. "
        "Without syncs, warpdata runs with `WARP_SYNC_WRITES=false`.",
        measurements=[
            timings.compare("time of all appends", "ours", "LanceDB", promise="append-time"),
            timings.compare("time of all appends, on the disk", "ours", _DURABLE),
            timings.compare("time of all appends, without syncs", _UNSYNCED, "LanceDB"),
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


def _ours(appends: int, files: dict[str, int], *, sync_writes: bool) -> Callable[[], int]:
    store = scratch(f"appends-{next(_number) % 3}")
    DatasetBuilder(DATASET, settings=settings_of(store)).add_table("main", _row(0)).publish()
    settings = replace(settings_beside(store), sync_writes=sync_writes)

    def append_all() -> int:
        for number in range(1, appends + 1):
            with dataset(DATASET, settings=settings).edit() as edit:
                edit.append("main", _row(number))
        table = open_dataset(store).table()
        files["ours"] = table.entry.shards.shard_count
        return table.count()

    return append_all


def _lancedb(appends: int, files: dict[str, int], *, is_durable: bool) -> Callable[[], int]:
    import lancedb  # type: ignore[import-not-found,unused-ignore]
    import pyarrow as pa

    directory: Path = scratch(f"lancedb-{next(_number) % 2}")
    table = lancedb.connect(str(directory)).create_table("main", pa.table(_row(0)))
    synced = set(_files(directory))

    def append_all() -> int:
        for number in range(1, appends + 1):
            table.add(pa.table(_row(number)))
            if is_durable:
                new = [path for path in _files(directory) if path not in synced]
                _sync([*new, *{path.parent for path in new}])
                synced.update(new)
        files["LanceDB"] = len(list(directory.rglob("*.lance"))) - 1  # one is the directory of the table
        return int(table.count_rows())

    return append_all


def _files(directory: Path) -> Iterator[Path]:
    for parent, _, names in os.walk(directory):
        yield from (Path(parent, name) for name in names)


def _sync(paths: Iterable[Path]) -> None:
    """Force files and directories to the disk, one after the other."""
    for path in paths:
        descriptor = os.open(path, os.O_RDONLY)
        os.fsync(descriptor)
        os.close(descriptor)
