"""Packing a directory into shards and publishing them, beside `tar` and a SHA-256 of its output.

Both write to the same disk and wait for it. Publishing reads every file twice, to compute the version and to write
the shard, hashes twice, and commits; `tar` and SHA-256 do each once.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from collections.abc import Callable
from functools import partial
from itertools import count
from pathlib import Path

from benchmarks.harness.data import make_media_files, scratch
from benchmarks.harness.timing import Arm, RunOptions, format_bytes, interleave
from benchmarks.media.dataset import MediaFiles, publish_media
from benchmarks.results import Measurement, Outcome
from warpdata import Settings

__all__ = ["run"]


def run(options: RunOptions) -> Outcome:
    media = MediaFiles.of(make_media_files(300 if options.is_smoke else 20_000))
    numbers = count()

    def ours() -> Callable[[], int]:
        store = scratch(f"packing/{next(numbers)}").as_uri()
        return partial(_publish, media, store, Settings(store_url=store, cache_dir=scratch("media-cache")))

    arms: dict[str, Arm] = {"ours": ours}
    program = shutil.which("tar")
    if program is not None:
        tar = partial(_tar, program, media)
        arms["tar"] = lambda: partial(tar, scratch(f"packing/{next(numbers)}") / "all.tar")
    timings = interleave(arms, options.rounds)
    scratch("packing")
    if program is None:
        measurement = Measurement(case="publish", unit="ms", ours=timings.value("ours", "ms"))
    else:
        rates = [media.size_bytes / timings.median_s(arm) / 1e6 for arm in arms]
        detail = f"{rates[0]:,.0f} MB/s against {rates[1]:,.0f} MB/s"
        measurement = timings.compare("publish", "ours", "tar", peer_name="`tar` and SHA-256", detail=detail)
    return Outcome(
        title="Packing a directory",
        method=f"{len(media):,} files, {format_bytes(media.size_bytes)} in total, into a local store.",
        measurements=[measurement],
        skipped=[] if program else ["`tar` is not installed; it was not measured."],
    )


def _publish(media: MediaFiles, store: str, settings: Settings) -> int:
    publish_media(media, store, settings)
    return len(media)


def _tar(program: str, media: MediaFiles, path: Path) -> int:
    subprocess.run([program, "-cf", str(path), "-C", str(media.directory), "."], check=True)
    with path.open("rb") as file:
        os.fsync(file.fileno())
        assert hashlib.file_digest(file, "sha256").digest()
    return len(media)
