"""Published media of the scenarios: a directory as an artifact, and a table with a reference to each file."""

from __future__ import annotations

import random
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import warpdata as wd
from benchmarks.harness.process import Worker
from warpdata import FileRef, Settings
from warpdata.primitives.hashing import blob_key
from warpdata.repository.manifest import Shard, iter_shards

__all__ = [
    "ARTIFACT",
    "COLUMN",
    "DATASET",
    "SHARD_BYTES",
    "MediaFiles",
    "artifact_shards",
    "open_references",
    "publish_media",
    "shuffle_positions",
    "start_reader",
]

DATASET = "bench/media"
ARTIFACT = "raw"
COLUMN = "file"
SHARD_BYTES = 128 * 2**20
"""Size of tar shards, the same for warpdata and its peers."""


@dataclass(frozen=True, slots=True)
class MediaFiles:
    """Files of a directory, with their sizes."""

    directory: Path
    paths: Sequence[str]
    sizes: Sequence[int]

    @staticmethod
    def of(directory: Path) -> MediaFiles:
        files = sorted(path for path in directory.rglob("*") if path.is_file())
        names = [path.relative_to(directory).as_posix() for path in files]
        return MediaFiles(directory, names, [path.stat().st_size for path in files])

    def __len__(self) -> int:
        return len(self.paths)

    @property
    def size_bytes(self) -> int:
        return sum(self.sizes)

    def size_of(self, positions: Sequence[int]) -> int:
        return sum(self.sizes[position] for position in positions)


def publish_media(media: MediaFiles, store: str, settings: Settings) -> None:
    """Publish the directory as an artifact of `bench/media`, and a table with a row for each file, in order."""
    import pyarrow as pa

    table = pa.table({"id": list(range(len(media))), COLUMN: list(media.paths)})
    builder = wd.DatasetBuilder(DATASET, store, settings=settings).add_table("main", table)
    builder.add_artifact(ARTIFACT, media.directory, shard_bytes=SHARD_BYTES)
    builder.bind("main", COLUMN, ARTIFACT, "file").publish()


def open_references(store: str, settings: Settings, mode: str = "auto") -> list[FileRef]:
    """Return the reference of each row."""
    opened = wd.dataset(DATASET, store=store, settings=replace(settings, mode=mode))
    references: list[FileRef] = opened.table("main").to_arrow()[COLUMN].to_pylist()
    return references


def artifact_shards(store: str, settings: Settings) -> list[tuple[str, Shard]]:
    """Return the shards of the artifact with their keys, in the order that members count them."""
    opened = wd.dataset(DATASET, store=store, settings=settings)
    shards = opened.artifact(ARTIFACT).entry.shards
    return [(blob_key(shard.hash), shard) for shard in iter_shards(shards, opened.session.catalog.load_page)]


def shuffle_positions(count: int, seed: int, limit: int | None = None) -> list[int]:
    return random.Random(seed).sample(range(count), count if limit is None else min(limit, count))


def start_reader(environ: Mapping[str, str]) -> Worker:
    """Start a process that reads media with warpdata."""
    return Worker([sys.executable, "-m", "benchmarks.media.worker"], environ)
