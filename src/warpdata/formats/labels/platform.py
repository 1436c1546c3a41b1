"""Platform Format 0.9, 1.0 and 1.1: `annotations.json` beside a directory of images, written.

0.9 has annotations inside of images; 1.0 has them in a list of their own; 1.1 adds lines, details of classes and hashes
of images. Implements "Platform Format" of docs/specs/collections.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from warpdata.errors import BadInputError
from warpdata.formats.labels.annotations import Annotation, Box, Keypoints, Mask, Polygon, Polyline
from warpdata.formats.labels.conservation import Conservation
from warpdata.formats.labels.files import ImagePlace, LabelFile, OutputFile
from warpdata.formats.labels.model import FACTS, LabelClass, LabeledImage, LabelSet

__all__ = ["PLATFORM_VERSIONS", "annotation_members", "write_platform"]

PLATFORM_VERSIONS = ("0.9", "1.0", "1.1")
_encode = msgspec.json.encode


def write_platform(labels: LabelSet, account: Conservation, version: str = "1.1") -> Iterator[OutputFile]:
    """Yield `annotations.json`, and the places of images below `images/`."""
    if version not in PLATFORM_VERSIONS:
        raise BadInputError(
            f"Platform Format {version!r} is not known", hint=f"The versions are {', '.join(PLATFORM_VERSIONS)}."
        )
    paths: list[str] = []
    yield LabelFile("annotations.json", _pieces(labels, account, version, paths))
    yield from (ImagePlace(f"images/{path}", path) for path in paths)


def _pieces(labels: LabelSet, account: Conservation, version: str, paths: list[str]) -> Iterator[bytes]:
    numbers = {name: number for number, name in enumerate(labels.class_names)}
    head = {"format_version": version, "dataset_id": labels.name, "dataset_name": labels.name}
    classes = [_class_member(one, numbers[one.name], version) for one in labels.classes]
    yield _encode(head | {"classes": classes})[:-1] + b',"annotations":['
    images: list[bytes] = []
    count = 0
    for image in labels.images:
        held = _held(image, account, version)
        objects = [{"class_id": numbers[one.class_name], **annotation_members(one)} for one in held.annotations]
        member = _image_member(held, len(paths), version)
        if version == "0.9":
            member["annotation"] = objects
        elif objects:
            listed = [{"id": count + at, "image_id": len(paths), **one} for at, one in enumerate(objects)]
            yield (b"," if count else b"") + _encode(listed)[1:-1]
            count += len(objects)
        images.append(_encode(member))
        paths.append(image.path)
    yield b'],"images":[' + b",\n".join(images) + b"]}\n"


def _held(image: LabeledImage, account: Conservation, version: str) -> LabeledImage:
    kept: list[Annotation] = []
    for one in image.annotations:
        if isinstance(one, Polyline) and version != "1.1":
            account.hold(one, None, f"Platform Format {version} has no {FACTS[one.kind]}", image.path)
        else:
            kept.append(one)
    held = LabeledImage(image.path, kept, image.width, image.height, image.split, image.tags, image.hash)
    account.take_image(image)
    account.give_image(held)
    return held


def _class_member(one: LabelClass, number: int, version: str) -> dict[str, Any]:
    member: dict[str, Any] = {"id": number, "name": one.name}
    if version == "1.1" and one.keypoints:
        member |= {"keypoints": list(one.keypoints), "skeleton": [list(pair) for pair in one.skeleton]}
    if version == "1.1" and one.supercategory is not None:
        member["supercategory"] = one.supercategory
    return member


def _image_member(image: LabeledImage, number: int, version: str) -> dict[str, Any]:
    member: dict[str, Any] = {"id": number, "file_name": image.path}
    given = {"width": image.width, "height": image.height, "split": image.split, "tags": list(image.tags) or None}
    member |= {name: value for name, value in given.items() if value is not None}
    return member | ({"hash": f"sha256:{image.hash}"} if version == "1.1" and image.hash else {})


def annotation_members(found: Annotation) -> dict[str, Any]:
    """Return the members that an annotation has without ids: class, type, geometry and attributes."""
    member: dict[str, Any] = {"class_name": found.class_name, "type": found.kind}
    match found:
        case Box():
            member["bbox"] = [found.x, found.y, found.width, found.height]
            if found.rotation is not None:
                member["rotation"] = found.rotation
        case Polygon() | Polyline():
            member["segmentation"] = [[value for point in ring for value in point] for ring in found.points]
        case Mask():
            member["segmentation"] = {"size": list(found.size), "counts": list(found.counts)}
        case Keypoints():
            member["keypoints"] = [value for point in found.points for value in point]
    return {**member, "attributes": dict(found.attributes)} if found.attributes else member
