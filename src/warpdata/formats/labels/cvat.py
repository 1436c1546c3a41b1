"""CVAT for images 1.1, written: boxes with rotation, polygons, polylines, points, skeletons, masks and tags.

Keypoints that are all visible are `points`; others are a `skeleton`, whose points may be occluded or outside. Each
outline of a polygon is a shape of its own, and `group_id` joins them, as CVAT does.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from warpdata.formats.labels.annotations import Annotation, Box, Keypoints, Label, Mask, Polygon, Polyline
from warpdata.formats.labels.conservation import Conservation
from warpdata.formats.labels.files import ImagePlace, LabelFile, OutputFile
from warpdata.formats.labels.geometry import mask_bounds
from warpdata.formats.labels.model import LabelClass, LabeledImage, LabelSet
from warpdata.formats.labels.parts import hold_parts, single_lines
from warpdata.formats.labels.voc import corner_texts
from warpdata.formats.labels.xml_output import attribute_text, element, quote, writable_name

__all__ = ["cvat_image", "write_cvat"]

_SHAPES = {"box": "box", "polygon": "polygon", "polyline": "polyline", "mask": "mask", "label": "tag"}


def write_cvat(labels: LabelSet, account: Conservation) -> Iterator[OutputFile]:
    """Yield `annotations.xml` with all images, and their places below `images/`."""
    paths: list[str] = []
    yield LabelFile("annotations.xml", _pieces(labels, account, paths))
    yield from (ImagePlace(f"images/{path}", path) for path in paths)


def _pieces(labels: LabelSet, account: Conservation, paths: list[str]) -> Iterator[bytes]:
    names = (f"<name>{quote(writable_name(one))}</name><attributes></attributes>" for one in labels.class_names)
    listed = "".join(f"<label>{name}</label>" for name in names)
    task = f"<name>{quote(writable_name(labels.name))}</name><mode>annotation</mode><labels>{listed}</labels>"
    yield b'<?xml version="1.0" encoding="utf-8"?>\n<annotations>\n<version>1.1</version>\n'
    yield f"<meta><task>{task}</task></meta>\n".encode()
    classes = {one.name: one for one in labels.classes}
    for number, image in enumerate(labels.images):
        paths.append(image.path)
        yield cvat_image(image, number, classes, account).encode()
    yield b"</annotations>\n"


def cvat_image(image: LabeledImage, number: int, classes: Mapping[str, LabelClass], account: Conservation) -> str:
    """Return the element of one image."""
    held = LabeledImage(image.path, [], image.width, image.height, image.split)
    shapes: list[str] = []
    groups = 0
    for one in image.annotations:
        parts = [*single_lines(one)] if _fits(one, image) else []
        if len(parts) > 1 and "group_id" not in one.attributes:
            groups += 1
            parts = [replace(part, attributes={**part.attributes, "group_id": groups}) for part in parts]
        written = [_shape(part, classes) for part in parts]
        kept = [part for _, part in written]
        hold_parts(account, one, kept, _why(one), image.path)
        held.annotations += kept
        shapes += [f"  {text}\n" for text, _ in written]
    account.take_image(image)
    account.lose("tags", "CVAT has no tags of images beside classes", image.path, len(image.tags))
    if image.split is not None:
        held.split = writable_name(image.split)
        if held.split != image.split:
            account.change("splits", "XML forbids some characters", image.path)
    account.give_image(held)
    size = {"width": image.width, "height": image.height} if image.size else {}
    given = {"id": number, "name": image.path, "subset": held.split, **size}
    return element("image", given, "\n", *shapes) + "\n"


def _fits(one: Annotation, image: LabeledImage) -> bool:
    return not isinstance(one, Mask) or image.size == (one.size[1], one.size[0])


def _why(one: Annotation) -> str:
    if isinstance(one, Mask):
        return "the size of the mask is not that of the image"
    return "a shape of CVAT has one outline without holes, and names that XML allows"


def _shape(one: Annotation, classes: Mapping[str, LabelClass]) -> tuple[str, Annotation]:
    """Return the element of an annotation that has one outline, and the annotation that it reads back as."""
    name = writable_name(one.class_name)
    kept: Annotation = one if name == one.class_name else replace(one, class_name=name)
    common, attributes = _members(one)
    given = {"label": name, **common}
    nested = [
        element("attribute", {"name": attribute_text(key)}, quote(attribute_text(value)))
        for key, value in attributes.items()
    ]
    match one:
        case Box():
            texts, drawn = corner_texts(one)
            sides = (drawn.x, drawn.y, drawn.width, drawn.height)
            kept = Box(name, *sides, one.rotation, attributes=one.attributes)
            given |= dict(zip(("xtl", "ytl", "xbr", "ybr"), texts, strict=True)) | {"rotation": one.rotation}
        case Polygon() | Polyline():
            given["points"] = _points_text(one.points[0])
        case Mask():
            given |= _mask_members(one)
        case Keypoints():
            if any(visible != 2 for _, _, visible in one.points):
                return element("skeleton", given, *_skeleton_points(one, classes.get(one.class_name)), *nested), kept
            return element("points", given | {"points": _points_text(one.points)}, *nested), kept
    return element(_SHAPES[one.kind], given, *nested), kept


def _members(one: Annotation) -> tuple[dict[str, object], dict[str, Any]]:
    """Return the attributes that are members of a shape, and the others."""
    others = dict(one.attributes)
    source = others.get("source")
    is_source = isinstance(source, str) and source != "manual" and writable_name(source) == source
    common: dict[str, object] = {"source": others.pop("source") if is_source else "manual"}
    if not isinstance(one, Label):
        common["occluded"] = int(others.get("occluded") is True)
        if common["occluded"]:
            del others["occluded"]
    for key in ("group_id",) if isinstance(one, Label) else ("z_order", "group_id"):
        if type(others.get(key)) is int and others[key] != 0:
            common[key] = others.pop(key)
    return common, others


def _points_text(points: Sequence[Sequence[float]]) -> str:
    return ";".join(f"{point[0]!r},{point[1]!r}" for point in points)


def _skeleton_points(one: Keypoints, known: LabelClass | None) -> Iterator[str]:
    names = known.keypoints if known is not None and len(known.keypoints) == len(one.points) else ()
    for number, (x, y, visible) in enumerate(one.points):
        label = writable_name(names[number]) if names else str(number)
        flags = {"outside": int(visible == 0), "occluded": int(visible == 1)}
        yield element("points", {"label": label, **flags, "points": f"{x!r},{y!r}"})


def _mask_members(mask: Mask) -> dict[str, object]:
    """Return the place of a mask, and its runs row by row within it."""
    import numpy as np

    bounds = mask_bounds(mask) or (0.0, 0.0, 1.0, 1.0)
    left, top, width, height = (int(value) for value in bounds)
    flat = mask.to_array()[top : top + height, left : left + width].ravel()
    changes = np.flatnonzero(np.diff(flat)) + 1
    runs = np.diff(np.concatenate([[0] if flat[0] else [], [0], changes, [flat.size]]).astype(np.int64)).tolist()
    return {"rle": ", ".join(map(str, runs)), "left": left, "top": top, "width": width, "height": height}
