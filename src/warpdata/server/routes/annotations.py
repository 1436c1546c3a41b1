"""Annotations of images: what HEAD and versions have, and changes of HEAD for one image or many."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Query, Response
from pydantic import Field, JsonValue, StringConstraints

from warpdata.collections import HEAD, Annotation, Collection, annotation_members, parse_annotation, read_annotations
from warpdata.errors import BadInputError
from warpdata.limits import MAX_CLASS_NAME_LENGTH, MAX_NAME_LENGTH
from warpdata.primitives.hashing import sha256_hex
from warpdata.server.access import Action
from warpdata.server.caller import Caller, Once, ServiceOf
from warpdata.server.index import record_change
from warpdata.server.routes.collections import ImagePath, open_collection
from warpdata.server.routes.datasets import Readable
from warpdata.server.routes.parameters import Answer, Authorized, Body, IfMatch, RefQuery, check_match
from warpdata.server.uploads import ImageOptions, apply_labels

__all__ = ["AnnotationBody", "parse_bodies", "router"]

router = APIRouter(prefix="/datasets/{workspace}/{name}", tags=["collections"])
Labelable = Annotated[str, Depends(Authorized(Action.LABEL))]
_MAX_IMAGES = 10_000


class _AnnotationBody(Body):
    class_name: Annotated[str, Field(min_length=1, max_length=MAX_CLASS_NAME_LENGTH)]
    attributes: Annotated[dict[str, JsonValue], Field(default_factory=dict)]


class BoxBody(_AnnotationBody):
    """A rectangle: x, y, width and height in pixels. `rotation` is in degrees, clockwise."""

    type: Literal["box"]
    bbox: Annotated[list[float], Field(min_length=4, max_length=4)]
    rotation: float | None = None


class PolygonBody(_AnnotationBody):
    """Outlines, each a list of x and y in turn."""

    type: Literal["polygon"]
    segmentation: Annotated[list[list[float]], Field(min_length=1)]


class PolylineBody(_AnnotationBody):
    """Open lines, each a list of x and y in turn."""

    type: Literal["polyline"]
    segmentation: Annotated[list[list[float]], Field(min_length=1)]


class RunLengthBody(Body):
    """A COCO run-length encoding: height and width, and the runs as a list or as compressed text."""

    size: Annotated[list[int], Field(min_length=2, max_length=2)]
    counts: list[int] | str


class MaskBody(_AnnotationBody):
    """The pixels of an object."""

    type: Literal["mask"]
    segmentation: RunLengthBody


class KeypointsBody(_AnnotationBody):
    """Points: x, y and visibility in turn."""

    type: Literal["keypoints"]
    keypoints: Annotated[list[float], Field(min_length=3)]


class LabelBody(_AnnotationBody):
    """A class of the whole image."""

    type: Literal["label"]


AnnotationBody = Annotated[
    BoxBody | PolygonBody | PolylineBody | MaskBody | KeypointsBody | LabelBody, Field(discriminator="type")
]


class AnnotationsBody(Body):
    """All annotations that an image shall have, in order."""

    annotations: Annotated[list[AnnotationBody], Field(max_length=10_000)]


class AnnotationsView(Answer):
    """The annotations of an image in a version, in the members of Platform Format."""

    version: str
    image: str
    annotations: list[dict[str, Any]]


class ImageAnnotationsView(Answer):
    """The annotations of images by path, in the members of Platform Format, each with its `id`."""

    version: str
    images: dict[str, list[dict[str, Any]]]


class ImageLabelsBody(Body):
    """Annotations of one image. With `replace`, they take the place of all that it has."""

    path: Annotated[str, StringConstraints(min_length=1, max_length=1024)]
    annotations: Annotated[list[AnnotationBody], Field(max_length=10_000)]
    replace: bool = False


class LabelsBody(Body):
    """Annotations of many images, for one commit. The same `key` is committed once, also after a day."""

    images: Annotated[list[ImageLabelsBody], Field(min_length=1, max_length=_MAX_IMAGES)]
    key: Annotated[str, StringConstraints(pattern=r"^[^\x00-\x1f]+$", max_length=MAX_NAME_LENGTH)] | None = None


class LabelsView(Answer):
    """The version that has the annotations."""

    version: str
    images: int


@router.get("/annotations", summary="List the annotations of an image")
def list_annotations(
    service: ServiceOf,
    dataset_id: Readable,
    image: Annotated[str, Query(min_length=1, max_length=1024)],
    response: Response,
    ref: RefQuery = None,
) -> AnnotationsView:
    """List the annotations of an image of HEAD or a version, in the order in which they were added.

    Their ETag is for the `If-Match` of a change.
    """
    dataset = open_collection(service, dataset_id).dataset(ref or HEAD)
    view = _annotations_view(Collection(service.session, dataset_id), image, dataset.version)
    response.headers["ETag"] = annotations_etag(view.annotations)
    return view


@router.get("/image-annotations", summary="List the annotations of several images")
def list_image_annotations(
    service: ServiceOf,
    dataset_id: Readable,
    images: Annotated[list[Annotated[str, Query(max_length=1024)]], Query(alias="image", min_length=1, max_length=100)],
    ref: RefQuery = None,
) -> ImageAnnotationsView:
    """List the annotations of several images of HEAD or a version. Repeat `image` for each."""
    _, dataset = service.open(dataset_id, ref)
    return ImageAnnotationsView(version=dataset.version, images=read_annotations(dataset, images))


@router.put("/annotations/{path:path}", summary="Replace the annotations of an image")
def put_annotations(
    *,
    service: ServiceOf,
    caller: Caller,
    dataset_id: Labelable,
    path: ImagePath,
    body: AnnotationsBody,
    response: Response,
    if_match: IfMatch = None,
) -> AnnotationsView:
    """Give an image of HEAD these annotations instead of all it has, in one commit. Versions do not change.

    With `If-Match`, other annotations than those of the ETag are a conflict, and nothing is changed.
    """
    parsed = parse_bodies(body.annotations)
    collection = open_collection(service, dataset_id, caller.name)
    if if_match is not None:
        present = annotations_etag([annotation_members(one) for one in collection.annotations(path)])
        check_match(if_match, present, f"the annotations of {path!r}")
    version = collection.annotate(path, parsed, replace=True)
    record_change(service, caller, dataset_id, "annotate", {"path": path, "version": version})
    view = _annotations_view(collection, path, version)
    response.headers["ETag"] = annotations_etag(view.annotations)
    return view


@router.post("/annotations", summary="Annotate images", response_model=LabelsView)
def post_annotations(
    service: ServiceOf, caller: Caller, dataset_id: Labelable, body: LabelsBody, once: Once
) -> Response:
    """Add annotations to many images of HEAD, or replace those they have, in one commit."""
    images = {
        one.path: ImageOptions(annotations=parse_bodies(one.annotations), replace=one.replace) for one in body.images
    }
    if len(images) < len(body.images):
        raise BadInputError("an image is listed twice", hint="Put its annotations into one entry.")

    def work() -> LabelsView:
        open_collection(service, dataset_id)
        key = None if body.key is None else f"labels-{caller.user_id}-{body.key}"
        version = apply_labels(service, dataset_id, caller.name, images, key)
        record_change(service, caller, dataset_id, "annotate", {"images": len(images), "version": version})
        return LabelsView(version=version, images=len(images))

    return once.answer(work, status=200)


def parse_bodies(bodies: Sequence[AnnotationBody]) -> list[Annotation]:
    """Return the annotations of a request; `BadInputError` for geometry that is none."""
    return [parse_annotation(one.model_dump(), one.class_name) for one in bodies]


def annotations_etag(annotations: list[dict[str, Any]]) -> str:
    """Return the ETag of the annotations of an image: the hash of their JSON, with sorted keys."""
    return f'"{sha256_hex(json.dumps(annotations, sort_keys=True).encode())}"'


def _annotations_view(collection: Collection, image: str, version: str) -> AnnotationsView:
    found = [annotation_members(one) for one in collection.annotations(image, version)]
    return AnnotationsView(version=version, image=image, annotations=found)
