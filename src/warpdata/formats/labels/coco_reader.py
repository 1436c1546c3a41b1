"""COCO, read: documents of instances, segmentations, keypoints and predictions.

Members that are not part of COCO become attributes. An annotation without a category, such as a caption, is listed as
lost; one that is malformed is an error with its place.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from warpdata.errors import BadInputError, CorruptError
from warpdata.formats.labels.annotations import Annotation, Box, Keypoints, Mask, Polygon, box_of
from warpdata.formats.labels.coco import is_numbers
from warpdata.formats.labels.coco_columns import CocoColumns
from warpdata.formats.labels.columns import LabelBlock
from warpdata.formats.labels.conservation import Conservation
from warpdata.formats.labels.files import LabelFiles, foreign_path
from warpdata.formats.labels.geometry import area_of, bounds_of
from warpdata.formats.labels.json_input import decode_foreign, decode_members, list_of, object_of, pairs, triples
from warpdata.formats.labels.model import LabelClass, LabeledImage, LabelSet
from warpdata.limits import MAX_CLASS_NAME_LENGTH
from warpdata.primitives.gc_pause import gc_paused

__all__ = ["CocoDocument", "coco_annotation", "find_documents", "read_coco", "read_document"]

_SPLIT = re.compile(r"(?:^|[_./-])(train|val|valid|validation|test|dev)(?=\d*(?:[_./-]|$))")
_IMAGE_MEMBERS = frozenset({"id", "file_name", "width", "height", "split", "tags"})
_MEMBERS = frozenset(
    {"id", "image_id", "category_id", "bbox", "segmentation", "area", "iscrowd", "keypoints", "num_keypoints"}
    | {"attributes", "rotation"}
)
_PLAIN_MEMBERS = _MEMBERS - {"attributes", "rotation"}
_ROOT = frozenset({"images", "annotations", "categories"})


def read_coco(files: LabelFiles, account: Conservation) -> LabelSet:
    """Return the images of all documents of a directory, or of one file."""
    with gc_paused():
        documents = [read_document(files, name, account) for name in find_documents(files)]
    if not documents:
        raise BadInputError(
            f"{files.name} has no COCO document", hint="Name a JSON file, or a directory that has one or several."
        )
    classes = {one.name: one for document in documents for one in document.classes.values()}
    splits = {document.split for document in documents}
    return LabelSet(tuple(classes.values()), _Images(documents, account), tuple(splits), files.name)


class _Images:
    """The images of documents, which are parsed and released in turn."""

    def __init__(self, documents: list[CocoDocument], account: Conservation) -> None:
        self._documents = documents
        self._account = account

    def blocks(self, image_count: int = 1000) -> Iterator[LabelBlock]:
        while self._documents:
            with gc_paused():
                block = self._documents.pop(0).labeled_images(self._account)
            yield from block.split(image_count)

    def __iter__(self) -> Iterator[LabeledImage]:
        for block in self.blocks():
            yield from block


def find_documents(files: LabelFiles) -> list[str]:
    """Return the JSON files that may be COCO documents: those in `annotations/`, or else all outside of `images/`."""
    names = [name for name in files.names() if name.endswith(".json")]
    beside = [name for name in names if "annotations" in name.split("/")[:-1]]
    return beside or [name for name in names if not name.startswith("images/")]


class CocoDocument:
    """One document: its classes by id, its images, and annotations that are not parsed yet."""

    def __init__(self, where: str, body: Mapping[str, msgspec.Raw], split: str | None) -> None:
        self.where = where
        self.split = split
        self.images = _member(body, "images", where)
        self.annotations = _raw_members(body, "annotations", where)
        self.classes: dict[Any, LabelClass] = dict(_classes(_member(body, "categories", where), where))

    def labeled_images(self, account: Conservation) -> LabelBlock:
        """Return the images in order, each with its annotations. The document has none afterwards."""
        images = list(self._parsed_images(account))
        numbers = {image_id: number for number, (image_id, _) in enumerate(images)}
        account.take("objects", len(self.annotations))
        account.drop("ids of objects", "objects get ids of their own", self.where, len(self.annotations))
        names = {key: one.name for key, one in self.classes.items() if len(one.name) <= MAX_CLASS_NAME_LENGTH}
        columns = CocoColumns(numbers, names, lambda number: self._parsed(number, numbers, account))
        rows, starts = columns.read(self.annotations)
        self.annotations = []
        block = LabelBlock([image for _, image in images], rows, starts)
        account.take_details_of(block)
        return block

    def _parsed(self, number: int, images: Mapping[Any, int], account: Conservation) -> tuple[int, Annotation] | None:
        """Return the number of the image and the annotation of one object; None if it is listed as lost."""
        place = f"{self.where}: annotations[{number}]"
        one = object_of(decode_foreign(self.annotations[number], place), place)
        if one.get("category_id") is None and ("caption" in one or "segments_info" in one):
            account.lose("objects", "captions and panoptic segments are not objects", place)
            return None
        image = images.get(_hashable(one.get("image_id")))
        if image is None:
            raise CorruptError(f"{place} names the image {one.get('image_id')!r}, which is not listed")
        return image, coco_annotation(one, self._class_of(one, place), place)

    def _class_of(self, one: Mapping[str, Any], place: str) -> str:
        found = self.classes.get(_hashable(one.get("category_id")))
        if found is None:
            raise CorruptError(f"{place} has the category {one.get('category_id')!r}, which is not listed")
        return found.name

    def _parsed_images(self, account: Conservation) -> Iterator[tuple[Any, LabeledImage]]:
        account.take("images", len(self.images))
        account.drop("ids of images", "images are named by their paths", self.where, len(self.images))
        seen: set[Any] = set()
        dropped: dict[str, list[Any]] = {}
        for number, raw in enumerate(self.images):
            place = f"{self.where}: images[{number}]"
            one = object_of(raw, place)
            image_id = _hashable(one.get("id"))
            if image_id is None or image_id in seen:
                raise CorruptError(f"{place} has the id {one.get('id')!r}, which is missing or not unique")
            seen.add(image_id)
            image = image_of(one, place, self.split)
            for name in one.keys() - _IMAGE_MEMBERS:
                dropped.setdefault(name, [0, place])[0] += 1
            yield image_id, image
        for name, (count, place) in dropped.items():
            account.drop(f"image {name[:64]}", "images have no members beside size, split and tags", place, count)


def image_of(one: Mapping[str, Any], place: str, split: str | None) -> LabeledImage:
    """Return an image from its member of a document."""
    tags = one.get("tags") or ()
    if not isinstance(tags, list | tuple) or not all(isinstance(tag, str) for tag in tags):
        raise CorruptError(f"{place}: tags are a list of texts, not {tags!r}")
    own_split = one.get("split", split)
    if own_split is not None and not isinstance(own_split, str):
        raise CorruptError(f"{place}: a split is text, not {own_split!r}")
    width, height = one.get("width"), one.get("height")
    for side in (width, height):
        if side is not None and (type(side) is not int or side < 0):
            raise CorruptError(f"{place}: width and height are numbers of pixels, not {side!r}")
    path = foreign_path(one.get("file_name"), place)
    return LabeledImage(path, [], width or None, height or None, own_split, tuple(tags))


def read_document(files: LabelFiles, name: str, account: Conservation) -> CocoDocument:
    """Parse one file, except its annotations. `CorruptError` if it is not a COCO document."""
    where = f"{files.name}/{name}" if name not in files.name else files.name
    body = decode_members(files.read(name), where)
    if body is None or "images" not in body:
        raise CorruptError(f"{where} is not a COCO document: it has no list of images")
    for member in body.keys() - _ROOT:
        if decode_foreign(body[member], where):
            account.drop(f"document {member[:64]}", "collections keep images, classes and annotations", where)
    found = _SPLIT.search(name.removesuffix(".json").lower())
    return CocoDocument(where, body, found[1] if found else None)


def coco_annotation(one: Mapping[str, Any], class_name: str, place: str) -> Annotation:
    """Return the annotation of a COCO object. Everything that does not follow from its geometry is an attribute."""
    try:
        made = _geometry(one, class_name, None)
        if not one.keys() - _PLAIN_MEMBERS and not _underived(one, made):
            return made  # as almost always
        attributes = dict(object_of(one.get("attributes") or {}, f"{place}.attributes"))
        rotation = one.get("rotation", attributes.get("rotation"))
        if isinstance(made, Box) and "rotation" not in one and type(rotation) in (int, float):
            del attributes["rotation"]  # as CVAT writes it; 0 is no rotation
            rotation = rotation or None
        rotation = rotation if type(rotation) in (int, float) else None
        attributes |= {name: one[name] for name in one.keys() - _MEMBERS} | _underived(one, made)
        return _geometry(one, class_name, rotation, attributes) if attributes or rotation is not None else made
    except CorruptError:
        raise
    except (TypeError, ValueError, OverflowError) as error:
        raise CorruptError(f"{place}: {getattr(error, 'message', error)}") from error


def _geometry(
    one: Mapping[str, Any], name: str, rotation: float | None, attributes: Mapping[str, Any] | None = None
) -> Annotation:
    extra = {} if attributes is None else attributes
    if one.get("keypoints"):
        return Keypoints(name, triples(one["keypoints"]), attributes=extra)
    segmentation = one.get("segmentation")
    if isinstance(segmentation, dict):
        return Mask(name, segmentation, attributes=extra)
    if segmentation:
        rings = [segmentation] if is_numbers(segmentation) else segmentation
        return Polygon(name, [pairs(ring) for ring in rings], attributes=extra)
    box = one.get("bbox")
    if not isinstance(box, list):
        raise BadInputError("it has neither bbox, segmentation nor keypoints")
    return box_of(name, box, rotation, extra)


def _underived(one: Mapping[str, Any], made: Annotation) -> dict[str, Any]:
    """Return the members that the geometry does not imply."""
    found: dict[str, Any] = {}
    area, crowd = one.get("area"), one.get("iscrowd")
    if area is not None and area != area_of(made):
        found["area"] = area
    if crowd:
        found["iscrowd"] = crowd
    if isinstance(made, Box):
        return found
    bounds = bounds_of(made) or (0, 0, 0, 0)
    if one.get("bbox") and tuple(one["bbox"]) != bounds:
        found["bbox"] = one["bbox"]
    if isinstance(made, Keypoints):
        if one.get("num_keypoints") not in (None, sum(point[2] > 0 for point in made.points)):
            found["num_keypoints"] = one["num_keypoints"]
        if one.get("segmentation"):
            found["segmentation"] = one["segmentation"]
    return found


def _member(body: Mapping[str, msgspec.Raw], name: str, where: str) -> list[Any]:
    return list_of({name: decode_foreign(body[name], where)} if name in body else {}, name, where)


def _raw_members(body: Mapping[str, msgspec.Raw], name: str, where: str) -> list[msgspec.Raw]:
    """Return a member that is a list, whose items are not decoded."""
    try:
        return msgspec.json.decode(body.get(name, b"[]"), type=list[msgspec.Raw])
    except msgspec.ValidationError:
        return _member(body, name, where)  # null, or an error


def _classes(categories: list[Any], where: str) -> Iterator[tuple[Any, LabelClass]]:
    seen: set[Any] = set()
    for number, raw in enumerate(categories):
        place = f"{where}: categories[{number}]"
        one = object_of(raw, place)
        name, key = one.get("name"), _hashable(one.get("id"))
        if not isinstance(name, str) or not name or key is None or key in seen:
            raise CorruptError(f"{place} has no name, or its id {one.get('id')!r} is missing or not unique")
        seen.add(key)
        points = one.get("keypoints") or []
        skeleton = one.get("skeleton") or []
        if not isinstance(points, list) or not all(isinstance(point, str) for point in points):
            raise CorruptError(f"{place}: keypoints are a list of names")
        if not isinstance(skeleton, list) or not all(is_numbers(pair) and len(pair) == 2 for pair in skeleton):
            raise CorruptError(f"{place}: a skeleton is a list of pairs of numbers")
        parent = one.get("supercategory")
        lines = tuple((int(first), int(second)) for first, second in skeleton)
        yield key, LabelClass(name, tuple(points), lines, parent if isinstance(parent, str) else None)


def _hashable(value: Any) -> int | str | None:
    return value if type(value) in (int, str) else None
