"""Collections: versions with states, differences, class statistics, annotations, and documents in Platform Format.

The routes are thin: `warpdata.collections` does the work, and answers the same as without a service.
"""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Path, Query, Response
from pydantic import Field, JsonValue

from warpdata.collections import (
    HEAD,
    Collection,
    CollectionVersion,
    VersionState,
    annotation_members,
    check_collection,
    create_collection,
    parse_annotation,
    read_annotations,
)
from warpdata.limits import MAX_CLASS_NAME_LENGTH, MAX_REF_LENGTH
from warpdata.primitives.hashing import sha256_hex
from warpdata.server.access import Action
from warpdata.server.caller import Caller, Once, ServiceOf
from warpdata.server.index import record_change
from warpdata.server.routes.datasets import Readable
from warpdata.server.routes.parameters import (
    Answer,
    Authorized,
    Body,
    IfMatch,
    RefName,
    RefQuery,
    check_match,
    page_behind,
)
from warpdata.server.routes.refs import RefPath, Writable
from warpdata.server.service import Service

__all__ = ["COMPARED", "ImagePath", "StateView", "open_collection", "router"]

router = APIRouter(prefix="/datasets/{workspace}/{name}", tags=["collections"])
Labelable = Annotated[str, Depends(Authorized(Action.LABEL))]
ImagePath = Annotated[str, Path(min_length=1, max_length=1024, description="The path of the image.")]
_MISSING = 1000
COMPARED = Query(pattern=r"^[A-Za-z0-9][A-Za-z0-9._~@:+-]*$", max_length=MAX_REF_LENGTH)


class NewCollectionBody(Body):
    """A collection without images. `packed` stores images in tar shards, for many small files."""

    packed: bool = False


class CollectionView(Answer):
    """A collection and the version of its HEAD."""

    id: str
    version: str


class NewVersionBody(Body):
    """The name of a new version."""

    name: RefName


class StateView(Answer):
    """The state of HEAD (unlabeled or labeled) or of a version (valid, broken or repaired_by).

    At most 1,000 missing images are listed; `missing_count` is complete.
    """

    version: str
    status: str
    state: str
    missing_images: list[str]
    missing_count: int
    repaired_by: str | None


class CollectionVersionView(Answer):
    """A version with a name. `snapshot_type` is "manual" or "training"; its state route lists missing images."""

    name: str
    version: str
    time: str
    snapshot_type: str
    status: str
    missing_count: int
    repaired_by: str | None


class CollectionVersionList(Answer):
    """Versions and training snapshots, oldest first."""

    versions: list[CollectionVersionView]
    next_cursor: str | None


class ComparisonView(Answer):
    """The difference between two versions. Pairs are before and after; lists end after 1,000 paths."""

    older: str
    newer: str
    images: tuple[int, int]
    annotations: tuple[int, int]
    added_files: int
    removed_files: int
    changed_files: int
    added_annotations: int
    removed_annotations: int
    changed_annotations: int
    classes: dict[str, tuple[int, int]]
    added: list[str]
    removed: list[str]
    changed: list[str]


class ClassView(Answer):
    """One class: its annotations by kind, and the images that have any of them, by split."""

    class_name: str
    annotations: int
    images: int
    by_kind: dict[str, int]
    images_by_split: dict[str, int]


class CollectionStatisticsView(Answer):
    """Counts of a version. `stored_bytes` counts equal files once, `logical_bytes` each time."""

    version: str
    images: int
    annotations: int
    labeled_images: int
    logical_bytes: int
    stored_bytes: int
    splits: dict[str, int]
    classes: list[ClassView]


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


AnnotationBody = Annotated[BoxBody | PolygonBody | MaskBody | KeypointsBody | LabelBody, Field(discriminator="type")]


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


@router.post("/collection", summary="Create a collection", status_code=201, response_model=CollectionView)
def create_empty_collection(
    service: ServiceOf, caller: Caller, dataset_id: Writable, body: NewCollectionBody, once: Once
) -> Response:
    """Create a collection without images. Uploads to its artifact `images` add images to HEAD."""

    def work() -> CollectionView:
        made = create_collection(dataset_id, packed=body.packed, store=service.session_of(caller.name))
        version = made.head.version
        record_change(service, caller, dataset_id, "create-collection", {"version": version})
        return CollectionView(id=dataset_id, version=version)

    return once.answer(work)


