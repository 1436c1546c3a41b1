"""Geometry of annotations: bounds, areas, corners of turned boxes, and numbers that read back exactly.

Formats store shares of the image size as decimals. `shorten` finds decimals from which exact arithmetic returns the
pixels that went in, so that a conversion to percent and back loses nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from decimal import Context, Decimal
from typing import Any, TypeVar

from warpdata.formats.labels.annotations import Annotation, Box, Keypoints, Label, Mask, Polygon, Polyline

__all__ = [
    "EXACT",
    "Bounds",
    "area_of",
    "bounds_of",
    "box_iou",
    "corners_of",
    "decimals",
    "has_hole",
    "is_coordinate",
    "is_same_drawing",
    "mask_bounds",
    "shorten",
]

_T = TypeVar("_T")

EXACT = Context(prec=120)
"""Arithmetic with more digits than any coordinate needs."""
_EXPONENTS = range(-400, 301)
_DIGITS = (9, 17, 24, 40)
_DRAWING_TOLERANCE = 1e-6

Bounds = tuple[float, float, float, float]
"""The x and y of the top left corner, width and height."""


def is_coordinate(value: Decimal) -> bool:
    """Return whether a number may be a coordinate. Exact arithmetic with others would take long."""
    return value.is_finite() and (not value or value.adjusted() in _EXPONENTS)


def decimals(values: Iterable[float]) -> list[Decimal]:
    """Return the exact values of floats."""
    return [Decimal(value) for value in values]


def shorten(
    values: Sequence[Decimal], decode: Callable[[Sequence[Decimal]], _T], wanted: _T
) -> tuple[list[Decimal], _T]:
    """Return decimals with as few digits as give `wanted` back, and what they give back.

    The second value differs from `wanted` only where 40 digits are not enough.
    """
    short: list[Decimal] = []
    found = wanted
    for digits in _DIGITS:
        context = Context(prec=digits)
        short = [context.plus(value).normalize(context) for value in values]
        found = decode(short)
        if found == wanted:
            break
    return short, found


def bounds_of(annotation: Annotation) -> Bounds | None:
    """Return the smallest upright rectangle around an annotation; None for labels and empty masks."""
    match annotation:
        case Box():
            if not annotation.rotation:
                return annotation.x, annotation.y, annotation.width, annotation.height
            return _bounds(corners_of(annotation))
        case Polygon() | Polyline():
            return _bounds([point for line in annotation.points for point in line])
        case Keypoints():
            return _bounds([(x, y) for x, y, visibility in annotation.points if visibility])
        case Mask():
            return mask_bounds(annotation)
        case Label():
            return None


def mask_bounds(mask: Mask) -> Bounds | None:
    """Return the bounds of the pixels of a mask."""
    height = mask.size[0]
    left = top = math.inf
    right = bottom = -1.0
    position = 0
    for index, count in enumerate(mask.counts):
        if index % 2 and count:
            first, last = position, position + count - 1
            left, right = min(left, first // height), max(right, last // height)
            is_split = first // height != last // height
            top = 0 if is_split else min(top, first % height)
            bottom = height - 1 if is_split else max(bottom, last % height)
        position += count
    return None if right < 0 else (float(left), float(top), right - left + 1.0, bottom - top + 1.0)


def area_of(annotation: Annotation) -> float:
    """Return the area in square pixels."""
    match annotation:
        case Box():
            return annotation.width * annotation.height
        case Polygon():
            return math.fsum(_ring_area(ring) for ring in annotation.points)
        case Mask():
            return float(sum(annotation.counts[1::2]))
        case _:
            bounds = bounds_of(annotation)
            return 0.0 if bounds is None else bounds[2] * bounds[3]


def corners_of(box: Box) -> list[tuple[float, float]]:
    """Return the corners of a box after it is turned: clockwise, from the top left corner."""
    half_width, half_height = box.width / 2, box.height / 2
    x, y = box.x + half_width, box.y + half_height
    angle = math.radians(box.rotation or 0.0)
    cos, sin = math.cos(angle), math.sin(angle)
    offsets = ((-half_width, -half_height), (half_width, -half_height), (half_width, half_height))
    corners = [(x + dx * cos - dy * sin, y + dx * sin + dy * cos) for dx, dy in (*offsets, (-half_width, half_height))]
    return corners if box.rotation else [(box.x, box.y), *_rest(box)]


def has_hole(polygon: Polygon) -> bool:
    """Return whether an outline begins inside of another: formats that join all outlines would fill it."""
    rings = polygon.points
    return len(rings) > 1 and any(
        _is_inside(inner[0], outer) for inner in rings for outer in rings if inner is not outer
    )


def _rest(box: Box) -> list[tuple[float, float]]:
    right, bottom = box.x + box.width, box.y + box.height
    return [(right, box.y), (right, bottom), (box.x, bottom)]


def _bounds(points: Sequence[Any]) -> Bounds | None:
    if not points:
        return None
    xs, ys = [point[0] for point in points], [point[1] for point in points]
    left, top = min(xs), min(ys)
    return left, top, max(xs) - left, max(ys) - top


def _ring_area(ring: Sequence[Sequence[float]]) -> float:
    pairs = zip(ring, [*ring[1:], ring[0]], strict=True)
    return abs(math.fsum(a[0] * b[1] - b[0] * a[1] for a, b in pairs)) / 2


def _is_inside(point: Sequence[float], ring: Sequence[Sequence[float]]) -> bool:
    x, y = point
    inside = False
    for (x1, y1), (x2, y2) in zip(ring, [*ring[1:], ring[0]], strict=True):
        if (y1 > y) != (y2 > y) and x < (x2 - x1) * (y - y1) / (y2 - y1) + x1:
            inside = not inside
    return inside


def box_iou(one: Bounds, other: Bounds) -> float:
    """Return the area that two upright boxes share, as a part of the area that they cover together."""
    width = min(one[0] + one[2], other[0] + other[2]) - max(one[0], other[0])
    height = min(one[1] + one[3], other[1] + other[3]) - max(one[1], other[1])
    if width <= 0 or height <= 0:
        return float(one == other)
    shared = width * height
    return shared / (one[2] * one[3] + other[2] * other[3] - shared)


def is_same_drawing(one: Annotation, other: Annotation) -> bool:
    """Return whether two annotations are equal but for what a tool's own arithmetic changes: a millionth of a pixel."""
    if one == other:
        return True
    if (one.kind, one.class_name, dict(one.attributes)) != (other.kind, other.class_name, dict(other.attributes)):
        return False
    first, second = _coordinates(one), _coordinates(other)
    return len(first) == len(second) and all(
        abs(a - b) <= _DRAWING_TOLERANCE * max(1.0, abs(a)) for a, b in zip(first, second, strict=True)
    )


def _coordinates(one: Annotation) -> list[float]:
    match one:
        case Box():
            return [one.x, one.y, one.width, one.height, one.rotation or 0.0]
        case Polygon() | Polyline():
            sizes = [float(len(line)) for line in one.points]
            return sizes + [value for line in one.points for point in line for value in point]
        case Keypoints():
            return [value for point in one.points for value in point]
        case Mask():
            return [*map(float, one.size), *map(float, one.counts)]
        case Label():
            return []
