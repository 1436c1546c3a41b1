"""The difference between two versions of a collection, object by object, for a review."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query

from warpdata.collections import HEAD, ObjectDiff, check_collection, diff_objects
from warpdata.server.caller import ServiceOf
from warpdata.server.routes.collections import COMPARED
from warpdata.server.routes.datasets import Readable
from warpdata.server.routes.parameters import Answer
from warpdata.server.service import Service

__all__ = ["router"]

router = APIRouter(prefix="/datasets/{workspace}/{name}", tags=["collections"])
_Change = Literal["added", "removed", "moved", "reclassed"]
_File = Literal["same", "added", "removed", "changed"]


class ObjectChangeView(Answer):
    """An object that differs, in the members of Platform Format. "moved" includes other shapes and attributes."""

    change: _Change
    before: dict[str, Any] | None
    after: dict[str, Any] | None


class ImageChangeView(Answer):
    """An image that differs, with its objects that do."""

    path: str
    file: _File
    objects: list[ObjectChangeView]


class ClassMigrationView(Answer):
    """Objects that have another class than before."""

    before: str
    after: str
    count: int


class ObjectDiffView(Answer):
    """Counts over all images, and a page of the images that differ, by path. `total` counts those of this kind."""

    older: str
    newer: str
    counts: dict[str, int]
    files: dict[str, int]
    migrations: list[ClassMigrationView]
    images: list[ImageChangeView]
    total: int


@router.get("/object-diff", summary="Compare the objects of two versions")
def get_object_diff(
    *,
    service: ServiceOf,
    dataset_id: Readable,
    older: Annotated[str, Query(alias="from"), COMPARED],
    newer: Annotated[str, Query(alias="to"), COMPARED] = HEAD,
    change: Annotated[_Change | None, Query(description="Images with such an object.")] = None,
    file: Annotated[_File | None, Query(description="Images with such a file.")] = None,
    offset: Annotated[int, Query(ge=0, le=2**53)] = 0,
    limit: Annotated[int, Query(ge=1, le=100)] = 24,
) -> ObjectDiffView:
    """List the images that differ between two versions, with objects that were added, removed, moved or re-classed.

    Objects are paired by id, and replaced ones by the overlap of their bounds, from one half.
    """
    found = _diff(service, dataset_id, older, newer)
    chosen = [
        image
        for image in found.images
        if (change is None or any(one.change == change for one in image.objects)) and file in (None, image.file)
    ]
    files = {
        kind: sum(image.file == kind for image in found.images) for kind in ("same", "added", "removed", "changed")
    }
    return ObjectDiffView(
        older=found.older,
        newer=found.newer,
        counts=dict(found.counts),
        files=files,
        migrations=[
            ClassMigrationView(before=pair[0], after=pair[1], count=count)
            for pair, count in sorted(found.migrations.items(), key=lambda one: (-one[1], one[0]))
        ],
        images=[ImageChangeView.model_validate(image) for image in chosen[offset : offset + limit]],
        total=len(chosen),
    )


def _diff(service: Service, dataset_id: str, older: str, newer: str) -> ObjectDiff:
    """Compare two versions, once for each pair."""
    pair = [service.open(dataset_id, None if ref == HEAD else ref)[1] for ref in (older, newer)]
    before, after = (check_collection(dataset) for dataset in pair)
    key = ("object-diff", dataset_id, before.version, after.version)
    found = service.statistics.get(key)
    if not isinstance(found, ObjectDiff):
        found = diff_objects(before, after)
        service.statistics.put(key, found)
    return found