@router.get("/versions", summary="List versions")
def list_versions(
    service: ServiceOf,
    dataset_id: Readable,
    cursor: Annotated[str | None, Query(max_length=MAX_REF_LENGTH, description="The `next_cursor` before.")] = None,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
) -> CollectionVersionList:
    """List the versions and training snapshots of a collection with their states, oldest first."""
    found = open_collection(service, dataset_id).versions()
    page, following = page_behind([(one.name, one) for one in found], cursor, limit)
    return CollectionVersionList(versions=[_version_view(one) for one in page], next_cursor=following)


@router.post("/versions", summary="Create a version", status_code=201, response_model=CollectionVersionView)
def create_version(
    service: ServiceOf, caller: Caller, dataset_id: Writable, body: NewVersionBody, once: Once
) -> Response:
    """Name the present HEAD. Nothing is copied, and the version never changes."""

    def work() -> CollectionVersionView:
        made = open_collection(service, dataset_id, caller.name).create_version(body.name)
        detail = {"name": made.name, "version": made.version}
        record_change(service, caller, dataset_id, "create-version", detail)
        return _version_view(made)

    return once.answer(work)


@router.get("/versions/{version_name}/state", summary="Show the state of a version")
def get_version_state(service: ServiceOf, dataset_id: Readable, version_name: RefPath) -> StateView:
    """Show whether a version is complete, what it has lost, and which version replaces it. `HEAD` is a name too."""
    return _state_view(open_collection(service, dataset_id).state(version_name))


@router.get("/compare", summary="Compare two versions of a collection")
def compare_versions(
    service: ServiceOf,
    dataset_id: Readable,
    older: Annotated[str, Query(alias="from"), COMPARED],
    newer: Annotated[str, Query(alias="to"), COMPARED] = HEAD,
) -> ComparisonView:
    """Compare two versions: images by path and hash, annotations by id, and counts by class."""
    return ComparisonView.model_validate(open_collection(service, dataset_id).compare(older, newer))


@router.get("/collection-stats", summary="Count images and classes")
def get_collection_statistics(
    service: ServiceOf, dataset_id: Readable, ref: RefQuery = None
) -> CollectionStatisticsView:
    """Count the images, annotations, classes and splits of HEAD or a version."""
    return CollectionStatisticsView.model_validate(open_collection(service, dataset_id).statistics(ref or HEAD))


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
    parsed = [parse_annotation(one.model_dump(), one.class_name) for one in body.annotations]
    collection = open_collection(service, dataset_id, caller.name)
    if if_match is not None:
        present = annotations_etag([annotation_members(one) for one in collection.annotations(path)])
        check_match(if_match, present, f"the annotations of {path!r}")
    version = collection.annotate(path, parsed, replace=True)
    record_change(service, caller, dataset_id, "annotate", {"path": path, "version": version})
    view = _annotations_view(collection, path, version)
    response.headers["ETag"] = annotations_etag(view.annotations)
    return view


@router.get("/platform-format/{document}", summary="Read a document in Platform Format")
def get_platform_document(
    service: ServiceOf,
    dataset_id: Readable,
    document: Literal["meta.json", "annotations.json"],
    ref: RefQuery = None,
) -> dict[str, Any]:
    """Read `meta.json` or `annotations.json` of HEAD or a version. It is made on request."""
    collection = open_collection(service, dataset_id)
    make = collection.meta_document if document == "meta.json" else collection.annotations_document
    return make(ref or HEAD)


def annotations_etag(annotations: list[dict[str, Any]]) -> str:
    """Return the ETag of the annotations of an image: the hash of their JSON, with sorted keys."""
    return f'"{sha256_hex(json.dumps(annotations, sort_keys=True).encode())}"'


def open_collection(service: Service, dataset_id: str, author: str | None = None) -> Collection:
    """Open a collection, for changes by an author. Callers have checked that the user may read it.

    Raise `DatasetNotFoundError` if there is no dataset, and `BadInputError` if it is not a collection.
    """
    check_collection(service.open(dataset_id, None)[1])
    return Collection(service.session if author is None else service.session_of(author), dataset_id)


def _version_view(found: CollectionVersion) -> CollectionVersionView:
    state = found.state
    return CollectionVersionView(
        name=found.name,
        version=found.version,
        time=found.time,
        snapshot_type=found.snapshot_type,
        status=state.status,
        missing_count=state.missing_count,
        repaired_by=state.repaired_by,
    )


def _state_view(found: VersionState) -> StateView:
    view = StateView.model_validate(found)
    return view.model_copy(update={"missing_images": view.missing_images[:_MISSING]})


def _annotations_view(collection: Collection, image: str, version: str) -> AnnotationsView:
    found = [annotation_members(one) for one in collection.annotations(image, version)]
    return AnnotationsView(version=version, image=image, annotations=found)
