"""Simpler forms of annotations, for formats that lack their kind: boxes around them, and single outlines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from warpdata.formats.labels.annotations import Annotation, Box, Polygon, Polyline
from warpdata.formats.labels.conservation import Conservation
from warpdata.formats.labels.geometry import bounds_of, has_hole

__all__ = ["box_around", "hold_parts", "single_lines", "stem_of"]


def box_around(one: Annotation) -> tuple[float, float, float, float] | None:
    """Return an upright box around an annotation.

    It is the box that COCO gives to keypoints and segmentations, which is the attribute `bbox`, or else the bounds.
    """
    given = one.attributes.get("bbox")
    if not isinstance(one, Box) and isinstance(given, list | tuple) and len(given) == 4:
        numbers = [float(value) for value in given if isinstance(value, int | float)]
        if len(numbers) == 4 and numbers[2] >= 0 and numbers[3] >= 0:
            return numbers[0], numbers[1], numbers[2], numbers[3]
    return bounds_of(one)


def single_lines(one: Annotation) -> Sequence[Annotation]:
    """Return an annotation with several outlines or lines as one for each; none if an outline is a hole."""
    if not isinstance(one, Polygon | Polyline) or len(one.points) == 1:
        return [one]
    if isinstance(one, Polygon) and has_hole(one):
        return []
    return [replace(one, points=[line]) for line in one.points]


def hold_parts(account: Conservation, one: Annotation, kept: Sequence[Annotation], why: str, path: str) -> None:
    """List the difference between an annotation and those that the target holds in its place."""
    if len(kept) == 1:
        account.hold(one, kept[0], why, path)
        return
    account.hold(one, None, why, path)
    for each in kept:
        account.add_object(each, why, path)


def stem_of(path: str) -> str:
    """Return a path without the suffix of its file."""
    stem, dot, suffix = path.rpartition(".")
    return stem if dot and "/" not in suffix and stem and not stem.endswith("/") else path
