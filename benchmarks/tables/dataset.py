"""Datasets as the benchmarks need them: published once, and the files they ended up in."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import warpdata as wd
from warpdata.digest import blob_key
from warpdata.manifest import Shard, iter_shards
from warpdata.settings import Settings

__all__ = ["DATASET", "open_table", "publish", "shard_sources", "shards_of"]

DATASET = "bench/table"


def publish(paths: Sequence[Path], store: str, settings: Settings, *, rewrite: bool = False) -> None:
    """The files as the one table of `bench/table`: byte for byte, or their rows in files that we write."""
    wd.DatasetBuilder(DATASET, store, settings=settings).add_table("main", list(paths), rewrite=rewrite).publish()


def open_table(store: str, settings: Settings) -> wd.Table:
    """By name, as a user would."""
    return wd.dataset(DATASET, store=store, settings=settings).table("main")


def shards_of(table: wd.Table) -> list[Shard]:
    return list(iter_shards(table.entry.shards, table.load_page))


def shard_sources(store: str, settings: Settings) -> list[str]:
    """The very files the table reads, as peers take them: paths where they are local, else URLs."""
    reader = wd.connect(store, settings).reader
    keys = [blob_key(shard.hash) for shard in shards_of(open_table(store, settings))]
    return [str(reader.local_path(key) or f"{reader.url}/{key}") for key in keys]
