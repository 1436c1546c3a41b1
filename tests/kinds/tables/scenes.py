"""Published tables for tests, and corruption of their stored files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import warpdata as wd
from warpdata.storage import Writer

__all__ = ["counted", "flip", "published"]


def published(parts: list[pa.Table], store: str, directory: Path, **options: Any) -> wd.Table:
    """Publish one Parquet file for each part, written with these options of Arrow."""
    paths = []
    for number, part in enumerate(parts):
        path = directory / f"part-{number:04d}.parquet"
        pq.write_table(part, path, **options)
        paths.append(path)
    wd.DatasetBuilder("a/b", store).add_table("main", paths).publish()
    return wd.dataset("a/b", store=store).table("main")


def counted(start: int, count: int) -> pa.Table:
    """Return rows numbered from `start`, with a text and a float."""
    numbers = np.arange(start, start + count)
    words = pa.array([f"w{n}" for n in numbers], pa.string())
    return pa.table({"n": numbers, "word": words, "x": numbers / 3})


def flip(store: Writer, key: str, position: int) -> None:
    """Flip one bit of a stored object."""
    data = bytearray(b"".join(bytes(chunk) for chunk in store.stream(key)))
    data[position] ^= 0x10
    store.delete(key)
    assert store.create(key, bytes(data))
