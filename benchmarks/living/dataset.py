"""The rows of the scenarios, published once, and copies of a store for each run."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import warpdata as wd
from benchmarks.harness.data import make_once, scratch
from warpdata import Settings

__all__ = [
    "DATASET",
    "copy_of",
    "directory_bytes",
    "make_rows",
    "open_dataset",
    "publish_rows",
    "settings_beside",
    "settings_of",
]

DATASET = "bench/living"
_LABELS = np.array(["bike", "bus", "car", "cat", "dog", "truck", "walker", "van"])


def make_rows(count: int) -> Path:
    """Return a Parquet file with ids, two floats that do not compress, and a label of eight, in random order."""

    def make(directory: Path) -> None:
        rng = np.random.default_rng(4)
        labels = pa.DictionaryArray.from_arrays(pa.array(rng.integers(0, len(_LABELS), count), pa.int32()), _LABELS)
        columns = {"id": np.arange(count), "x": rng.random(count), "y": rng.random(count, dtype=np.float32)}
        table = pa.table({**columns, "label": labels.cast(pa.string())})
        pq.write_table(table, directory / "rows.parquet", compression="zstd", row_group_size=131_072)

    return make_once(f"living-{count}", make) / "rows.parquet"


def settings_of(store: Path) -> Settings:
    return Settings(store_url=store.as_uri(), cache_dir=scratch("living-cache"))


def settings_beside(store: Path) -> Settings:
    """Return the settings of `settings_of`, without a new cache."""
    return Settings(store_url=store.as_uri(), cache_dir=store.parent / "scratch-living-cache")


def publish_rows(name: str, rows: Path) -> Path:
    """Publish the rows into a new local store, and return its directory."""
    store = scratch(name)
    wd.DatasetBuilder(DATASET, settings=settings_of(store)).add_table("main", rows, rewrite=True).publish()
    return store


def open_dataset(store: Path, ref: str = "main") -> wd.Dataset:
    return wd.dataset(f"{DATASET}@{ref}", settings=settings_beside(store))


def copy_of(directory: Path, name: str) -> Path:
    """Return a copy of a directory, so that each run begins with the same state."""
    target = scratch(name)
    shutil.copytree(directory, target, dirs_exist_ok=True)
    return target


def directory_bytes(directory: Path) -> int:
    return sum(path.stat().st_size for path in directory.rglob("*") if path.is_file())
