"""Annotations of images: boxes, polygons, lines, masks, keypoints and labels, and the rows that store them.

Geometry is in pixels, as 64-bit floating point, from the top left corner, and is stored exactly. Implements
"Annotations" of docs/specs/collections.md.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

from warpdata.errors import BadInputError, CorruptError
from warpdata.formats.labels.masks import check_runs, decode_counts, decode_mask, encode_mask
from warpdata.limits import MAX_ANNOTATION_POINTS, MAX_CLASS_NAME_LENGTH
from warpdata.primitives.reprs import short_repr
from warpdata.primitives.strict_json import decode_json
from warpdata.repository.manifest import Json, canonical_json

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = [
    "KINDS",
    "Annotation",
    "Box",
    "Keypoints",
    "Label",
    "Mask",
    "Polygon",
    "Polyline",
    "annotation_of",
    "box_of",
    "geometry_columns",
]

Attributes: TypeAlias = Mapping[str, Json]


@dataclass(frozen=True)
class _Annotated:
    """What all annotations have. `class_name` is checked, and the attributes are JSON."""

    kind: ClassVar[str]

    class_name: str

    def __repr__(self) -> str:
        named = {one.name: getattr(self, one.name) for one in fields(self) if one.name not in ("class_name", "rle")}
        shown = {name: None if value == {} else value for name, value in named.items()}
        return short_repr(type(self).__name__, self.class_name, **shown)

    def _check(self, attributes: Attributes) -> None:
        if not isinstance(self.class_name, str) or not 0 < len(self.class_name) <= MAX_CLASS_NAME_LENGTH:
            raise BadInputError(
                f"the class of a {self.kind} must be text of 1 to {MAX_CLASS_NAME_LENGTH} characters, "
                f"not {self.class_name!r}"
            )
        if not isinstance(attributes, Mapping):
            raise BadInputError(f"attributes of a {self.kind} are a mapping, not {type(attributes).__name__}")
        if attributes:
            canonical_json(dict(attributes), fractions=True)

    def _set(self, **values: Any) -> None:
        for name, value in values.items():
            object.__setattr__(self, name, value)


@dataclass(frozen=True, repr=False)
class Box(_Annotated):
    """A rectangle: its top left corner, width and height in pixels.

    `rotation` turns it about its center, in degrees, clockwise. The corner is that before the rectangle is turned.
    """

    kind: ClassVar[str] = "box"

    x: float
    y: float
    width: float
    height: float
    rotation: float | None = None
    attributes: Attributes = field(default_factory=dict, kw_only=True)

    def __post_init__(self) -> None:
        self._check(self.attributes)
        x, y, width, height = _numbers("a box", (self.x, self.y, self.width, self.height))
        if width < 0 or height < 0:
            raise BadInputError(f"a box cannot have the size {width} × {height}")
        rotation = None if self.rotation is None else _numbers("the rotation of a box", (self.rotation,))[0]
        self._set(x=x, y=y, width=width, height=height, rotation=rotation)


@dataclass(frozen=True, repr=False)
class Polygon(_Annotated):
    """An outline of points (x, y), or several: parts, and holes inside of them."""

    kind: ClassVar[str] = "polygon"

    points: Sequence[Any]
    attributes: Attributes = field(default_factory=dict, kw_only=True)

    def __post_init__(self) -> None:
        self._check(self.attributes)
        self._set(points=_lines("a polygon", "outline", self.points, 3))


@dataclass(frozen=True, repr=False)
class Polyline(_Annotated):
    """A line through points (x, y), open at its ends, or several."""

    kind: ClassVar[str] = "polyline"

    points: Sequence[Any]
    attributes: Attributes = field(default_factory=dict, kw_only=True)

    def __post_init__(self) -> None:
        self._check(self.attributes)
        self._set(points=_lines("a polyline", "line", self.points, 2))


@dataclass(frozen=True, repr=False)
class Mask(_Annotated):
    """The pixels of an object: a COCO run-length encoding, or a two-dimensional array.

    `rle` is a mapping of `size`, which is height and width, and `counts`, as a list or as compressed text.
    """

    kind: ClassVar[str] = "mask"

    rle: Any
    attributes: Attributes = field(default_factory=dict, kw_only=True)

    def __post_init__(self) -> None:
        self._check(self.attributes)
        if isinstance(self.rle, Mapping):
            size, counts = self.rle.get("size"), self.rle.get("counts")
            if not isinstance(size, Sequence) or not isinstance(counts, str | bytes | Sequence):
                raise BadInputError("a run-length encoded mask has the members size and counts")
            size, counts = check_runs(size, decode_counts(counts) if isinstance(counts, str | bytes) else counts)
        else:
            size, counts = encode_mask(self.rle)
        self._set(rle=MappingProxyType({"size": size, "counts": counts}))

    @property
    def size(self) -> tuple[int, int]:
        """Height and width in pixels."""
        size: tuple[int, int] = self.rle["size"]
        return size

    @property
    def counts(self) -> tuple[int, ...]:
        """Lengths of the runs of zeros and ones in turn, down the columns."""
        counts: tuple[int, ...] = self.rle["counts"]
        return counts

    def to_array(self) -> NDArray[np.bool_]:
        """Return the mask as an array of height and width."""
        return decode_mask(self.size, self.counts)


@dataclass(frozen=True, repr=False)
class Keypoints(_Annotated):
    """Points (x, y, visibility): 0 is not labelled, 1 hidden, 2 visible. Points of two numbers are visible."""

    kind: ClassVar[str] = "keypoints"

    points: Sequence[Any]
    attributes: Attributes = field(default_factory=dict, kw_only=True)

    def __post_init__(self) -> None:
        self._check(self.attributes)
        points = _listed("the points of keypoints", self.points)
        if not 0 < len(points) <= MAX_ANNOTATION_POINTS:
            raise BadInputError(
                f"keypoints are a list of 1 to {MAX_ANNOTATION_POINTS:,} points, not of {len(points):,}"
            )
        self._set(points=tuple(_keypoint(point) for point in points))


@dataclass(frozen=True, repr=False)
class Label(_Annotated):
    """A class of the whole image."""

    kind: ClassVar[str] = "label"

    attributes: Attributes = field(default_factory=dict, kw_only=True)

    def __post_init__(self) -> None:
        self._check(self.attributes)


Annotation: TypeAlias = Box | Polygon | Polyline | Mask | Keypoints | Label
_FLOATS = {float}
KINDS: tuple[str, ...] = ("box", "polygon", "polyline", "mask", "keypoints", "label")


def geometry_columns(annotation: Annotation) -> dict[str, Any]:
    """Return the columns of a row that hold kind, class, geometry and attributes. Columns of other kinds are None."""
    row: dict[str, Any] = dict.fromkeys(("box", "rotation", "polygon", "mask_size", "mask_counts", "keypoints"))
    match annotation:
        case Box():
            row["box"] = [annotation.x, annotation.y, annotation.width, annotation.height]
            row["rotation"] = annotation.rotation
        case Polygon() | Polyline():
            row["polygon"] = [[value for point in ring for value in point] for ring in annotation.points]
        case Mask():
            row["mask_size"], row["mask_counts"] = list(annotation.size), list(annotation.counts)
        case Keypoints():
            row["keypoints"] = [value for point in annotation.points for value in point]
    attributes = canonical_json(dict(annotation.attributes), fractions=True).decode() if annotation.attributes else None
    return {"kind": annotation.kind, "class_name": annotation.class_name, **row, "attributes": attributes}


def annotation_of(row: Mapping[str, Any]) -> Annotation:
    """Return the annotation of a stored row. `CorruptError` for a row that none could have made."""
    kind, name = row["kind"], row["class_name"]
    try:
        attributes = decode_json(row["attributes"].encode(), "attributes") if row["attributes"] else {}
        if kind == "box":
            return box_of(name, row["box"], row["rotation"], attributes)
        if kind == "polygon":
            return Polygon(name, [_grouped(ring, 2) for ring in row["polygon"]], attributes=attributes)
        if kind == "polyline":
            return Polyline(name, [_grouped(line, 2) for line in row["polygon"]], attributes=attributes)
        if kind == "mask":
            return Mask(name, {"size": row["mask_size"], "counts": row["mask_counts"]}, attributes=attributes)
        if kind == "keypoints":
            return Keypoints(name, _grouped(row["keypoints"], 3), attributes=attributes)
        if kind == "label":
            return Label(name, attributes=attributes)
    except (BadInputError, TypeError) as error:
        raise CorruptError(f"annotation {row.get('id')!r} of {row.get('image')!r} cannot be read: {error}") from error
    raise CorruptError(f"annotation {row.get('id')!r} of {row.get('image')!r} has the unknown kind {kind!r}")


def box_of(class_name: str, numbers: Sequence[float], rotation: float | None, attributes: Attributes) -> Box:
    """Return a box from its four numbers."""
    if len(numbers) != 4:
        raise BadInputError(f"a box has the numbers x, y, width and height, not {numbers!r}")
    x, y, width, height = numbers
    return Box(class_name, x, y, width, height, rotation, attributes=attributes)


def _grouped(values: Sequence[float], size: int) -> list[tuple[float, ...]]:
    return [tuple(values[start : start + size]) for start in range(0, len(values), size)]


def _numbers(what: str, values: Iterable[Any]) -> tuple[float, ...]:
    listed = tuple(values)
    if set(map(type, listed)) == _FLOATS and all(map(math.isfinite, listed)):
        return listed  # as almost always
    if any(isinstance(value, bool | str | bytes) for value in listed):
        raise BadInputError(f"{what} has numbers, not {listed!r}")
    try:
        numbers = tuple(float(value) for value in listed)
    except (TypeError, ValueError) as error:
        raise BadInputError(f"{what} has numbers, not {listed!r}") from error
    if not all(map(math.isfinite, numbers)):
        raise BadInputError(f"{what} has finite numbers, not {listed!r}")
    return numbers


def _listed(what: str, values: Any) -> Sequence[Any]:
    """Return a list, a tuple or an array as a sequence."""
    listed = values.tolist() if hasattr(values, "tolist") else values
    if not isinstance(listed, Sequence) or isinstance(listed, str | bytes):
        raise BadInputError(f"{what} are a list, not {type(values).__name__}")
    return listed


def _lines(what: str, part: str, points: Any, least: int) -> tuple[tuple[tuple[float, ...], ...], ...]:
    """Return the outlines or lines of an annotation that has points: one, or a list of several."""
    listed = _listed(f"the points of {what}", points)
    lines = [listed] if listed and _is_point(listed[0]) else listed
    parsed = tuple(tuple(_point(point) for point in _listed(f"the {part} of {what}", line)) for line in lines)
    count = sum(map(len, parsed))
    if not parsed or any(len(line) < least for line in parsed) or count > MAX_ANNOTATION_POINTS:
        raise BadInputError(
            f"{what} has {part}s of at least {least} points, and at most {MAX_ANNOTATION_POINTS:,} points; "
            f"this one has {[len(line) for line in parsed][:10]}"
        )
    return parsed


def _is_point(value: Any) -> bool:
    return isinstance(value, Sequence) and len(value) == 2 and not isinstance(value[0], Sequence)


def _point(value: Any) -> tuple[float, ...]:
    if not isinstance(value, Sequence) or len(value) != 2:
        raise BadInputError(f"a point is (x, y), not {value!r}")
    return _numbers("a point", value)


def _keypoint(value: Any) -> tuple[float, ...]:
    if not isinstance(value, Sequence) or len(value) not in (2, 3):
        raise BadInputError(f"a keypoint is (x, y, visibility), not {value!r}")
    numbers = _numbers("a keypoint", value)
    if len(numbers) == 3 and numbers[2] not in (0, 1, 2):
        raise BadInputError(f"the visibility of a keypoint is 0, 1 or 2, not {value[2]!r}")
    return numbers if len(numbers) == 3 else (*numbers, 2.0)
