"""Regions of Label Studio: percent geometry, turned about the top left corner, and brushes as run-length encoding.

Label Studio turns a rectangle about its corner, and the model about its center. Percents have as many digits as give
the pixels back exactly.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

from warpdata.errors import BadInputError
from warpdata.formats.labels.annotations import Annotation, Box, Keypoints, Label, Mask, Polygon, Polyline
from warpdata.formats.labels.brush import decode_brush, encode_brush
from warpdata.formats.labels.geometry import EXACT, decimals, is_coordinate, shorten

__all__ = ["RESULT_TYPES", "decode_result", "encode_result", "has_region"]

_HUNDRED = Decimal(100)
_FLOAT_DIGITS, _FLOAT_ERROR, _SHORT_PIXELS = 17, Decimal("1e-15"), Decimal("1e-9")
RESULT_TYPES = ("rectanglelabels", "polygonlabels", "vectorlabels", "brushlabels", "keypointlabels", "choices")
_GEOMETRY = frozenset({"x", "y", "width", "height", "rotation", "points", "closed", "format", "rle", "vertices"})

Size = tuple[int, int]


def encode_result(one: Annotation, size: Size) -> tuple[str, dict[str, Any], Annotation] | None:
    """Return type and value of a region, and the annotation that it reads back as. None for kinds it does not have."""
    name = one.class_name
    attributes = dict(one.attributes)
    value: dict[str, Any]
    match one:
        case Box():
            values, found = _encode_box(one, size)
            value = dict(zip(("x", "y", "width", "height"), values, strict=True)) | {"rotation": one.rotation or 0}
            return "rectanglelabels", value | {"rectanglelabels": [name]}, found
        case Polygon() if len(one.points) == 1:
            points, drawn = _encode_points(one.points[0], size)
            value = {"points": points, "closed": True, "polygonlabels": [name]}
            return "polygonlabels", value, Polygon(name, drawn, attributes=attributes)
        case Polyline() if len(one.points) == 1:
            points, drawn = _encode_points(one.points[0], size)
            vertices = [{"x": x, "y": y} for x, y in points]
            value = {"vertices": vertices, "closed": False, "vectorlabels": [name]}
            return "vectorlabels", value, Polyline(name, drawn, attributes=attributes)
        case Mask() if one.size == (size[1], size[0]):
            return "brushlabels", {"format": "rle", "rle": encode_brush(one), "brushlabels": [name]}, one
        case Keypoints() if len(one.points) == 1:
            points, drawn = _encode_points([one.points[0][:2]], size)
            value = {"x": points[0][0], "y": points[0][1], "width": 0.5, "keypointlabels": [name]}
            return "keypointlabels", value, Keypoints(name, [(*drawn[0], 2)], attributes=attributes)
        case Label():
            return "choices", {"choices": [name]}, one
    return None


def has_region(one: Annotation) -> bool:
    """Return whether Label Studio can show an annotation. It has one outline, one line or one point for a region."""
    return not isinstance(one, Polygon | Polyline | Keypoints) or len(one.points) == 1


def decode_result(kind: str, value: Mapping[str, Any], size: Size | None, attributes: dict[str, Any]) -> Annotation:
    """Return the annotation of a region. `BadInputError` for one that is malformed."""
    name = _class_of(kind, value)
    attributes |= {key: item for key, item in value.items() if key not in _GEOMETRY and key != kind}
    if kind == "choices":
        return Label(name, attributes=attributes)
    if size is None:
        raise BadInputError("a region has no original_width and original_height")
    if kind == "rectanglelabels":
        numbers = [_number(value.get(key)) for key in ("x", "y", "width", "height")]
        rotation = float(_number(value.get("rotation") or 0))
        return _decode_box(numbers, rotation, name, size, attributes)
    if kind == "polygonlabels":
        return Polygon(name, _decode_points(_pairs(value.get("points")), size), attributes=attributes)
    if kind == "vectorlabels":
        vertices = value.get("vertices")
        if not isinstance(vertices, list) or not all(isinstance(vertex, dict) for vertex in vertices):
            raise BadInputError("a vector has a list of vertices")
        points = _decode_points([[vertex.get("x"), vertex.get("y")] for vertex in vertices], size)
        shape: type[Polygon | Polyline] = Polygon if value.get("closed") else Polyline
        return shape(name, points, attributes=attributes)
    if kind == "brushlabels":
        if value.get("format") != "rle":
            raise BadInputError(f"a brush has the format rle, not {value.get('format')!r}")
        return Mask(name, decode_brush(value.get("rle"), size), attributes=attributes)
    attributes.pop("width", None)
    point = _decode_points([[value.get("x"), value.get("y")]], size)[0]
    return Keypoints(name, [(*point, 2)], attributes=attributes)


def _class_of(kind: str, value: Mapping[str, Any]) -> str:
    names = value.get(kind)
    if not isinstance(names, list) or len(names) != 1 or not isinstance(names[0], str) or not names[0]:
        raise BadInputError(f"a region of {kind} has one label, not {names!r}")
    return names[0]


def _encode_box(one: Box, size: Size) -> tuple[list[Decimal], Box]:
    x, y, width, height = decimals((one.x, one.y, one.width, one.height))
    dx, dy = _corner_offset(width, height, one.rotation or 0.0)
    corner = (EXACT.add(x, dx), EXACT.add(y, dy))
    exact = [_percent(value, side) for value, side in zip((*corner, width, height), size * 2, strict=True)]
    attributes = dict(one.attributes)
    wanted = Box(one.class_name, one.x, one.y, one.width, one.height, one.rotation or None, attributes=attributes)
    return shorten(exact, lambda v: _decode_box(v, one.rotation or 0.0, one.class_name, size, attributes), wanted)


def _decode_box(values: Sequence[Decimal], rotation: float, name: str, size: Size, attributes: dict[str, Any]) -> Box:
    x, y, width, height = (_pixels(value, side) for value, side in zip(values, size * 2, strict=True))
    dx, dy = _corner_offset(width, height, rotation)
    left, top = EXACT.subtract(x, dx), EXACT.subtract(y, dy)
    return Box(name, float(left), float(top), float(width), float(height), rotation or None, attributes=attributes)


def _corner_offset(width: Decimal, height: Decimal, rotation: float) -> tuple[Decimal, Decimal]:
    """Return how far the top left corner moves when a rectangle turns about its center."""
    if not rotation:
        return Decimal(0), Decimal(0)
    angle = math.radians(rotation)
    cos, sin = Decimal(math.cos(angle)), Decimal(math.sin(angle))
    half_width, half_height = EXACT.divide(width, Decimal(2)), EXACT.divide(height, Decimal(2))
    turned_x = EXACT.subtract(EXACT.multiply(half_height, sin), EXACT.multiply(half_width, cos))
    turned_y = EXACT.add(EXACT.multiply(half_width, sin), EXACT.multiply(half_height, cos))
    return EXACT.add(turned_x, half_width), EXACT.subtract(half_height, turned_y)


def _encode_points(points: Sequence[Sequence[float]], size: Size) -> tuple[list[list[Decimal]], list[Any]]:
    wanted = [tuple(point) for point in points]
    exact = [_percent(value, side) for point in points for value, side in zip(decimals(point), size, strict=True)]
    short, found = shorten(exact, lambda v: _decode_points(list(zip(v[::2], v[1::2], strict=True)), size), wanted)
    return [[x, y] for x, y in zip(short[::2], short[1::2], strict=True)], found


def _decode_points(points: Sequence[Any], size: Size) -> list[tuple[float, ...]]:
    return [
        tuple(float(_pixels(_number(value), side)) for value, side in zip(point, size, strict=True)) for point in points
    ]


def _pairs(points: Any) -> Sequence[Any]:
    if not isinstance(points, list) or not all(isinstance(point, list) and len(point) == 2 for point in points):
        raise BadInputError("points are a list of [x, y]")
    return points


def _percent(value: Decimal, side: int) -> Decimal:
    return EXACT.divide(EXACT.multiply(value, _HUNDRED), Decimal(side))


def _pixels(value: Decimal, side: int) -> Decimal:
    """Return the pixels of a percent.

    A browser stores percents as 64-bit floats of 17 digits, which may miss a short number of pixels by the last digit.
    """
    exact = EXACT.divide(EXACT.multiply(value, Decimal(side)), _HUNDRED)
    if len(value.as_tuple().digits) <= _FLOAT_DIGITS:
        short = EXACT.add(exact.quantize(_SHORT_PIXELS, context=EXACT), Decimal(0))  # no negative zero
        return short if abs(exact - short) < _FLOAT_ERROR * side else exact
    return exact


def _number(value: Any) -> Decimal:
    if isinstance(value, Decimal):
        found = value
    elif type(value) in (int, float):
        found = Decimal(value)
    else:
        raise BadInputError(f"a coordinate is a number, not {value!r}")
    if not is_coordinate(found):
        raise BadInputError(f"no coordinate can be {value!r}")
    return found
