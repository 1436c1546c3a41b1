"""Platform Format, read: every problem of a document is reported with its place.

Implements "Platform Format" of docs/specs/collections.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from warpdata.errors import BadInputError, CorruptError, UnsupportedError
from warpdata.formats.labels.annotations import KINDS, Annotation, Keypoints, Label, Mask, Polygon, Polyline, box_of
from warpdata.formats.labels.conservation import Conservation
from warpdata.formats.labels.files import LabelFiles
from warpdata.formats.labels.image_path import check_image_path
from warpdata.formats.labels.json_input import pairs, triples
from warpdata.formats.labels.model import LabelClass, LabeledImage, LabelSet
from warpdata.formats.labels.platform import PLATFORM_VERSIONS
from warpdata.limits import MAX_PLATFORM_DOCUMENT_BYTES
from warpdata.primitives.strict_json import decode_json

__all__ = ["PlatformDocument", "parse_annotation", "parse_annotations", "read_platform"]

_MAX_PROBLEMS = 20
_CLASS_KEYS = ("class_id", "class_name", "class", "label", "category_id")
_GEOMETRY = {
    "box": "bbox",
    "polygon": "segmentation",
    "polyline": "segmentation",
    "mask": "segmentation",
    "keypoints": "keypoints",
}


@dataclass(frozen=True, slots=True)
class PlatformDocument:
    """A parsed `annotations.json`: classes in order, and images by path."""

    dataset_name: str
    classes: tuple[LabelClass, ...]
    images: Mapping[str, LabeledImage]

    @property
    def annotation_count(self) -> int:
        return sum(len(image.annotations) for image in self.images.values())


def read_platform(files: LabelFiles, account: Conservation) -> LabelSet:
    """Return the images of `annotations.json`, or of the only file."""
    names = files.names()
    name = "annotations.json" if "annotations.json" in names else names[0] if len(names) == 1 else None
    if name is None:
        raise BadInputError(f"{files.name} has no annotations.json")
    where = f"{files.name}/{name}" if name not in files.name else files.name
    document = parse_annotations(files.read(name, MAX_PLATFORM_DOCUMENT_BYTES), where)

    def images() -> Iterator[LabeledImage]:
        for image in document.images.values():
            account.take("images")
            account.take("objects", len(image.annotations))
            account.take_details(image)
            yield image

    return LabelSet(document.classes, images(), name=document.dataset_name)


def parse_annotations(data: bytes, where: str) -> PlatformDocument:
    """Parse an `annotations.json`. Raise `CorruptError` with every problem and its place."""
    if len(data) > MAX_PLATFORM_DOCUMENT_BYTES:
        raise CorruptError(f"{where} has {len(data)} bytes; the limit is {MAX_PLATFORM_DOCUMENT_BYTES}")
    body = decode_json(data, where)
    if not isinstance(body, dict) or not isinstance(body.get("images"), list):
        raise CorruptError(f"{where} is not in Platform Format: it has no list of images")
    version = str(body.get("format_version", PLATFORM_VERSIONS[-1]))
    if version not in PLATFORM_VERSIONS:
        known = ", ".join(PLATFORM_VERSIONS)
        raise UnsupportedError(f"{where} has format_version {version}; this warpdata reads {known}")
    return _Parser(where).parse(body)


class _Parser:
    """Reads one document, and collects problems."""

    def __init__(self, where: str) -> None:
        self._where = where
        self._problems: list[str] = []
        self._classes: dict[Any, LabelClass] = {}

    def parse(self, body: Mapping[str, Any]) -> PlatformDocument:
        for number, one in enumerate(self._list(body, "classes")):
            name = one if isinstance(one, str) else one.get("name") if isinstance(one, dict) else None
            if not isinstance(name, str) or not name:
                self._problems.append(f"classes[{number}] has no name")
                continue
            self._classes[one.get("id", number) if isinstance(one, dict) else number] = self._class(one, name, number)
        images: dict[str, LabeledImage] = {}
        by_id: dict[Any, LabeledImage] = {}
        for number, image in enumerate(body["images"]):
            self._image(f"images[{number}]", image, images, by_id)
        for number, one in enumerate(self._list(body, "annotations")):
            place = f"annotations[{number}]"
            image_id = one.get("image_id") if isinstance(one, dict) else None
            entry = by_id.get(image_id) if isinstance(image_id, int | str) else None
            if entry is None:
                self._problems.append(f"{place} names the image {image_id!r}, which is not listed")
            else:
                self._annotation(place, one, entry)
        if self._problems:
            shown = "; ".join(self._problems[:3])
            raise CorruptError(
                f"{self._where} has {len(self._problems)} problems: {shown}",
                problems=tuple(self._problems[:_MAX_PROBLEMS]),
            )
        return PlatformDocument(str(body.get("dataset_name") or ""), tuple(self._classes.values()), images)

    def _class(self, one: Any, name: str, number: int) -> LabelClass:
        if isinstance(one, str):
            return LabelClass(name)
        points, skeleton = one.get("keypoints") or [], one.get("skeleton") or []
        is_skeleton = isinstance(skeleton, list) and all(
            isinstance(pair, list) and len(pair) == 2 and all(type(end) is int for end in pair) for pair in skeleton
        )
        if not isinstance(points, list) or not all(isinstance(point, str) for point in points) or not is_skeleton:
            self._problems.append(f"classes[{number}] has keypoints without names, or a skeleton without pairs")
            return LabelClass(name)
        parent = one.get("supercategory")
        lines = tuple((pair[0], pair[1]) for pair in skeleton)
        return LabelClass(name, tuple(points), lines, parent if isinstance(parent, str) else None)

    def _list(self, body: Mapping[str, Any], name: str) -> list[Any]:
        found = body.get(name, [])
        if not isinstance(found, list):
            self._problems.append(f"{name} is not a list")
            return []
        return found

    def _image(self, place: str, image: Any, images: dict[str, LabeledImage], by_id: dict[Any, LabeledImage]) -> None:
        path = image.get("file_name") if isinstance(image, dict) else None
        if not isinstance(path, str):
            self._problems.append(f"{place} has no file_name")
            return
        try:
            check_image_path(path)
        except BadInputError as error:
            self._problems.append(f"{place}: {error.message}")
            return
        tags = image.get("tags") or ()
        split = image.get("split")
        if not isinstance(tags, list | tuple) or not all(isinstance(tag, str) for tag in tags):
            self._problems.append(f"{place}.tags is not a list of texts")
            tags = ()
        width, height = (image.get(side) if type(image.get(side)) is int else None for side in ("width", "height"))
        entry = LabeledImage(path, [], width, height, split if isinstance(split, str) else None, tuple(tags))
        digest = image.get("hash")
        entry.hash = digest.removeprefix("sha256:") if isinstance(digest, str) else None
        if path in images:
            self._problems.append(f"{place} repeats the file_name {path!r}")
        images[path] = entry
        image_id = image.get("id")
        if image_id is not None:  # 0 is an id like any other
            if not isinstance(image_id, int | str) or image_id in by_id:
                self._problems.append(f"{place} has the id {image_id!r}, which is no id or not unique")
            else:
                by_id[image_id] = entry
        own = image.get("annotation")
        for number, one in enumerate(own if isinstance(own, list) else [own] if own else []):
            self._annotation(f"{place}.annotation[{number}]", one, entry)

    def _annotation(self, place: str, one: Any, entry: LabeledImage) -> None:
        if not isinstance(one, dict):
            self._problems.append(f"{place} is not an object")
            return
        try:
            entry.annotations.append(parse_annotation(one, self._class_of(one)))
        except (BadInputError, TypeError, ValueError) as error:
            self._problems.append(f"{place}: {getattr(error, 'message', error)}")

    def _class_of(self, one: Mapping[str, Any]) -> str:
        for key in _CLASS_KEYS:
            value = one.get(key)
            if value is None:
                continue
            if key.endswith("_id") or isinstance(value, int):
                if value not in self._classes:
                    raise BadInputError(f"{key} {value!r} is not a listed class")
                return self._classes[value].name
            return str(value)
        raise BadInputError("it has no class")


def parse_annotation(one: Mapping[str, Any], class_name: str) -> Annotation:
    """Return the annotation. Members that are no part of it become attributes, so nothing is lost."""
    kind = one.get("type") or _kind_of(one)
    if kind not in KINDS:
        raise BadInputError(f"the type {kind!r} is not known; known are {', '.join(KINDS)}")
    used = {"id", "image_id", "type", "attributes", *_CLASS_KEYS, _GEOMETRY.get(kind, "")}
    used |= {"rotation"} if kind == "box" else set()
    attributes = {**(one.get("attributes") or {}), **{key: value for key, value in one.items() if key not in used}}
    if kind == "box":
        return box_of(class_name, one["bbox"], one.get("rotation"), attributes)
    if kind in ("polygon", "polyline"):
        lines = one["segmentation"]
        flat = [lines] if lines and not isinstance(lines[0], list) else lines
        shape: type[Polygon | Polyline] = Polygon if kind == "polygon" else Polyline
        return shape(class_name, [pairs(line) for line in flat], attributes=attributes)
    if kind == "mask":
        return Mask(class_name, one["segmentation"], attributes=attributes)
    if kind == "keypoints":
        values = one["keypoints"]
        points = values if values and isinstance(values[0], list) else triples(values)
        return Keypoints(class_name, points, attributes=attributes)
    return Label(class_name, attributes=attributes)


def _kind_of(one: Mapping[str, Any]) -> str:
    if one.get("segmentation"):
        return "mask" if isinstance(one["segmentation"], dict) else "polygon"
    if one.get("keypoints"):
        return "keypoints"
    return "box" if one.get("bbox") else "label"
