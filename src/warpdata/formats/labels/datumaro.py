"""Datumaro JSON: one document for each subset, with all kinds of annotations.

A turned box has its angle in the attribute `rotation`, as CVAT writes it. Each outline of a polygon is an annotation of
its own, and a `group` joins them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import msgspec

from warpdata.errors import BadInputError, CorruptError
from warpdata.formats.labels.annotations import Annotation, Box, Keypoints, Label, Mask, Polygon, Polyline, box_of
from warpdata.formats.labels.conservation import Conservation
from warpdata.formats.labels.files import ImagePlace, LabelFile, LabelFiles, OutputFile, foreign_path
from warpdata.formats.labels.json_input import decode_foreign, list_of, object_of, pairs
from warpdata.formats.labels.masks import encode_counts
from warpdata.formats.labels.model import LabelClass, LabeledImage, LabelSet
from warpdata.formats.labels.options import safe_name
from warpdata.formats.labels.parts import hold_parts, single_lines, stem_of

__all__ = ["read_datumaro", "write_datumaro"]

_encode = msgspec.json.encode
_TYPES = {
    "box": "bbox",
    "polygon": "polygon",
    "polyline": "polyline",
    "mask": "mask",
    "keypoints": "points",
    "label": "label",
}
_MEMBERS = frozenset(
    {"id", "type", "attributes", "group", "label_id", "z_order", "bbox", "points", "rle", "visibility", "object_id"}
)


def write_datumaro(labels: LabelSet, account: Conservation) -> Iterator[OutputFile]:
    """Yield `annotations/<subset>.json` for each split, and the places of images."""
    for split in labels.splits:
        subset = safe_name(split) if split else "default"
        paths: list[str] = []
        yield LabelFile(f"annotations/{subset}.json", _pieces(labels, labels.of_split(split), split, account, paths))
        yield from (ImagePlace(f"images/{subset}/{path}", path) for path in paths)


def read_datumaro(files: LabelFiles, account: Conservation) -> LabelSet:
    """Return the images of all documents."""
    names = [name for name in files.names() if name.endswith(".json") and not name.startswith("images/")]
    if not names:
        raise BadInputError(f"{files.name} has no JSON file", hint="Datumaro keeps them in the directory annotations.")

    def images() -> Iterator[LabeledImage]:
        for name in names:
            where = f"{files.name}/{name}" if name not in files.name else files.name
            body = decode_foreign(files.read(name), where)
            if not isinstance(body, dict) or "items" not in body or "categories" not in body:
                raise CorruptError(f"{where} is not a document of Datumaro: it has no items and categories")
            split = name.rpartition("/")[2].removesuffix(".json")
            found = body.get("subset", None if split == "default" else split)
            if not isinstance(found, str | None):
                raise CorruptError(f"{where}: a split is text")
            yield from _read_items(body, where, found, account)

    return LabelSet((), images(), name=files.name)


def _pieces(
    labels: LabelSet, images: Iterable[LabeledImage], split: str | None, account: Conservation, paths: list[str]
) -> Iterator[bytes]:
    numbers = {name: number for number, name in enumerate(labels.class_names)}
    head = {
        "dm_format_version": "1.0",
        "media_type": 2,
        "infos": {},
        "subset": split,
        "categories": {
            "label": {
                "label_groups": [],
                "labels": [{"name": name, "parent": "", "attributes": []} for name in numbers],
                "attributes": [],
            },
            "points": {"items": [_points_category(one, numbers[one.name]) for one in labels.classes if one.keypoints]},
        },
    }
    yield _encode(head)[:-1] + b',"items":['
    for image in images:
        before = b",\n" if paths else b""
        paths.append(image.path)
        yield before + _encode(_item(image, numbers, account))
    yield b"]}\n"


def _points_category(one: LabelClass, number: int) -> dict[str, Any]:
    joints = [list(pair) for pair in one.skeleton]
    return {"label_id": number, "labels": list(one.keypoints), "joints": joints, "positions": []}


def _item(image: LabeledImage, numbers: Mapping[str, int], account: Conservation) -> dict[str, Any]:
    held = LabeledImage(image.path, [], image.width, image.height, image.split, image.tags)
    written: list[dict[str, Any]] = []
    groups = 0
    for one in image.annotations:
        parts = [*single_lines(one)]
        if len(parts) > 1 and "group" not in one.attributes:
            groups += 1
            parts = [replace(part, attributes={**part.attributes, "group": groups}) for part in parts]
        kept = [_readable(part) for part in parts]
        why = "a shape of Datumaro has one outline without holes, and a rotation is an attribute"
        hold_parts(account, one, kept, why, image.path)
        held.annotations += kept
        written += [{"id": 0} | _members(part, numbers) for part in kept]
    account.take_image(image)
    account.give_image(held)
    media: dict[str, Any] = {"path": image.path}
    if image.size is not None:
        media["size"] = [image.height, image.width]
    item = {"id": stem_of(image.path), "annotations": written, "image": media}
    return item | ({"attr": {"tags": list(image.tags)}} if image.tags else {})


def _readable(one: Annotation) -> Annotation:
    """Return the annotation that a reader makes of one: an attribute `rotation` of a box is its angle."""
    if not isinstance(one, Box):
        return one
    attributes = dict(one.attributes)
    given = attributes.get("rotation")
    if one.rotation is None and type(given) not in (int, float):
        return one
    attributes.pop("rotation", None)
    angle = one.rotation if one.rotation is not None else float(given)  # type: ignore[arg-type]
    return Box(one.class_name, one.x, one.y, one.width, one.height, angle or None, attributes=attributes)


def _members(one: Annotation, numbers: Mapping[str, int]) -> dict[str, Any]:
    others = dict(one.attributes)
    common: dict[str, Any] = {"type": _TYPES[one.kind], "label_id": numbers[one.class_name], "group": 0, "z_order": 0}
    for key in ("group", "z_order"):
        if type(others.get(key)) is int and others[key] != 0:
            common[key] = others.pop(key)
    match one:
        case Box():
            common["bbox"] = [one.x, one.y, one.width, one.height]
            if one.rotation is not None:
                others["rotation"] = one.rotation
        case Polygon() | Polyline():
            common["points"] = [value for point in one.points[0] for value in point]
        case Mask():
            common["rle"] = {"counts": encode_counts(one.counts), "size": list(one.size)}
        case Keypoints():
            common["points"] = [value for x, y, _ in one.points for value in (x, y)]
            common["visibility"] = [int(visible) for _, _, visible in one.points]
        case Label():
            pass
    return common | {"attributes": others}


def _read_items(
    body: Mapping[str, Any], where: str, split: str | None, account: Conservation
) -> Iterator[LabeledImage]:
    categories = object_of(body["categories"], f"{where}: categories")
    listed = object_of(categories.get("label") or {}, f"{where}: categories.label")
    names = [object_of(one, f"{where}: labels").get("name") for one in list_of(listed, "labels", where)]
    for number, raw in enumerate(list_of(body, "items", where)):
        place = f"{where}: items[{number}]"
        item = object_of(raw, place)
        media = object_of(item.get("image") or item.get("media") or {}, f"{place}.image")
        path = foreign_path(media.get("path") or item.get("id"), place)
        size = media.get("size") or [None, None]
        if not isinstance(size, list) or len(size) != 2 or not all(type(side) in (int, type(None)) for side in size):
            raise CorruptError(f"{place}: the size is height and width, not {size!r}")
        extra = dict(object_of(item.get("attr") or {}, f"{place}.attr"))
        tags = extra.pop("tags", [])
        if not isinstance(tags, list) or not all(isinstance(tag, str) for tag in tags):
            raise CorruptError(f"{place}: tags are a list of texts")
        account.take("images")
        for name in extra:
            account.drop(f"image {name[:64]}", "images have no members beside size, split and tags", place)
        image = LabeledImage(path, [], size[1], size[0], split, tuple(tags))
        for index, one in enumerate(list_of(item, "annotations", place)):
            account.take("objects")
            found = _annotation(object_of(one, place), names, f"{place}.annotations[{index}]", account)
            image.annotations += [] if found is None else [found]
        account.take_details(image)
        yield image


def _annotation(one: Mapping[str, Any], names: list[Any], where: str, account: Conservation) -> Annotation | None:
    kind = one.get("type")
    if not isinstance(kind, str) or kind not in _TYPES.values():
        account.lose("objects", f"there is no annotation of type {str(kind)[:40]!r}", where)
        return None
    number = one.get("label_id")
    if number is None:
        account.lose("objects", "an annotation without a label has no class", where)
        return None
    if type(number) is not int or not 0 <= number < len(names) or not isinstance(names[number], str):
        raise CorruptError(f"{where} has the label {number!r}, which is not listed")
    attributes = dict(object_of(one.get("attributes") or {}, f"{where}.attributes"))
    attributes |= {key: one[key] for key in ("group", "z_order") if one.get(key)}
    attributes |= {key: value for key, value in one.items() if key not in _MEMBERS}
    try:
        return _geometry(one, kind, names[number], attributes)
    except (BadInputError, TypeError, ValueError, KeyError) as error:
        raise CorruptError(f"{where}: {getattr(error, 'message', error)}") from error


def _geometry(one: Mapping[str, Any], kind: str, name: str, attributes: dict[str, Any]) -> Annotation:
    if kind == "bbox":
        angle = None
        if type(attributes.get("rotation")) in (int, float):
            angle = attributes.pop("rotation") or None
        return box_of(name, one["bbox"], angle, attributes)
    if kind == "polygon":
        return Polygon(name, pairs(one["points"]), attributes=attributes)
    if kind == "polyline":
        return Polyline(name, pairs(one["points"]), attributes=attributes)
    if kind == "points":
        points = pairs(one["points"])
        visible = one.get("visibility") or [2] * len(points)
        return Keypoints(
            name, [(*point, flag) for point, flag in zip(points, visible, strict=True)], attributes=attributes
        )
    if kind == "mask":
        return Mask(name, one["rle"], attributes=attributes)
    return Label(name, attributes=attributes)
