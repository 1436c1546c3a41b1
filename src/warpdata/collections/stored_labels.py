"""The labels of a version as the neutral model of formats: images in order, each with its annotations.

The tables are read once and stay in memory as Arrow data. Annotations become objects a block of images at a time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from warpdata.collections.tables import ANNOTATIONS, IMAGES, annotation_schema, quoted_lists, read_columns
from warpdata.datasets import Dataset
from warpdata.formats.labels import (
    Annotation,
    LabelBlock,
    LabelClass,
    LabeledImage,
    LabelSet,
    annotation_of,
    geometry_schema,
)

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["StoredLabels", "annotations_of", "find_images", "label_set"]

_BLOCK_IMAGES = 1000
_COLUMNS = ("path", "width", "height", "split", "tags", "hash")


def label_set(dataset: Dataset, where: str | None = None) -> LabelSet:
    """Return the labels of a version of a collection. `where` is a filter of images. Classes are sorted by name."""
    images = read_columns(dataset, IMAGES, _COLUMNS, where)
    names = [name for name in annotation_schema().names if name not in ("author", "time")]
    rows = read_columns(dataset, ANNOTATIONS, names)
    classes = tuple(LabelClass(name) for name in sorted(set(rows["class_name"].to_pylist())))
    splits = tuple(sorted(set(images["split"].to_pylist()), key=lambda split: (split is not None, split or "")))
    stored = StoredLabels(images, *_group(images, rows))
    return _StoredSet(classes, stored, splits or (None,), dataset.id.rpartition("/")[2])


def annotations_of(dataset: Dataset, paths: Sequence[str]) -> dict[str, list[Annotation]]:
    """Return the annotations of some images, by path. Images without annotations are absent."""
    found: dict[str, list[Annotation]] = {}
    if paths and dataset.table(ANNOTATIONS).count():
        for where in quoted_lists("image", paths):
            for row in read_columns(dataset, ANNOTATIONS, annotation_schema().names, where).to_pylist():
                found.setdefault(row["image"], []).append(annotation_of(row))
    return found


def find_images(dataset: Dataset, paths: Sequence[str]) -> dict[str, LabeledImage]:
    """Return those of some images that a version has, by path and without their annotations."""
    found: dict[str, LabeledImage] = {}
    for where in quoted_lists("path", list(dict.fromkeys(paths))):
        for row in read_columns(dataset, IMAGES, _COLUMNS, where).to_pylist():
            tags = tuple(row["tags"] or ())
            image = LabeledImage(row["path"], [], row["width"], row["height"], row["split"], tags, row["hash"])
            found[row["path"]] = image
    return found


@dataclass(frozen=True)
class StoredLabels:
    """The images of a version. `starts` are the first rows of annotations of each image."""

    images: pa.Table
    rows: pa.Table
    starts: Any

    def blocks(self, image_count: int = _BLOCK_IMAGES) -> Iterator[LabelBlock]:
        """Yield the images in order, with at most this number in a block."""
        names = geometry_schema().names
        for first in range(0, self.images.num_rows, image_count):
            block = self.images.slice(first, image_count)
            starts = self.starts[first : first + block.num_rows + 1]
            rows = self.rows.slice(int(starts[0]), int(starts[-1] - starts[0])).select(names)
            yield LabelBlock(_images(block), rows, starts - starts[0])

    def __iter__(self) -> Iterator[LabeledImage]:
        for block in self.blocks():
            yield from block

    def of_split(self, split: str | None) -> StoredLabels:
        """Return the images of one split."""
        import numpy as np
        import pyarrow.compute as pc

        column = self.images["split"]
        chosen = pc.is_null(column) if split is None else pc.fill_null(pc.equal(column, split), False)
        numbers = np.flatnonzero(chosen.to_numpy(zero_copy_only=False))
        counts = np.diff(self.starts)[numbers]
        offsets = np.concatenate([[0], np.cumsum(counts)])
        taken = np.repeat(self.starts[numbers] - offsets[:-1], counts) + np.arange(offsets[-1])
        return replace(self, images=self.images.take(numbers), rows=self.rows.take(taken), starts=offsets)


class _StoredSet(LabelSet):
    def of_split(self, split: str | None) -> StoredLabels:
        assert isinstance(self.images, StoredLabels)
        return self.images.of_split(split)


def _images(rows: pa.Table) -> list[LabeledImage]:
    columns = {name: rows[name].to_pylist() for name in _COLUMNS}
    return [
        LabeledImage(path, [], width, height, split, tuple(tags or ()), digest)
        for path, width, height, split, tags, digest in zip(*columns.values(), strict=True)
    ]


def _group(images: pa.Table, rows: pa.Table) -> tuple[pa.Table, Any]:
    """Return the annotations in the order of their images, and where those of each image begin."""
    import numpy as np
    import pyarrow.compute as pc

    found = pc.index_in(rows["image"], images["path"]).combine_chunks()
    numbers = pc.fill_null(found, images.num_rows).to_numpy(zero_copy_only=False)
    order = np.argsort(numbers, kind="stable")
    starts = np.searchsorted(numbers[order], np.arange(images.num_rows + 1))
    is_sorted = bool((numbers[1:] >= numbers[:-1]).all())
    return (rows if is_sorted else rows.take(order)).slice(0, int(starts[-1])), starts
