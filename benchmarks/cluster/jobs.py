"""Jobs on Ray: the time that the engine adds to a small job, and one worker beside two on larger ones."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import warpdata as wd
from benchmarks.harness.data import scratch
from benchmarks.harness.ray_cluster import two_cpus
from benchmarks.harness.timing import Arm, RunOptions, Timings, interleave
from benchmarks.results import Measurement, Outcome
from warpdata.jobs import RayEngine

__all__ = ["run"]

_NAME = "bench/photos"


def run(options: RunOptions) -> Outcome:
    files, rows = (20, 200) if options.is_smoke else (1200, 4_000)
    folder = scratch("ray-jobs")
    images = _write_files(folder / "images", files)
    numbers = count()

    def store() -> str:
        return (folder / f"store-{next(numbers)}").as_uri()

    with two_cpus():
        small: dict[str, Arm] = {
            "ray": lambda: _embedding(store(), 2, 100, "ray"),
            "none": lambda: _embedding(store(), 2, 100, None),
        }
        timings = interleave(small, options.rounds, warmups=1)
        overhead = timings.median_s("ray") - timings.median_s("none")
        embed = interleave(
            {
                "two": lambda: _embedding(store(), 8, rows, RayEngine(workers=2)),
                "one": lambda: _embedding(store(), 8, rows, RayEngine(workers=1)),
            },
            options.rounds,
            warmups=1,
        )
        ingest = interleave(
            {
                "two": lambda: _ingest(images, store(), RayEngine(workers=2)),
                "one": lambda: _ingest(images, store(), RayEngine(workers=1)),
            },
            options.rounds,
            warmups=1,
        )
    return Outcome(
        title="Jobs on Ray",
        method="Two CPUs of one machine, with Ray running. Two workers have both CPUs, one worker has one.",
        measurements=[
            Measurement(case="overhead of a small job", unit="s", ours=overhead, promise="ray-overhead"),
            _speed_up("embedding", embed),
            _speed_up("ingest", ingest),
        ],
    )


def _speed_up(case: str, timings: Timings) -> Measurement:
    return timings.compare(case, "two", "one", peer_name="one worker", unit="s", promise="ray-workers")


def _write_files(folder: Path, files: int) -> Path:
    rng = np.random.default_rng(2)
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(files):
        (folder / f"{number:05d}.jpg").write_bytes(rng.bytes(100_000))
    return folder


def _compute(batch: pa.RecordBatch) -> Any:
    """Spend the time of a small model on each row."""
    rows = np.asarray(batch.column(0), dtype=np.float64)[:, None] * np.ones((1, 256))
    for _ in range(40):
        rows = np.tanh(rows * 1.01)
    return rows[:, :8].astype(np.float32)


def _embedding(store: str, shards: int, rows: int, engine: Any) -> Callable[[], int]:
    for number in range(shards):
        part = {"n": np.arange(number * rows, (number + 1) * rows)}
        wd.DatasetBuilder(_NAME, store).append_table("main", part).publish()

    def embed() -> int:
        with wd.dataset(_NAME, store=store).edit("embed") as edit:
            edit.add_column("main", "emb", _compute, columns=["n"], batch_size=256, engine=engine)
        return shards * rows

    return embed


def _ingest(images: Path, store: str, engine: Any) -> Callable[[], int]:
    packing = wd.ingest.Packing(compression="zstd", shard_bytes=8_000_000)

    def publish() -> int:
        builder = wd.ingest.imagefolder(_NAME, images, store=store, packing=packing, report=lambda _: None)
        builder.publish(engine=engine)
        return len(list(images.iterdir()))

    return publish
