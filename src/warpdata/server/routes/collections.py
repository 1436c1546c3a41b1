"""Collections: versions with states, differences, class statistics, annotations, and documents in Platform Format.

The routes are thin: `warpdata.collections` does the work, and answers the same as without a service.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Path, Query, Response
from pydantic import Field

from warpdata.collections import (
    HEAD,
    Collection,
    CollectionVersion,
    VersionState,
    check_collection,
    create_collection,
)
from warpdata.limits import MAX_REF_LENGTH
from warpdata.server.caller import Caller, Once, ServiceOf
from warpdata.server.index import record_change
from warpdata.server.routes.datasets import Readable
from warpdata.server.routes.parameters import (
    Answer,
    Body,
    RefName,
    RefQuery,
    page_behind,
)
from warpdata.server.routes.refs import RefPath, Writable
from warpdata.server.service import Service

__all__ = ["COMPARED", "ImagePath", "StateView", "open_collection", "router"]

router = APIRouter(prefix="/datasets/{workspace}/{name}", tags=["collections"])
ImagePath = Annotated[str, Path(min_length=1, max_length=1024, description="The path of the image.")]
_MISSING = 1000


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


class RestoredView(Answer):
    """The new HEAD. `previous` was HEAD before; `changed` is false if it had this version already."""

    branch: str
    version: str
    commit: str
    previous: str | None
    changed: bool


class ComparisonView(Answer):
    """The difference between two versions. Pairs are before and after; lists end after 1,000 paths."""

    older: str
    newer: str
    images: Pair
    annotations: Pair
    added_files: int
    removed_files: int
    changed_files: int
    added_annotations: int
    removed_annotations: int
    changed_annotations: int
    classes: dict[str, Pair]
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


Pair = Annotated[list[int], Field(min_length=2, max_length=2)]
COMPARED = Query(pattern=r"^[A-Za-z0-9][A-Za-z0-9._~@:+-]*$", max_length=MAX_REF_LENGTH)


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


@router.post("/versions/{version_name}/restore", summary="Make a version HEAD again", response_model=RestoredView)
def restore_version(
    *, service: ServiceOf, caller: Caller, dataset_id: Writable, version_name: RefPath, once: Once
) -> Response:
    """Make a version HEAD again, as a new commit. A version that has lost files is refused with `version_broken`."""

    def work() -> RestoredView:
        done = open_collection(service, dataset_id, caller.name).restore(version_name)
        detail = {"name": version_name, "version": done.version, "previous": done.previous}
        record_change(service, caller, dataset_id, "restore", detail)
        return RestoredView.model_validate(done)

    return once.answer(work, status=200)


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


@router.get("/snapshots/{snapshot_id}.json", summary="Read the document of a version")
def get_snapshot_document(service: ServiceOf, dataset_id: Readable, snapshot_id: RefPath) -> dict[str, Any]:
    """Read what `ANNOTATIONS_PATH` of a training job names: annotations, checksums and counts of its version."""
    return open_collection(service, dataset_id).snapshot_document(snapshot_id)


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
