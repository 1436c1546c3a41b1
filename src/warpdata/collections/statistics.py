"""Counts of versions: classes, splits and sizes of one, and the differences between two.

Implements "Statistics" of docs/specs/collections.md.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from warpdata.collections.tables import ANNOTATIONS, IMAGES, read_columns
from warpdata.datasets import Dataset

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "ClassStatistics",
    "CollectionStatistics",
    "Comparison",
    "compare_versions",
    "describe_version",
    "image_hashes",
]

_MAX_LISTED = 1000


@dataclass(frozen=True, slots=True)
class ClassStatistics:
    """One class: its objects by kind, and the images that have any of them, by split."""

    class_name: str
    annotations: int
    images: int
    by_kind: Mapping[str, int]
    images_by_split: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class CollectionStatistics:
    """Counts of a version. `stored_bytes` counts equal files once, `logical_bytes` each time."""

    version: str
    images: int
    annotations: int
    labeled_images: int
    logical_bytes: int
    stored_bytes: int
    splits: Mapping[str, int]
    classes: tuple[ClassStatistics, ...]


@dataclass(frozen=True, slots=True)
class Comparison:
    """The difference between two versions. Files are compared by path and hash; lists end after 1,000 paths."""

    older: str
    newer: str
    images: tuple[int, int]
    annotations: tuple[int, int]
    added_files: int
    removed_files: int
    changed_files: int
    added_annotations: int
    removed_annotations: int
    changed_annotations: int
    classes: Mapping[str, tuple[int, int]]
    """Annotations by class before and after, for every class of either version."""
    added: tuple[str, ...]
    removed: tuple[str, ...]
    changed: tuple[str, ...]


def describe_version(dataset: Dataset) -> CollectionStatistics:
    """Count the images and annotations of a version. Reads columns of both tables."""
    images = read_columns(dataset, IMAGES, ["path", "hash", "size_bytes", "split"])
    rows = read_columns(dataset, ANNOTATIONS, ["image", "kind", "class_name"])
    splits = dict(zip(images["path"].to_pylist(), images["split"].to_pylist(), strict=True))
    kinds: dict[str, Counter[str]] = {}
    pairs: dict[str, set[str]] = {}
    for name, kind, image in zip(
        *(rows[column].to_pylist() for column in ("class_name", "kind", "image")), strict=True
    ):
        kinds.setdefault(name, Counter())[kind] += 1
        pairs.setdefault(name, set()).add(image)
    classes = tuple(
        ClassStatistics(
            name,
            kinds[name].total(),
            len(pairs[name]),
            dict(sorted(kinds[name].items())),
            dict(sorted(Counter(splits.get(path) or "" for path in pairs[name]).items())),
        )
        for name in sorted(kinds)
    )
    sizes = dict(zip(images["hash"].to_pylist(), images["size_bytes"].to_pylist(), strict=True))
    return CollectionStatistics(
        version=dataset.version,
        images=images.num_rows,
        annotations=rows.num_rows,
        labeled_images=len(set().union(*pairs.values())) if pairs else 0,
        logical_bytes=sum(size or 0 for size in images["size_bytes"].to_pylist()),
        stored_bytes=sum(size or 0 for size in sizes.values()),
        splits=dict(sorted(Counter(split or "" for split in splits.values()).items())),
        classes=classes,
    )


def compare_versions(older: Dataset, newer: Dataset) -> Comparison:
    """Compare two versions by file and by annotation id."""
    before, after = image_hashes(older), image_hashes(newer)
    added = sorted(after.keys() - before.keys())
    removed = sorted(before.keys() - after.keys())
    changed = sorted(path for path in before.keys() & after.keys() if before[path] != after[path])
    old_rows, new_rows = _annotations(older), _annotations(newer)
    classes = Counter(row["class_name"] for row in old_rows.values())
    new_classes = Counter(row["class_name"] for row in new_rows.values())
    return Comparison(
        older=older.version,
        newer=newer.version,
        images=(len(before), len(after)),
        annotations=(len(old_rows), len(new_rows)),
        added_files=len(added),
        removed_files=len(removed),
        changed_files=len(changed),
        added_annotations=len(new_rows.keys() - old_rows.keys()),
        removed_annotations=len(old_rows.keys() - new_rows.keys()),
        changed_annotations=sum(old_rows[one] != new_rows[one] for one in old_rows.keys() & new_rows.keys()),
        classes={name: (classes[name], new_classes[name]) for name in sorted({*classes, *new_classes})},
        added=tuple(added[:_MAX_LISTED]),
        removed=tuple(removed[:_MAX_LISTED]),
        changed=tuple(changed[:_MAX_LISTED]),
    )


def image_hashes(dataset: Dataset) -> dict[str, str]:
    """Return the hash of each file by its path."""
    rows: pa.Table = read_columns(dataset, IMAGES, ["path", "hash"])
    return dict(zip(rows["path"].to_pylist(), rows["hash"].to_pylist(), strict=True))


def _annotations(dataset: Dataset) -> dict[str, dict[str, Any]]:
    table = dataset.table(ANNOTATIONS)
    rows = read_columns(dataset, ANNOTATIONS, table.schema().names).to_pylist()
    return {row["id"]: row for row in rows}
