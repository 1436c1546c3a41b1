"""A dataset with images, and changes of it that can run on an engine. Everything follows from a seed.

Functions that workers import live here, because a worker cannot import a test that pytest has rewritten.
"""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import warpdata as wd
from warpdata.indexing import segment_builder

NAME = "acme/photos"
IMAGES, SHARDS, ROWS = 120, 6, 500
CALLS = "WARP_TEST_CALLS"
KILLS = "WARP_TEST_KILLS"


def write_images(folder: Path) -> Path:
    """Write a directory of files that look like images by name: ingest does not decode them."""
    rng = random.Random(7)
    for number in range(IMAGES):
        path = folder / ("train" if number % 4 else "test") / "abc"[number % 3] / f"{number:04d}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(rng.randbytes(rng.randrange(1, 3000)))
    return folder


def ingest(folder: Path, *, kind: str = "tar_shards", compression: str | None = None, **how: Any) -> str:
    """Publish the images, in shards of about 10 kB, and return the version."""
    size = 10_000 if kind == "tar_shards" else None
    packing = wd.ingest.Packing(kind=kind, compression=compression, shard_bytes=size)
    return wd.ingest.imagefolder(NAME, folder, packing=packing, report=lambda _: None).publish(**how).version


def append_rows() -> str:
    """Make a table of some shards beside the images, and return the version."""
    rng = np.random.default_rng(3)
    for shard in range(SHARDS):
        numbers = np.arange(shard * ROWS, (shard + 1) * ROWS)
        vectors = pa.FixedSizeListArray.from_arrays(pa.array(rng.random(ROWS * 8, dtype=np.float32)), 8)
        rows = pa.table({"n": numbers, "x": rng.random(ROWS), "word": [f"w{n % 9}" for n in numbers], "v": vectors})
        done = wd.DatasetBuilder(NAME).append_table("rows", rows).publish()
    return done.version


def note_call(name: str) -> None:
    """Append to the file that counts calls, from any process."""
    if CALLS in os.environ:
        with Path(os.environ[CALLS]).open("a") as file:
            file.write(f"{name}\n")


def count_calls() -> int:
    path = Path(os.environ[CALLS])
    return len(path.read_text().splitlines()) if path.exists() else 0


def kill_once() -> None:
    """Kill this process, once in a test."""
    marker = os.environ.get(KILLS)
    if marker and not Path(marker).exists():
        Path(marker).touch()
        os.kill(os.getpid(), signal.SIGKILL)


def double(batch: pa.RecordBatch) -> Any:
    kill_once()
    note_call("double")
    return np.asarray(batch.column(0)) * 2


def size_of_image(batch: pa.RecordBatch) -> list[int]:
    return [len(ref.read_bytes()) for ref in batch.column(0).to_pylist()]


def refuse(batch: pa.RecordBatch) -> Any:
    raise ValueError("no value for this row")


def add_column(**how: Any) -> str:
    with wd.dataset(NAME).edit("double") as edit:
        edit.add_column("rows", "y", double, columns=["x"], batch_size=ROWS, **how)
    return edit.version


def add_column_of_images(**how: Any) -> str:
    with wd.dataset(NAME).edit("sizes") as edit:
        edit.append("rows", {"n": [-1], "x": [0.5], "word": ["new"], "v": [[0.0] * 8]})
        edit.add_column("main", "size", size_of_image, columns=["image"], type="int32", **how)
        edit.add_column("rows", "y", double, columns=["x"], **how)
    return edit.version


def create_index(**how: Any) -> str:
    return wd.dataset(NAME).create_index("rows", "x", "btree", **how).version


def create_vector_index(**how: Any) -> str:
    return wd.dataset(NAME).create_index("rows", "v", "ivf", lists=4, **how).version


def compact(**how: Any) -> str:
    return wd.dataset(NAME).compact(["rows"], target_bytes=150_000, **how).version


CHANGES: dict[str, Callable[..., str]] = {
    "add_column_of_images": add_column_of_images,
    "create_index": create_index,
    "create_vector_index": create_vector_index,
    "compact": compact,
}


def small_segments(monkeypatch: Any) -> None:
    """Cut indexes into several segments. Only the driver plans them."""
    monkeypatch.setattr(segment_builder, "SEGMENT_ROWS", 2 * ROWS)


def new_store(monkeypatch: Any, directory: Path) -> Path:
    """Use an empty store from now on, in this process and in workers."""
    monkeypatch.setenv("WARP_STORE", directory.as_uri())
    return directory


def commit_count() -> int:
    return len(wd.dataset(NAME).history())
