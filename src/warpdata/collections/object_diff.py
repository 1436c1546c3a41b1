"""The difference between two versions, object by object: added, removed, moved, or of another class.

Annotations that are replaced get new ids, so ids alone would call every corrected box new. Objects of an image without
a partner of the same id are paired by the overlap of their bounds. Reads only the annotations that differ.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from warpdata.collections.statistics import image_hashes
from warpdata.collections.tables import ANNOTATIONS, read_columns
from warpdata.datasets import Dataset
from warpdata.formats.labels import annotation_members, annotation_of

__all__ = ["ImageChange", "ObjectChange", "ObjectDiff", "diff_objects"]

Objects: TypeAlias = dict[str, list[dict[str, Any]]]
"""Annotations by image."""

ADDED, REMOVED, MOVED, RECLASSED = "added", "removed", "moved", "reclassed"
_LEAST_OVERLAP = 0.5
"""Intersection over union from which two objects are the same one."""
_GEOMETRY = ("box", "rotation", "polygon", "mask_size", "mask_counts", "keypoints")
_CONTENT = ("image", "id", "kind", "class_name", *_GEOMETRY, "attributes")


@dataclass(frozen=True, slots=True)
class ObjectChange:
    """An object that differs, in the members of Platform Format. "moved" includes other shapes and attributes."""

    change: str
    before: Mapping[str, Any] | None
    after: Mapping[str, Any] | None


@dataclass(frozen=True, slots=True)
class ImageChange:
    """An image that differs. `file` is "same", "added", "removed" or "changed"."""

    path: str
    file: str
    objects: tuple[ObjectChange, ...]


@dataclass(frozen=True, slots=True)
class ObjectDiff:
    """All images that differ, by path, with counts of the changes of objects."""

    older: str
    newer: str
    counts: Mapping[str, int]
    migrations: Mapping[tuple[str, str], int]
    """Objects by their class before and after, where these differ."""
    images: tuple[ImageChange, ...]


def diff_objects(older: Dataset, newer: Dataset) -> ObjectDiff:
    """Compare two versions of a collection by object."""
    files = _file_changes(image_hashes(older), image_hashes(newer))
    before, after = _differing(older, newer)
    paths = sorted({*files, *before, *after})
    images = tuple(
        ImageChange(path, files.get(path, "same"), tuple(_changes(before.get(path, []), after.get(path, []))))
        for path in paths
    )
    changed = [one for image in images for one in image.objects]
    migrations = Counter(
        (str(one.before["class_name"]), str(one.after["class_name"]))
        for one in changed
        if one.change == RECLASSED and one.before and one.after
    )
    counts = Counter(one.change for one in changed)
    kinds = (ADDED, REMOVED, MOVED, RECLASSED)
    return ObjectDiff(older.version, newer.version, {kind: counts[kind] for kind in kinds}, migrations, images)


def _file_changes(before: Mapping[str, str], after: Mapping[str, str]) -> dict[str, str]:
    added = dict.fromkeys(after.keys() - before.keys(), "added")
    removed = dict.fromkeys(before.keys() - after.keys(), "removed")
    changed = {path: "changed" for path in before.keys() & after.keys() if before[path] != after[path]}
    return {**added, **removed, **changed}


def _differing(older: Dataset, newer: Dataset) -> tuple[Objects, Objects]:
    """Return the annotations that differ, by image, of each version."""
    import pyarrow.compute as pc

    old, new = (read_columns(dataset, ANNOTATIONS, _CONTENT) for dataset in (older, newer))
    in_new, in_old = pc.is_in(old["id"], value_set=new["id"]), pc.is_in(new["id"], value_set=old["id"])
    kept_old, kept_new = old.filter(in_new).sort_by("id"), new.filter(in_old).sort_by("id")
    gone, come = old.filter(pc.invert(in_new)).to_pylist(), new.filter(pc.invert(in_old)).to_pylist()
    if not kept_old.equals(kept_new):
        for one, other in zip(kept_old.to_pylist(), kept_new.to_pylist(), strict=True):
            if one != other:
                gone.append(one)
                come.append(other)
    return _by_image(gone), _by_image(come)


def _by_image(rows: Iterable[dict[str, Any]]) -> Objects:
    found: Objects = {}
    for row in rows:
        found.setdefault(row["image"], []).append({"id": row["id"], **annotation_members(annotation_of(row))})
    return found


def _changes(before: list[dict[str, Any]], after: list[dict[str, Any]]) -> Iterable[ObjectChange]:
    """Pair objects by id, then by overlap, the best pairs first. Pairs that are equal are no change."""
    left, right = {one["id"]: one for one in before}, {one["id"]: one for one in after}
    pairs = [(left.pop(key), right.pop(key)) for key in left.keys() & right.keys()]
    ranked = sorted(
        ((_likeness(one, other), one["id"], other["id"]) for one in left.values() for other in right.values()),
        key=lambda scored: (-scored[0], scored[1], scored[2]),
    )
    for score, one, other in ranked:
        if score >= _LEAST_OVERLAP and one in left and other in right:
            pairs.append((left.pop(one), right.pop(other)))
    for one, other in pairs:
        if one["class_name"] != other["class_name"]:
            yield ObjectChange(RECLASSED, one, other)
        elif {**one, "id": ""} != {**other, "id": ""}:
            yield ObjectChange(MOVED, one, other)
    yield from (ObjectChange(REMOVED, one, None) for one in left.values())
    yield from (ObjectChange(ADDED, None, one) for one in right.values())


def _likeness(one: Mapping[str, Any], other: Mapping[str, Any]) -> float:
    """Return the overlap of two objects of a kind, a little more if they have one class. Equal objects come first."""
    if one["type"] != other["type"]:
        return 0.0
    bonus = 0.1 if one["class_name"] == other["class_name"] else 0.0
    if one["type"] == "label":
        return _LEAST_OVERLAP + bonus
    (left, top, right, low), (left2, top2, right2, low2) = _bounds(one), _bounds(other)
    shared = max(0.0, min(right, right2) - max(left, left2)) * max(0.0, min(low, low2) - max(top, top2))
    union = (right - left) * (low - top) + (right2 - left2) * (low2 - top2) - shared
    overlap = shared / union if union else float((left, top) == (left2, top2))
    return overlap + bonus if overlap >= _LEAST_OVERLAP else 0.0


def _bounds(found: Mapping[str, Any]) -> tuple[float, float, float, float]:
    """Return the left, top, right and lower border of an object."""
    match found["type"]:
        case "box":
            x, y, width, height = found["bbox"]
            return x, y, x + width, y + height
        case "mask":
            height, width = found["segmentation"]["size"]
            return _mask_bounds(height, width, found["segmentation"]["counts"])
        case "polygon" | "polyline":
            points = [value for ring in found["segmentation"] for value in ring]
            xs, ys = points[::2], points[1::2]
        case _:
            xs, ys = found["keypoints"][::3], found["keypoints"][1::3]
    return min(xs), min(ys), max(xs), max(ys)


def _mask_bounds(height: int, width: int, counts: list[int]) -> tuple[float, float, float, float]:
    """Return the bounds of runs down the columns, without decoding the pixels."""
    left, top, right, low, at = width, height, 0, 0, 0
    for number, length in enumerate(counts):
        if number % 2 and length:
            first, last = divmod(at, height), divmod(at + length - 1, height)
            left, right = min(left, first[0]), max(right, last[0] + 1)
            spans = first[0] != last[0]
            top, low = (0, height) if spans else (min(top, first[1]), max(low, last[1] + 1))
        at += length
    return (left, top, right, low) if right else (0, 0, 0, 0)
