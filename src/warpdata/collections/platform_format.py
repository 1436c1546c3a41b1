"""Platform Format: `annotations.json`, `meta.json` and snapshot documents, written and read.

Image ids in written documents are sample ids, which begin at 0. Implements "Platform Format" of
docs/specs/collections.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from warpdata.collections.tables import ANNOTATIONS, IMAGES, check_collection, quoted_lists, read_columns
from warpdata.datasets import Dataset
from warpdata.errors import BadInputError, CorruptError, UnsupportedError
from warpdata.formats.labels import (
    KINDS,
    Annotation,
    Box,
    Keypoints,
    Label,
    Mask,
    Polygon,
    annotation_of,
    box_of,
    check_image_path,
)
from warpdata.limits import MAX_PLATFORM_DOCUMENT_BYTES
from warpdata.primitives.hashing import sha256_hex
from warpdata.primitives.strict_json import decode_json
from warpdata.repository.manifest import canonical_json

__all__ = [
    "ImageEntry",
    "PlatformDocument",
    "annotation_members",
    "annotations_document",
    "meta_document",
    "parse_annotation",
    "parse_annotations",
    "read_annotations",
    "snapshot_document",
]

FORMAT_VERSION = "1.0"
_MAX_PROBLEMS = 20
_CLASS_KEYS = ("class_id", "class_name", "class", "label", "category_id")
_GEOMETRY = {"box": "bbox", "polygon": "segmentation", "mask": "segmentation", "keypoints": "keypoints"}


@dataclass(slots=True)
class ImageEntry:
    """An image of a document, with its annotations."""

    path: str
    annotations: list[Annotation] = field(default_factory=list)
    split: str | None = None
    tags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PlatformDocument:
    """A parsed `annotations.json`: classes in order, and images by path."""

    dataset_name: str
    classes: tuple[str, ...]
    images: Mapping[str, ImageEntry]

    @property
    def annotation_count(self) -> int:
        return sum(len(image.annotations) for image in self.images.values())


def annotations_document(dataset: Dataset) -> dict[str, Any]:
    """Return the `annotations.json` of a version."""
    images = dataset.table(IMAGES)
    columns = read_columns(dataset, IMAGES, ["path", "width", "height", "split", "tags"]).to_pylist()
    ids = dict(zip((row["path"] for row in columns), images.sample_ids().tolist(), strict=True))
    rows = read_columns(dataset, ANNOTATIONS, dataset.table(ANNOTATIONS).schema().names).to_pylist()
    classes = {name: number for number, name in enumerate(sorted({row["class_name"] for row in rows}))}
    return {
        "format_version": FORMAT_VERSION,
        "dataset_id": dataset.id,
        "dataset_name": dataset.id.rpartition("/")[2],
        "classes": [{"id": number, "name": name} for name, number in classes.items()],
        "images": [_image_member(ids[row["path"]], row) for row in columns],
        "annotations": [_annotation_member(row, ids[row["image"]], classes) for row in rows],
    }


def meta_document(dataset: Dataset, created_at: str) -> dict[str, Any]:
    """Return the `meta.json` of a version."""
    names = sorted(set(read_columns(dataset, ANNOTATIONS, ["class_name"])["class_name"].to_pylist()))
    return {
        "dataset_id": dataset.id,
        "created_at": created_at,
        "num_images": dataset.table(IMAGES).count(),
        "num_classes": len(names),
        "class_names": names,
        "labeled": dataset.table(ANNOTATIONS).count() > 0,
    }


def snapshot_document(dataset: Dataset, snapshot_id: str, created: Mapping[str, str]) -> dict[str, Any]:
    """Return the document of a snapshot. `created` has `created_at`, `created_by` and `snapshot_type`."""
    annotations = annotations_document(dataset)
    files = read_columns(dataset, IMAGES, ["path", "hash"])
    checksums = zip(files["path"].to_pylist(), files["hash"].to_pylist(), strict=True)
    distribution: dict[str, set[int]] = {one["name"]: set() for one in annotations["classes"]}
    for one in annotations["annotations"]:
        distribution[annotations["classes"][one["class_id"]]["name"]].add(one["image_id"])
    return {
        "snapshot_id": snapshot_id,
        "snapshot_type": created["snapshot_type"],
        "created_at": created["created_at"],
        "created_by": created["created_by"],
        "parent_dataset_id": dataset.id,
        "version": dataset.version,
        "annotations": annotations,
        "integrity": {
            "total_images": files.num_rows,
            "annotations_hash": f"sha256:{sha256_hex(canonical_json(annotations, fractions=True))}",
            "image_checksums": {path: f"sha256:{digest}" for path, digest in checksums},
        },
        "metadata": {
            "num_classes": len(distribution),
            "class_distribution": {name: len(images) for name, images in distribution.items()},
        },
    }


def parse_annotations(data: bytes, where: str) -> PlatformDocument:
    """Parse an `annotations.json`. Raise `CorruptError` with every problem and its place."""
    if len(data) > MAX_PLATFORM_DOCUMENT_BYTES:
        raise CorruptError(f"{where} has {len(data)} bytes; the limit is {MAX_PLATFORM_DOCUMENT_BYTES}")
    body = decode_json(data, where)
    if not isinstance(body, dict) or not isinstance(body.get("images"), list):
        raise CorruptError(f"{where} is not in Platform Format: it has no list of images")
    version = str(body.get("format_version", FORMAT_VERSION))
    if version.partition(".")[0] != FORMAT_VERSION.partition(".")[0]:
        raise UnsupportedError(f"{where} has format_version {version}; this warpdata reads {FORMAT_VERSION}")
    return _Parser(where).parse(body)


class _Parser:
    """Reads one document, and collects problems."""

    def __init__(self, where: str) -> None:
        self._where = where
        self._problems: list[str] = []
        self._classes: dict[Any, str] = {}

    def parse(self, body: Mapping[str, Any]) -> PlatformDocument:
        for number, one in enumerate(self._list(body, "classes")):
            name = one if isinstance(one, str) else one.get("name") if isinstance(one, dict) else None
            if not isinstance(name, str) or not name:
                self._problems.append(f"classes[{number}] has no name")
                continue
            self._classes[one.get("id", number) if isinstance(one, dict) else number] = name
        images: dict[str, ImageEntry] = {}
        by_id: dict[Any, ImageEntry] = {}
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

    def _list(self, body: Mapping[str, Any], name: str) -> list[Any]:
        found = body.get(name, [])
        if not isinstance(found, list):
            self._problems.append(f"{name} is not a list")
            return []
        return found

    def _image(self, place: str, image: Any, images: dict[str, ImageEntry], by_id: dict[Any, ImageEntry]) -> None:
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
        entry = ImageEntry(path, [], split if isinstance(split, str) else None, tuple(tags))
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

    def _annotation(self, place: str, one: Any, entry: ImageEntry) -> None:
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
                return self._classes[value]
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
    if kind == "polygon":
        rings = one["segmentation"]
        flat = [rings] if rings and not isinstance(rings[0], list) else rings
        outlines = [[(ring[at], ring[at + 1]) for at in range(0, len(ring), 2)] for ring in flat if _is_even(ring)]
        return Polygon(class_name, outlines, attributes=attributes)
    if kind == "mask":
        return Mask(class_name, one["segmentation"], attributes=attributes)
    if kind == "keypoints":
        values = one["keypoints"]
        points = values if values and isinstance(values[0], list) else _triples(values)
        return Keypoints(class_name, points, attributes=attributes)
    return Label(class_name, attributes=attributes)


def _kind_of(one: Mapping[str, Any]) -> str:
    if one.get("segmentation"):
        return "mask" if isinstance(one["segmentation"], dict) else "polygon"
    if one.get("keypoints"):
        return "keypoints"
    return "box" if one.get("bbox") else "label"


def _is_even(ring: Any) -> bool:
    if not isinstance(ring, list) or len(ring) % 2:
        raise BadInputError("an outline of a polygon is a list of x and y in turn")
    return True


def _triples(values: list[Any]) -> list[tuple[Any, ...]]:
    if len(values) % 3:
        raise BadInputError("keypoints are a list of x, y and visibility in turn")
    return [tuple(values[at : at + 3]) for at in range(0, len(values), 3)]


def _image_member(image_id: int, row: Mapping[str, Any]) -> dict[str, Any]:
    member = {"id": image_id, "file_name": row["path"]}
    for name in ("width", "height", "split"):
        if row[name] is not None:
            member[name] = row[name]
    return {**member, "tags": row["tags"]} if row["tags"] else member


def _annotation_member(row: Mapping[str, Any], image_id: int, classes: Mapping[str, int]) -> dict[str, Any]:
    found = annotation_of(row)
    about = {"id": row["id"], "image_id": image_id, "class_id": classes[found.class_name]}
    return about | annotation_members(found)


def read_annotations(dataset: Dataset, paths: Sequence[str]) -> dict[str, list[dict[str, Any]]]:
    """Return the annotations of several images by path, in the members of Platform Format and with their ids."""
    listed: dict[str, list[dict[str, Any]]] = {path: [] for path in paths}
    table = check_collection(dataset).table(ANNOTATIONS).raw()
    for where in quoted_lists("image", list(listed)):
        for row in table.filter(where).to_arrow().to_pylist():
            listed[row["image"]].append({"id": row["id"], **annotation_members(annotation_of(row))})
    return listed


def annotation_members(found: Annotation) -> dict[str, Any]:
    """Return the members that an annotation has without ids: class, type, geometry and attributes."""
    member: dict[str, Any] = {"class_name": found.class_name, "type": found.kind}
    match found:
        case Box():
            member["bbox"] = [found.x, found.y, found.width, found.height]
            if found.rotation is not None:
                member["rotation"] = found.rotation
        case Polygon():
            member["segmentation"] = [[value for point in ring for value in point] for ring in found.points]
        case Mask():
            member["segmentation"] = {"size": list(found.size), "counts": list(found.counts)}
        case Keypoints():
            member["keypoints"] = [value for point in found.points for value in point]
    return {**member, "attributes": dict(found.attributes)} if found.attributes else member
