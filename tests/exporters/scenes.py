"""Fixtures of the export tests: one dataset with images, classes and splits."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa

import warpdata as wd
from tests.ingest.scenes import png

__all__ = ["COLUMNS", "files_of", "publish_pets"]

COLUMNS: dict[str, Any] = {
    "image": ["train/cat/1.png", "train/dog/1.png", "val/cat/2.png", "val/dog/3.png"],
    "label": ["cat", "dog", "cat", "dog"],
    "split": ["train", "train", "val", "val"],
    "n": [1, None, 3, 4],
    "score": [0.1, 0.5, None, 2.0],
    "note": ["é", "", None, "a\nb"],
    "vector": [[1.0, 2.0], [], None, [0.25]],
    "when": [datetime(2026, 1, day) for day in range(1, 5)],
}
"""The rows of the dataset, by column. Two files have the same name in different directories."""


def publish_pets(dataset_id: str = "acme/pets", columns: dict[str, Any] | None = None) -> dict[str, bytes]:
    """Publish the rows, and return the content of each member."""
    given = COLUMNS if columns is None else columns
    members = {path: png(shade) for shade, path in enumerate(dict.fromkeys(filter(None, given["image"])))}
    builder = wd.DatasetBuilder(dataset_id).add_table("main", pa.table(given)).add_artifact("raw_images", members)
    builder.bind("main", "image", "raw_images", "image").publish()
    return members


def files_of(folder: Path) -> dict[str, bytes]:
    """Return all files below a directory by their relative path."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
