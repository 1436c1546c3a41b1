"""Packing a folder into shards and publishing them, beside `tar` and a SHA-256 of what it wrote.

Both write to the same disk and wait until it is there. Publishing reads every file twice, once to learn
what each shard will be and once to write it, hashes twice, and commits; `tar` and `sha256` do each once.
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

from benchmarks.harness.data import media_files, scratch
from benchmarks.harness.timing import Arm, Effort, Finding, Report, Timings, interleave, megabytes, seconds
from benchmarks.media.dataset import Media, publish_media
from warpdata.settings import Settings

__all__ = ["run"]


def run(effort: Effort) -> Report:
    media = Media.of(media_files(300 if effort.quick else 20_000))
    numbers = count()

    def ours() -> Callable[[], int]:
        store = scratch(f"packing/{next(numbers)}").as_uri()
        return partial(_publish, media, store, Settings(store_url=store, cache_dir=scratch("media-cache")))

    arms: dict[str, Arm] = {"ours": ours}
    program = shutil.which("tar")
    if program is not None:
        tar = partial(_tar, program, media)
        arms["tar"] = lambda: partial(tar, scratch(f"packing/{next(numbers)}") / "all.tar")
    timings = interleave(arms, effort.rounds)
    scratch("packing")
    return Report(
        "Packing a folder",
        f"{len(media):,} files, {megabytes(media.size_bytes)} together, into a local store.",
        [_finding(timings, media)],
        [] if "tar" in arms else ["`tar` is not installed; it was not measured."],
    )


def _publish(media: Media, store: str, settings: Settings) -> int:
    publish_media(media, store, settings)
    return len(media)


def _tar(program: str, media: Media, path: Path) -> int:
    subprocess.run([program, "-cf", str(path), "-C", str(media.folder), "."], check=True)
    with path.open("rb") as file:
        os.fsync(file.fileno())
        assert hashlib.file_digest(file, "sha256").digest()
    return len(media)


def _finding(timings: Timings, media: Media) -> Finding:
    if "tar" not in timings.by_arm:
        return Finding("publish", _rate(timings, "ours", media))
    return Finding(
        "publish, against `tar` and SHA-256",
        _rate(timings, "ours", media),
        _rate(timings, "tar", media),
        f"{timings.speed_ratio('ours', 'tar'):.2f} ({timings.spread('ours', 'tar')})",
    )


def _rate(timings: Timings, arm: str, media: Media) -> str:
    took_s = timings.median_s(arm)
    return f"{seconds(took_s)}, {media.size_bytes / took_s / 1e6:,.0f} MB/s"
