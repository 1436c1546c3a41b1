"""Publishing files to S3: rate beside bare uploads, and peak memory.

The peer is `obstore.put` of the same paths with its defaults, on as many threads as `publish` uses. Publishing also
reads every file a second time to hash it, looks for existing blobs, and commits. The peak memory is that of a
process that publishes one file: `python -m benchmarks.tables.publish FILE STORE`.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

import warpdata as wd
from benchmarks.harness.bare_store import open_bare_store
from benchmarks.harness.data import make_doubles_file, make_small_files, make_trips, scratch
from benchmarks.harness.machine import peak_bytes
from benchmarks.harness.process import CHECKOUT
from benchmarks.harness.timing import Arm, RunOptions, format_bytes, interleave
from benchmarks.results import Measurement, Outcome
from benchmarks.tables.dataset import publish_table
from warpdata.testing import S3Endpoint, S3Server

if TYPE_CHECKING:
    from obstore.store import S3Store

__all__ = ["run"]

_THREADS = 4
_MIB = 1 << 20


def run(options: RunOptions) -> Outcome:
    large = make_trips(2, 50_000) if options.is_smoke else make_trips(4, 1_600_000)
    small = make_small_files(20 if options.is_smoke else 400, 256 * 1024)
    sizes = (8 * _MIB, 64 * _MIB) if options.is_smoke else (256 * _MIB, 2048 * _MIB)
    with S3Server() as s3:
        measurements = [_measure_rate(paths, s3, options) for paths in (large, small)]
        measurements.append(_measure_memory(s3, sizes))
    return Outcome(
        title="Publish",
        method=f"Loopback S3, {_THREADS} threads on both sides.",
        measurements=measurements,
    )


def _measure_rate(paths: Sequence[Path], s3: S3Endpoint, options: RunOptions) -> Measurement:
    numbers = count()
    settings = s3.settings(cache_dir=scratch("publish-cache"))
    size_bytes = sum(path.stat().st_size for path in paths)

    def ours() -> Callable[[], int]:
        store = s3.url(f"publish-{len(paths)}-{next(numbers)}")
        return partial(_count, paths, partial(publish_table, paths, store, settings))

    def bare() -> Callable[[], int]:
        prefix = f"bare-{len(paths)}-{next(numbers)}"
        return partial(_count, paths, partial(_put_all, open_bare_store(s3), prefix, paths))

    arms: dict[str, Arm] = {"ours": ours, "bare": bare}
    timings = interleave(arms, options.rounds)
    rates = [size_bytes / timings.median_s(arm) / 1e6 for arm in arms]
    return timings.compare(
        f"{len(paths)} files of {format_bytes(paths[0].stat().st_size)}",
        "ours",
        "bare",
        peer_name="bare obstore puts",
        promise="publish-rate",
        detail=f"{rates[0]:,.0f} MB/s against {rates[1]:,.0f} MB/s",
    )


def _count(paths: Sequence[Path], send: Callable[[], None]) -> int:
    send()
    return len(paths)


def _put_all(store: S3Store, prefix: str, paths: Sequence[Path]) -> None:
    import obstore

    def put(path: Path) -> None:
        obstore.put(store, f"{prefix}/{path.name}", path)

    with ThreadPoolExecutor(_THREADS) as pool:
        list(pool.map(put, paths))


def _measure_memory(s3: S3Endpoint, sizes: tuple[int, int]) -> Measurement:
    small, large = (_publish_in_process(s3, size) for size in sizes)
    return Measurement(
        case=f"peak memory, one file of {sizes[1] // _MIB:,} MiB",
        unit="MB",
        ours=large / 1e6,
        peer=small / 1e6,
        peer_name=f"one file of {sizes[0] // _MIB} MiB",
        is_baseline=True,
        ratio=large / small,
        quantity="memory",
        promise="publish-memory",
    )


def _publish_in_process(s3: S3Endpoint, size_bytes: int) -> int:
    """Publish one file in a new process and return the peak memory of that process."""
    finished = subprocess.run(
        [
            sys.executable,
            "-m",
            "benchmarks.tables.publish",
            str(make_doubles_file(size_bytes)),
            s3.url(f"memory-{size_bytes}"),
        ],
        cwd=CHECKOUT,
        env={**os.environ, **s3.environ(), "WARP_CACHE_DIR": str(scratch("publish-cache"))},
        stdout=subprocess.PIPE,
        timeout=600,
        check=True,
    )
    return int(finished.stdout)


if __name__ == "__main__":
    wd.DatasetBuilder("bench/one", sys.argv[2]).add_table("main", sys.argv[1]).publish()
    print(peak_bytes())
