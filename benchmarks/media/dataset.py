"""Media as the benchmarks need them: a folder published once, a table that refers to each of its files."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import warpdata as wd
from warpdata.artifacts import FileRef
from warpdata.digest import blob_key
from warpdata.limits import ARTIFACT_SHARD_BYTES
from warpdata.manifest import Shard, iter_shards
from warpdata.settings import Settings

__all__ = [
    "ARTIFACT",
    "COLUMN",
    "MEDIA",
    "Media",
    "artifact_shards",
    "open_references",
    "publish_media",
    "shuffled",
]

MEDIA = "bench/media"
ARTIFACT = "raw"
COLUMN = "file"


@dataclass(frozen=True, slots=True)
class Media:
    """A folder of files, and what to expect of reading them."""

    folder: Path
    paths: Sequence[str]
    sizes: Sequence[int]

    @staticmethod
    def of(folder: Path) -> Media:
        files = sorted(path for path in folder.rglob("*") if path.is_file())
        names = [path.relative_to(folder).as_posix() for path in files]
        return Media(folder, names, [path.stat().st_size for path in files])

    def __len__(self) -> int:
        return len(self.paths)

    @property
    def size_bytes(self) -> int:
        return sum(self.sizes)

    def size_of(self, positions: Sequence[int]) -> int:
        return sum(self.sizes[position] for position in positions)


def publish_media(media: Media, store: str, settings: Settings, shard_bytes: int = ARTIFACT_SHARD_BYTES) -> None:
    """The folder as an artifact of `bench/media`, and a table with a row for each file, in the order of `media`."""
    import pyarrow as pa

    table = pa.table({"id": list(range(len(media))), COLUMN: list(media.paths)})
    builder = wd.DatasetBuilder(MEDIA, store, settings=settings).add_table("main", table)
    builder.add_artifact(ARTIFACT, media.folder, shard_bytes=shard_bytes)
    builder.bind("main", COLUMN, ARTIFACT, "file").publish()


def open_references(store: str, settings: Settings, mode: str = "auto") -> list[FileRef]:
    """One for each row, as a user gets them from the column."""
    opened = wd.dataset(MEDIA, store=store, settings=replace(settings, mode=mode))
    references: list[FileRef] = opened.table("main").to_arrow()[COLUMN].to_pylist()
    return references


def artifact_shards(store: str, settings: Settings) -> list[tuple[str, Shard]]:
    """The shards of the artifact with their keys, in the order that members name them."""
    opened = wd.dataset(MEDIA, store=store, settings=settings)
    shards = opened.artifact(ARTIFACT).entry.shards
    return [(blob_key(shard.hash), shard) for shard in iter_shards(shards, opened.connection.catalog.load_page)]


def shuffled(count: int, seed: int, limit: int | None = None) -> list[int]:
    """Positions in random order, all of them or the first few."""
    return random.Random(seed).sample(range(count), count if limit is None else min(limit, count))
