"""COCO, read: documents of instances, segmentations, keypoints and predictions.

Members that are not part of COCO become attributes. An annotation without a category, such as a caption, is listed as
lost; one that is malformed is an error with its place.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from warpdata.errors import BadInputError, CorruptError
from warpdata.formats.labels.annotations import Annotation, Box, Keypoints, Mask, Polygon, box_of
from warpdata.formats.labels.coco import is_numbers
from warpdata.formats.labels.conservation import Conservation
from warpdata.formats.labels.files import LabelFiles, foreign_path
from warpdata.formats.labels.geometry import area_of, bounds_of
from warpdata.formats.labels.json_input import decode_foreign, list_of, object_of, pairs, triples
from warpdata.formats.labels.model import LabelClass, LabeledImage, LabelSet

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
    documents = [read_document(files, name, account) for name in find_documents(files)]
    if not documents:
        raise BadInputError(
            f"{files.name} has no COCO document", hint="Name a JSON file, or a directory that has one or several."
        )
    classes = {one.name: one for document in documents for one in document.classes.values()}
    splits = {document.split for document in documents}
    return LabelSet(tuple(classes.values()), _images(documents, account), tuple(splits), files.name)


def _images(documents: list[CocoDocument], account: Conservation) -> Iterator[LabeledImage]:
    while documents:
        document = documents.pop(0)  # its memory goes before the next one
        yield from document.labeled_images(account)


def find_documents(files: LabelFiles) -> list[str]:
    """Return the JSON files that may be COCO documents: those in `annotations/`, or else all outside of `images/`."""
    names = [name for name in files.names() if name.endswith(".json")]
    beside = [name for name in names if "annotations" in name.split("/")[:-1]]
    return beside or [name for name in names if not name.startswith("images/")]


class CocoDocument:
    """One parsed document: classes by id, and images and annotations as they are in it."""

    def __init__(self, where: str, body: Mapping[str, Any], split: str | None) -> None:
        self.where = where
        self.split = split
        self.images = list_of(body, "images", where)
        self.annotations = list_of(body, "annotations", where)
        self.classes: dict[Any, LabelClass] = dict(_classes(list_of(body, "categories", where), where))

    def labeled_images(self, account: Conservation) -> Iterator[LabeledImage]:
        """Yield images in order, each with its annotations."""
        by_image: dict[Any, list[Annotation]] = {}
        images = list(self._parsed_images(account))
        for image_id, _ in images:
            by_image[image_id] = []
        account.take("objects", len(self.annotations))
        account.drop("ids of objects", "objects get ids of their own", self.where, len(self.annotations))
        for number, raw in enumerate(self.annotations):
            place = f"{self.where}: annotations[{number}]"
            one = object_of(raw, place)
            if one.get("category_id") is None and ("caption" in one or "segments_info" in one):
                account.lose("objects", "captions and panoptic segments are not objects", place)
                continue
            target = by_image.get(_hashable(one.get("image_id")))
            if target is None:
                raise CorruptError(f"{place} names the image {one.get('image_id')!r}, which is not listed")
            target.append(coco_annotation(one, self._class_of(one, place), place))
        self.annotations = []
        for image_id, image in images:
            image.annotations = by_image[image_id]
            account.take_details(image)
            yield image

    def _class_of(self, one: Mapping[str, Any], place: str) -> str:
        found = self.classes.get(_hashable(one.get("category_id")))
        if found is None:
            raise CorruptError(f"{place} has the category {one.get('category_id')!r}, which is not listed")
        return found.name

    def _parsed_images(self, account: Conservation) -> Iterator[tuple[Any, LabeledImage]]:
        account.take("images", len(self.images))
        account.drop("ids of images", "images are named by their paths", self.where, len(self.images))
        seen: set[Any] = set()
        for number, raw in enumerate(self.images):
            place = f"{self.where}: images[{number}]"
            one = object_of(raw, place)
            image_id = _hashable(one.get("id"))
            if image_id is None or image_id in seen:
                raise CorruptError(f"{place} has the id {one.get('id')!r}, which is missing or not unique")
            seen.add(image_id)
            image = image_of(one, place, self.split)
            for name in one.keys() - _IMAGE_MEMBERS:
                account.drop(f"image {name[:64]}", "images have no members beside size, split and tags", place)
            yield image_id, image


def image_of(one: Mapping[str, Any], place: str, split: str | None) -> LabeledImage:
    """Return an image from its member of a document."""
    tags = one.get("tags") or ()
    if not isinstance(tags, list | tuple) or not all(isinstance(tag, str) for tag in tags):
        raise CorruptError(f"{place}: tags are a list of texts, not {tags!r}")
    own_split = one.get("split", split)
    if own_split is not None and not isinstance(own_split, str):
        raise CorruptError(f"{place}: a split is text, not {own_split!r}")
    sides = [one.get("width"), one.get("height")]
    for side in sides:
        if side is not None and (type(side) is not int or side < 0):
            raise CorruptError(f"{place}: width and height are numbers of pixels, not {side!r}")
    width, height = (side or None for side in sides)
    return LabeledImage(foreign_path(one.get("file_name"), place), [], width, height, own_split, tuple(tags))


def read_document(files: LabelFiles, name: str, account: Conservation) -> CocoDocument:
    """Parse one file. `CorruptError` if it is not a COCO document."""
    where = f"{files.name}/{name}" if name not in files.name else files.name
    body = decode_foreign(files.read(name), where)
    if not isinstance(body, dict) or "images" not in body:
        raise CorruptError(f"{where} is not a COCO document: it has no list of images")
    for member in body.keys() - _ROOT:
        if body[member]:
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
    except (BadInputError, TypeError) as error:
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
