"""Lines of YOLO text files: shares of the image size become pixels by exact arithmetic."""

from __future__ import annotations

import math
from collections.abc import Sequence
from decimal import Decimal, InvalidOperation

from warpdata.errors import BadInputError
from warpdata.formats.labels.annotations import Annotation, Box, Keypoints, Polygon
from warpdata.formats.labels.geometry import EXACT, bounds_of, is_coordinate

__all__ = ["TASKS", "decode_box", "decode_corners", "decode_keypoints", "decode_line", "decode_polygon"]

TASKS = ("detect", "segment", "pose", "obb", "classify")
_RESIDUE = Decimal("1e-14")
_SKEW = 1e-3
"""Four corners are a rectangle if they differ from one by at most this share of its sides."""

Size = tuple[int, int]


def decode_box(values: Sequence[Decimal], name: str, size: Size) -> Box:
    """Return the box of a center, a width and a height."""
    x, y, width, height = (EXACT.multiply(value, Decimal(side)) for value, side in zip(values, size * 2, strict=True))
    left = _edge(x, width, size[0])
    top = _edge(y, height, size[1])
    return Box(name, left, top, float(width), float(height))


def _edge(center: Decimal, length: Decimal, side: int) -> float:
    """Return where a box begins. What rounding leaves of an edge at the border of the image is 0."""
    edge = EXACT.subtract(center, EXACT.divide(length, Decimal(2)))
    return 0.0 if abs(edge) < _RESIDUE * side else float(edge)


def decode_polygon(values: Sequence[Decimal], name: str, size: Size) -> Polygon:
    """Return the outline through points."""
    return Polygon(name, [_points(values, size)])


def decode_corners(values: Sequence[Decimal], name: str, size: Size) -> Annotation:
    """Return the box of four corners, or the outline if they are not those of a rectangle."""
    a, b, c, d = _points(values, size)
    width, height = math.dist(a, b), math.dist(b, c)
    skew = max(abs(a[0] + c[0] - b[0] - d[0]), abs(a[1] + c[1] - b[1] - d[1]), abs(math.dist(a, c) - math.dist(b, d)))
    if skew > _SKEW * max(width, height):
        return Polygon(name, [(a, b, c, d)])
    if a[1] == b[1] and b[0] == c[0] and b[0] >= a[0] and c[1] >= b[1]:
        return Box(name, a[0], a[1], c[0] - a[0], c[1] - a[1])
    angle = math.degrees(math.atan2(b[1] - a[1], b[0] - a[0]))
    x, y = (a[0] + c[0]) / 2, (a[1] + c[1]) / 2
    return Box(name, x - width / 2, y - height / 2, width, height, angle)


def decode_keypoints(values: Sequence[Decimal], visible: Sequence[float], name: str, size: Size) -> Keypoints:
    """Return keypoints."""
    points = _points(values, size)
    return Keypoints(name, [(*point, flag) for point, flag in zip(points, visible, strict=True)])


def decode_line(numbers: Sequence[str], name: str, size: Size, task: str | None, shape: tuple[int, int]) -> Annotation:
    """Return the annotation of a line without its class. `shape` is the number of points of a pose, and of values."""
    try:
        values = [Decimal(number) for number in numbers]
    except InvalidOperation as error:
        raise BadInputError(f"{' '.join(numbers)[:80]!r} is not a list of numbers") from error
    if not all(map(is_coordinate, values)):
        raise BadInputError(f"{' '.join(numbers)[:80]!r} has a number that no coordinate can be")
    if shape[0] and len(values) == 4 + shape[0] * shape[1]:
        return _pose(values, name, size, shape)
    if len(values) in (4, 5):
        box = decode_box(values[:4], name, size)
        score = {"score": float(values[4])} if len(values) == 5 else {}
        return Box(name, box.x, box.y, box.width, box.height, attributes=score)
    if task == "obb" and len(values) in (8, 9):
        return decode_corners(values[:8], name, size)
    if len(values) >= 6 and len(values) % 2 == 0:
        return decode_polygon(values, name, size)
    raise BadInputError(
        f"a line has a class and 4 numbers of a box, or x and y of at least 3 points, not {len(values)}"
    )


def _pose(values: Sequence[Decimal], name: str, size: Size, shape: tuple[int, int]) -> Annotation:
    box = decode_box(values[:4], name, size)
    rest = values[4:]
    step = shape[1]
    flags = [float(flag) for flag in rest[2::3]] if step == 3 else [2.0] * shape[0]
    if not any(flags):
        return box
    shares = [value for start in range(0, len(rest), step) for value in rest[start : start + 2]]
    points = decode_keypoints(shares, flags, name, size)
    drawn = (box.x, box.y, box.width, box.height)
    return points if drawn == bounds_of(points) else Keypoints(name, points.points, attributes={"bbox": [*drawn]})


def _points(values: Sequence[Decimal], size: Size) -> list[tuple[float, float]]:
    width, height = Decimal(size[0]), Decimal(size[1])
    pairs = zip(values[::2], values[1::2], strict=True)
    return [(float(EXACT.multiply(x, width)), float(EXACT.multiply(y, height))) for x, y in pairs]
