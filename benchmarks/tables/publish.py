"""Publishing: how near it comes to just sending the files, and how much memory it takes.

The peer is `obstore.put` of the same paths with its default settings, on as many threads as publish
uses. Publishing also reads every file a second time to hash it, looks for what is already there, and
commits. Memory is the peak of a process of its own that publishes one file.
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

from benchmarks.harness.data import doubles_file, many_small_files, scratch, trips
from benchmarks.harness.timing import Arm, Effort, Finding, Report, interleave, megabytes, seconds
from benchmarks.tables.dataset import publish
from warpdata.testing import S3Endpoint, S3Server

if TYPE_CHECKING:
    from obstore.store import S3Store

__all__ = ["run"]

_THREADS = 4
_LEAST = 0.8
_FLAT = 1.2
_MIB = 1 << 20


def run(effort: Effort) -> Report:
    large = trips(2, 50_000) if effort.quick else trips(4, 1_600_000)
    small = many_small_files(20 if effort.quick else 400, 256 * 1024)
    sizes = (8 * _MIB, 64 * _MIB) if effort.quick else (256 * _MIB, 2048 * _MIB)
    with S3Server() as s3:
        findings = [
            _rate(f"{len(paths)} files of {megabytes(paths[0].stat().st_size)}", paths, s3, effort)
            for paths in (large, small)
        ]
        findings.append(_memory(s3, sizes))
    return Report("Publish", f"Loopback S3, {_THREADS} threads on both sides.", findings)


def _rate(case: str, paths: Sequence[Path], s3: S3Endpoint, effort: Effort) -> Finding:
    numbers = count()
    settings = s3.settings(cache_dir=scratch("publish-cache"))
    size_bytes = sum(path.stat().st_size for path in paths)

    def ours() -> Callable[[], int]:
        store = s3.url(f"publish-{len(paths)}-{next(numbers)}")
        return partial(_publish, paths, lambda: publish(paths, store, settings))

    def bare() -> Callable[[], int]:
        store = _bare_store(s3)
        prefix = f"bare-{len(paths)}-{next(numbers)}"
        return partial(_publish, paths, lambda: _put_all(store, prefix, paths))

    arms: dict[str, Arm] = {"ours": ours, "bare": bare}
    timings = interleave(arms, effort.rounds)
    ratio = timings.speed_ratio("ours", "bare")
    ours_s, bare_s = timings.median_s("ours"), timings.median_s("bare")
    return Finding(
        f"{case}, against bare obstore puts",
        f"{seconds(ours_s)}, {size_bytes / ours_s / 1e6:,.0f} MB/s",
        f"{seconds(bare_s)}, {size_bytes / bare_s / 1e6:,.0f} MB/s",
        f"{ratio:.2f} ({timings.spread('ours', 'bare')})",
        f"≥ {_LEAST}",
        ratio >= _LEAST,
    )


def _publish(paths: Sequence[Path], send: Callable[[], None]) -> int:
    send()
    return len(paths)


def _bare_store(s3: S3Endpoint) -> S3Store:
    from obstore.store import S3Store

    return S3Store(
        s3.bucket,
        config={
            "endpoint": s3.endpoint_url,
            "access_key_id": s3.access_key_id,
            "secret_access_key": s3.secret_access_key,
            "region": "us-east-1",
        },
        client_options={"allow_http": True},
    )


def _put_all(store: S3Store, prefix: str, paths: Sequence[Path]) -> None:
    import obstore

    def put(path: Path) -> None:
        obstore.put(store, f"{prefix}/{path.name}", path)

    with ThreadPoolExecutor(_THREADS) as pool:
        list(pool.map(put, paths))


def _memory(s3: S3Endpoint, sizes: tuple[int, int]) -> Finding:
    """Publish a small and a large file, each in a process of its own, and compare their peaks."""
    small, large = (_peak_bytes(s3, size) for size in sizes)
    return Finding(
        f"peak memory, one file of {sizes[1] // _MIB:,} MiB against one of {sizes[0] // _MIB} MiB",
        megabytes(large),
        megabytes(small),
        f"{large / small:.2f}× the memory",
        f"≤ {_FLAT}×",
        large / small <= _FLAT,
    )


def _peak_bytes(s3: S3Endpoint, size_bytes: int) -> int:
    environ = {**os.environ, **s3.environ(), "WARP_CACHE_DIR": str(scratch("publish-cache"))}
    command = [sys.executable, "-m", "benchmarks.tables.publish_worker"]
    finished = subprocess.run(
        [*command, str(doubles_file(size_bytes)), s3.url(f"memory-{size_bytes}")],
        cwd=Path(__file__).parents[2],
        env=environ,
        stdout=subprocess.PIPE,
        timeout=600,
        check=True,
    )
    return int(finished.stdout)
