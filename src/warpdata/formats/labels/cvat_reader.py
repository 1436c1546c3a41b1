"""CVAT for images 1.1, read. Tracks of videos, ellipses and cuboids are listed as lost."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from typing import Any
from xml.etree.ElementTree import Element

from warpdata.errors import BadInputError, CorruptError
from warpdata.formats.labels.annotations import Annotation, Box, Keypoints, Label, Mask, Polygon, Polyline
from warpdata.formats.labels.conservation import Conservation
from warpdata.formats.labels.files import LabelFiles, foreign_path
from warpdata.formats.labels.geometry import is_coordinate
from warpdata.formats.labels.model import LabeledImage, LabelSet
from warpdata.formats.labels.options import LabelOptions
from warpdata.formats.labels.voc import decode_corner_texts
from warpdata.formats.labels.xml_input import iterate_xml
from warpdata.formats.labels.xml_output import attribute_value
from warpdata.limits import MAX_ANNOTATION_POINTS, MAX_IMAGE_PIXELS, MAX_LABEL_XML_BYTES, MAX_MASK_RUNS

__all__ = ["cvat_annotation", "cvat_images", "read_cvat"]

_SHAPES = frozenset({"box", "polygon", "polyline", "points", "mask", "tag", "skeleton"})
_IMAGE_MEMBERS = frozenset({"id", "name", "width", "height", "subset", "task_id", "job_id"})


def read_cvat(files: LabelFiles, account: Conservation, options: LabelOptions) -> LabelSet:
    """Return the images of all documents."""
    names = [name for name in files.names() if name.endswith(".xml")]
    if not names:
        raise BadInputError(f"{files.name} has no XML file", hint="Export the task as CVAT for images 1.1.")

    def images() -> Iterator[LabeledImage]:
        for name in names:
            where = f"{files.name}/{name}" if name not in files.name else files.name
            yield from cvat_images(files.read(name, MAX_LABEL_XML_BYTES), where, account, options)

    return LabelSet((), images(), name=files.name)


def cvat_images(data: bytes, where: str, account: Conservation, options: LabelOptions) -> Iterator[LabeledImage]:
    """Yield the images of a document, element by element."""
    found = 0
    for one, around in iterate_xml(data, where, frozenset({"image", "track"})):
        if around[:1] != ("annotations",):
            raise CorruptError(f"{where} is not a document of CVAT: it begins with <{(*around, one.tag)[0]}>")
        if one.tag == "track":
            account.drop("objects", "tracks belong to videos", f"{where}: track {one.get('id')}")
            continue
        found += 1
        yield _image(one, f"{where}: image[{found - 1}]", account, options)
    if not found:
        for root, around in iterate_xml(data, where, frozenset({"annotations"})):
            if not around and root.tag == "annotations":
                return
        raise CorruptError(f"{where} is not a document of CVAT: it has no <annotations>")


def _image(one: Element, where: str, account: Conservation, options: LabelOptions) -> LabeledImage:
    path = foreign_path(one.get("name"), where)
    width, height = (_whole(one, side, where) if one.get(side) else None for side in ("width", "height"))
    image = LabeledImage(path, [], width, height, one.get("subset"))
    if image.size is None and (known := options.images.get(path)) is not None:
        image.width, image.height = known
    account.take("images")
    for name in set(one.keys()) - _IMAGE_MEMBERS:
        account.drop(f"image {name[:64]}", "images have no members beside size, split and tags", where)
    for number, shape in enumerate(one):
        place = f"{where}: {shape.tag}[{number}]"
        account.take("objects")
        if shape.tag not in _SHAPES:
            account.lose("objects", f"there is no annotation for <{str(shape.tag)[:40]}>", place)
            continue
        image.annotations.append(cvat_annotation(shape, image.size, place, account))
    account.take_details(image)
    return image


def cvat_annotation(shape: Element, size: tuple[int, int] | None, where: str, account: Conservation) -> Annotation:
    """Return the annotation of a shape."""
    name = shape.get("label") or ""
    attributes = _attributes(shape)
    try:
        if shape.tag == "tag":
            return Label(name, attributes=attributes)
        if shape.tag == "box":
            rotation = shape.get("rotation")
            box = decode_corner_texts([_decimal(shape, side, where) for side in ("xtl", "ytl", "xbr", "ybr")], name)
            angle = None if rotation is None else float(_decimal(shape, "rotation", where))
            return Box(name, box.x, box.y, box.width, box.height, angle, attributes=attributes)
        if shape.tag == "mask":
            return Mask(name, _mask(shape, size, where), attributes=attributes)
        if shape.tag == "skeleton":
            return Keypoints(name, _skeleton(shape, where, account), attributes=attributes)
        points = _points(shape, where)
        if shape.tag == "points":
            return Keypoints(name, [(*point, 2) for point in points], attributes=attributes)
        kind: type[Polygon | Polyline] = Polygon if shape.tag == "polygon" else Polyline
        return kind(name, points, attributes=attributes)
    except BadInputError as error:
        raise CorruptError(f"{where}: {error.message}") from error


def _attributes(shape: Element) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for each in shape.findall("attribute"):
        found[str(attribute_value((each.get("name") or "").strip()))] = attribute_value((each.text or "").strip())
    if shape.get("source", "manual") not in ("manual", "file"):
        found["source"] = shape.get("source")
    if shape.get("occluded") == "1":
        found["occluded"] = True
    for key in ("z_order", "group_id"):
        text = shape.get(key, "0").strip()
        if text != "0":
            found[key] = attribute_value(text)
    return found


def _points(shape: Element, where: str) -> list[tuple[float, float]]:
    text = shape.get("points", "")
    if text.count(";") >= MAX_ANNOTATION_POINTS:
        raise CorruptError(f"{where} has more than {MAX_ANNOTATION_POINTS:,} points")
    try:
        pairs = [pair.split(",") for pair in text.split(";")]
        return [(float(x), float(y)) for x, y in pairs]
    except ValueError as error:
        raise CorruptError(f"{where}: points are 'x,y;x,y', not {text[:60]!r}") from error


def _skeleton(shape: Element, where: str, account: Conservation) -> list[tuple[float, float, int]]:
    points: list[tuple[float, float, int]] = []
    names: list[str] = []
    for each in shape.findall("points"):
        drawn = _points(each, where)
        if len(drawn) != 1:
            raise CorruptError(f"{where}: an element of a skeleton is one point")
        visible = 0 if each.get("outside") == "1" else 1 if each.get("occluded") == "1" else 2
        points.append((*drawn[0], visible))
        names.append(each.get("label", ""))
    if names != [str(number) for number in range(len(names))]:
        account.drop("names of keypoints", "keypoints are numbered", where, len(names))
    return points


def _mask(shape: Element, size: tuple[int, int] | None, where: str) -> Any:
    import numpy as np

    if size is None:
        raise CorruptError(f"{where}: the image of a mask has no width and height")
    left, top, width, height = (_whole(shape, side, where) for side in ("left", "top", "width", "height"))
    text = shape.get("rle", "")
    if text.count(",") > MAX_MASK_RUNS or size[0] * size[1] > MAX_IMAGE_PIXELS:
        raise CorruptError(f"{where}: the mask is too large")
    if left + width > size[0] or top + height > size[1]:
        raise CorruptError(f"{where}: the mask leaves the image of {size[0]} × {size[1]} pixels")
    try:
        runs = [int(run) for run in text.split(",")]
    except ValueError as error:
        raise CorruptError(f"{where}: the rle of a mask is a list of numbers, not {text[:60]!r}") from error
    if min(runs) < 0 or sum(runs) != width * height:
        raise CorruptError(f"{where}: the runs of a mask must add up to {width * height}")
    flat = np.repeat(np.arange(len(runs)) % 2 == 1, runs)
    full = np.zeros((size[1], size[0]), bool)
    full[top : top + height, left : left + width] = flat.reshape(height, width)
    return full


def _whole(one: Element, name: str, where: str) -> int:
    text = one.get(name, "").strip()
    if not text.isdecimal() or len(text) > 9:
        raise CorruptError(f"{where}: {name} is a number of pixels, not {text[:40]!r}")
    return int(text)


def _decimal(one: Element, name: str, where: str) -> Decimal:
    text = one.get(name, "").strip()
    try:
        value = Decimal(text)
    except ArithmeticError as error:
        raise CorruptError(f"{where}: {name} is a number, not {text[:40]!r}") from error
    if not is_coordinate(value):
        raise CorruptError(f"{where}: no coordinate can be {text[:40]}")
    return value
