"""Ray Data over a table: `to_ray` beside `read_parquet` of the same files, `write_ray` beside `write_parquet`.

All arms run on the same two CPUs of one Ray instance, one after the other. Ours verifies checksums of footers and
pages, and a write ends in a commit.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import warpdata as wd
from benchmarks.harness.data import scratch
from benchmarks.harness.ray_cluster import two_cpus
from benchmarks.harness.timing import Arm, RunOptions, interleave
from benchmarks.results import Outcome

__all__ = ["run"]

_NAME = "bench/rows"
_BATCH_ROWS = 50_000


def run(options: RunOptions) -> Outcome:
    files, rows = (2, 2_000) if options.is_smoke else (8, 400_000)
    folder = scratch("ray-data")
    with two_cpus() as ray:
        store = (folder / "store").as_uri()
        _publish(store, files, rows)
        paths = _link_files(folder)
        numbers = count()

        def read_parquet() -> Any:
            return ray.data.read_parquet(paths, override_num_blocks=files)

        arms: dict[str, Arm] = {
            "to_ray": lambda: _reading(lambda: wd.dataset(_NAME, store=store).to_ray(blocks=files)),
            "read_parquet": lambda: _reading(read_parquet),
        }
        reads = interleave(arms, options.rounds, warmups=1)
        source = read_parquet().materialize()
        arms = {
            "write_ray": lambda: _writing_ours(source, store, next(numbers)),
            "write_parquet": lambda: _writing_parquet(source, folder / f"out-{next(numbers)}"),
        }
        writes = interleave(arms, options.rounds, warmups=1)
    return Outcome(
        title="Ray Data: reading and writing a table",
        method=f"{files} files of {rows:,} rows in a local store, two CPUs, batches of {_BATCH_ROWS:,} Arrow rows.",
        measurements=[
            reads.compare(
                "iter_batches", "to_ray", "read_parquet", peer_name="ray.data.read_parquet", promise="ray-read"
            ),
            writes.compare("write", "write_ray", "write_parquet", peer_name="write_parquet", promise="ray-write"),
        ],
    )


def _link_files(folder: Path) -> list[str]:
    """Give the blobs names that Ray takes for Parquet files."""
    blobs = [path for path in sorted((folder / "store" / "blobs").rglob("*")) if path.is_file()]
    (folder / "files").mkdir()
    paths = [folder / "files" / f"{number}.parquet" for number in range(len(blobs))]
    for blob, path in zip(blobs, paths, strict=True):
        path.hardlink_to(blob)
    return [str(path) for path in paths]


def _publish(store: str, files: int, rows: int) -> None:
    rng = np.random.default_rng(1)
    for number in range(files):
        columns = {
            "id": np.arange(number * rows, (number + 1) * rows),
            "x": rng.random(rows),
            "y": rng.random(rows, np.float32),
            "word": pa.array(rng.integers(0, 50_000, rows).astype(str)),
        }
        wd.DatasetBuilder(_NAME, store).append_table("main", pa.table(columns)).publish()


def _reading(open_rows: Callable[[], Any]) -> Callable[[], int]:
    def read() -> int:
        return sum(len(batch) for batch in open_rows().iter_batches(batch_format="pyarrow", batch_size=_BATCH_ROWS))

    return read


def _writing_ours(source: Any, store: str, number: int) -> Callable[[], int]:
    def write() -> int:
        wd.write_ray(source, f"bench/out-{number}", store=store)
        return source.count()  # type: ignore[no-any-return]

    return write


def _writing_parquet(source: Any, folder: Path) -> Callable[[], int]:
    def write() -> int:
        source.write_parquet(str(folder), compression="zstd")
        shutil.rmtree(folder)
        return source.count()  # type: ignore[no-any-return]

    return write
