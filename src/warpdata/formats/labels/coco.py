"""COCO, written: detection, segmentation as polygons and run-length encoding, keypoints and crowds.

One annotation of COCO may have a box, a segmentation and keypoints. The first of keypoints, segmentation and box is the
geometry of the model, and the others are attributes of these names, unless they follow from it. Members beyond those of
COCO (`attributes`, `rotation`, `split`, `tags`) are those that other tools write too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from warpdata.formats.labels.annotations import Annotation, Box, Keypoints, Mask, Polygon
from warpdata.formats.labels.coco_rows import CocoRows, RowIds
from warpdata.formats.labels.columns import LabelBlock, LabelBlocks
from warpdata.formats.labels.conservation import Conservation
from warpdata.formats.labels.files import ImagePlace, LabelFile, OutputFile
from warpdata.formats.labels.geometry import area_of, bounds_of, has_hole
from warpdata.formats.labels.masks import encode_counts
from warpdata.formats.labels.model import FACTS, LabelClass, LabeledImage, LabelSet
from warpdata.formats.labels.options import safe_name

__all__ = ["coco_document", "is_numbers", "object_members", "write_coco"]

_BLOCK = 1000
_encode = msgspec.json.encode


def write_coco(labels: LabelSet, account: Conservation) -> Iterator[OutputFile]:
    """Yield `annotations/instances_<split>.json` for each split, and the places of images below `images/`."""
    first_id = 1
    for split in labels.splits:
        name = safe_name(split) if split else "default"
        writer = _Writer(labels, account, first_id)
        yield LabelFile(f"annotations/instances_{name}.json", writer.pieces(labels.of_split(split)))
        yield from (ImagePlace(f"images/{path}", path) for path in writer.paths)
        first_id = writer.next_id


def coco_document(labels: LabelSet, account: Conservation | None = None) -> Iterator[bytes]:
    """Yield one document with all images, in pieces. Image and annotation ids begin at 1."""
    return _Writer(labels, account or Conservation("coco", "export"), 1).pieces(labels.images)


class _Writer:
    """Writes one document. Images follow annotations, because they are few and wait in memory."""

    def __init__(self, labels: LabelSet, account: Conservation, first_id: int) -> None:
        self._labels = labels
        self._account = account
        self._numbers = {name: number for number, name in enumerate(labels.class_names, 1)}
        self._records: list[bytes] = []
        self._next_object = 1
        self.next_id = first_id
        self.paths: list[str] = []

    def pieces(self, images: Iterable[LabeledImage]) -> Iterator[bytes]:
        yield b'{"info":' + _encode({"description": self._labels.name, "version": "1.0"}) + b',"annotations":['
        written = self._blocks(images.blocks()) if isinstance(images, LabelBlocks) else self._objects(images)
        comma = b""
        for piece in written:
            yield comma + piece
            comma = b","
        yield b'],"images":[' + b",".join(self._records) + b'],"licenses":[],"categories":'
        yield _encode([_category(one, self._numbers[one.name]) for one in self._labels.classes]) + b"}"

    def _blocks(self, blocks: Iterable[LabelBlock]) -> Iterator[bytes]:
        """Yield annotations of blocks, those of unusual images one at a time."""
        for whole in blocks:
            rows = CocoRows(whole)
            for first, end, is_odd in rows.runs():
                block = whole.slice(first, end)
                if is_odd:
                    yield from self._objects(block)
                    continue
                self._account.take_block(block)
                self._account.give_block(block)
                ids = RowIds(self._next_object, self.next_id, self._numbers)
                for image in block.images:
                    self._add_image(image)
                if block.rows.num_rows:
                    yield rows.encode(first, end, ids)
                self._next_object += block.rows.num_rows

    def _objects(self, images: Iterable[LabeledImage]) -> Iterator[bytes]:
        block: list[bytes] = []
        for image in images:
            held = self._held(image)
            self._account.take_image(image)
            self._account.give_image(held)
            for one in held.annotations:
                number = self._numbers[one.class_name]
                ids = {"id": self._next_object, "image_id": self.next_id, "category_id": number}
                block.append(_encode(ids | object_members(one)))
                self._next_object += 1
            self._add_image(held)
            if len(block) >= _BLOCK:
                yield b",".join(block)
                block = []
        if block:
            yield b",".join(block)

    def _add_image(self, image: LabeledImage) -> None:
        self._records.append(_encode(_image_member(image, self.next_id)))
        self.paths.append(image.path)
        self.next_id += 1

    def _held(self, image: LabeledImage) -> LabeledImage:
        """Return what the document can hold of an image, and list the rest."""
        kept: list[Annotation] = []
        for one in image.annotations:
            if one.kind in ("label", "polyline"):
                self._account.hold(one, None, f"COCO has no {FACTS[one.kind]}", image.path)
                continue
            if isinstance(one, Polygon) and has_hole(one):
                self._account.change("polygons", "readers of COCO fill holes", image.path)
            kept.append(one)
        width, height = image.width, image.height
        return LabeledImage(image.path, kept, width, height, image.split, image.tags, image.hash)


def _image_member(image: LabeledImage, number: int) -> dict[str, Any]:
    member: dict[str, Any] = {"id": number, "file_name": image.path}
    if image.size is not None:
        member |= {"width": image.width, "height": image.height}
    if image.split is not None:
        member["split"] = image.split
    return member | ({"tags": list(image.tags)} if image.tags else {})


def _category(one: LabelClass, number: int) -> dict[str, Any]:
    member: dict[str, Any] = {"id": number, "name": one.name}
    if one.supercategory is not None:
        member["supercategory"] = one.supercategory
    if one.keypoints:
        member |= {"keypoints": list(one.keypoints), "skeleton": [list(pair) for pair in one.skeleton]}
    return member


def object_members(one: Annotation) -> dict[str, Any]:
    """Return the members of an annotation without its ids."""
    bounds = bounds_of(one)
    derived: dict[str, Any] = {"bbox": list(bounds or (0.0, 0.0, 0.0, 0.0)), "area": area_of(one), "iscrowd": 0}
    match one:
        case Box():
            derived |= {"segmentation": []}
            if one.rotation is not None or "rotation" in one.attributes:
                derived["bbox"] = [one.x, one.y, one.width, one.height]
                derived["rotation"] = one.rotation
        case Polygon():
            derived["segmentation"] = [[value for point in ring for value in point] for ring in one.points]
        case Mask():
            derived["segmentation"] = {"size": list(one.size), "counts": encode_counts(one.counts)}
        case Keypoints():
            derived["keypoints"] = [value for point in one.points for value in point]
            derived["num_keypoints"] = sum(point[2] > 0 for point in one.points)
    if not one.attributes:
        return derived
    own: dict[str, Any] = {}
    others: dict[str, Any] = {}
    for name, value in one.attributes.items():
        (own if _is_member(one, name, value) and value != derived.get(name) else others)[name] = value
    return derived | own | ({"attributes": others} if others else {})


def _is_member(one: Annotation, name: str, value: Any) -> bool:
    """Return whether an attribute has a place of its own in an annotation of COCO, from which it can be read back."""
    match name:
        case "area" | "score" | "num_keypoints":
            return type(value) in (int, float)
        case "iscrowd":
            return type(value) is int
        case "bbox":
            return not isinstance(one, Box) and is_numbers(value) and len(value) == 4
        case "segmentation":
            is_list = isinstance(value, list) and value and all(map(is_numbers, value))
            return isinstance(one, Keypoints) and bool(is_list or (isinstance(value, dict) and value))
        case _:
            return False


def is_numbers(value: Any) -> bool:
    """Return whether a value is a list of numbers."""
    return isinstance(value, list) and all(type(item) in (int, float) for item in value)
