"""Objects of the store by key, for clients that read datasets as from a store: pointers, manifests and blobs.

The client checks what it gets: keys of blobs, manifests and commits are hashes, and other records have checksums.
"""

from __future__ import annotations

from datetime import UTC
from typing import Annotated, Any

from fastapi import APIRouter, Header, Path, Query, Request, Response

from warpdata.limits import MAX_KEY_LENGTH
from warpdata.server.caller import Caller, ServiceOf
from warpdata.server.objects import authorize_read, list_folders
from warpdata.server.objects import list_objects as list_readable
from warpdata.server.routes.parameters import Answer
from warpdata.server.stored_objects import ObjectRequest, describe_object, etag_of, send_object
from warpdata.storage import ObjectInfo

__all__ = ["BYTES", "ObjectKey", "router"]

router = APIRouter(prefix="/objects", tags=["objects"])
_KEY = r"^[^\x00-\x1f\x7f\\]+$"
ObjectKey = Annotated[str, Path(min_length=1, max_length=MAX_KEY_LENGTH, pattern=_KEY, description="A store key.")]
BYTES: dict[int | str, dict[str, Any]] = {
    200: {"description": "The whole object.", "content": {"application/octet-stream": {}}},
    206: {"description": "A range of the object.", "content": {"application/octet-stream": {}}},
    304: {"description": "The object has the ETag of `If-None-Match`."},
    416: {"description": "The range begins behind the end of the object."},
}


class ObjectView(Answer):
    """An object in a listing."""

    key: str
    size_bytes: int
    etag: str | None
    modified: str | None


class ObjectList(Answer):
    """Objects by key, or with `folders` the names of directories."""

    objects: list[ObjectView]
    folders: list[str]
    next_cursor: str | None


@router.get("", summary="List objects of a dataset")
def list_objects(
    *,
    service: ServiceOf,
    caller: Caller,
    prefix: Annotated[str, Query(max_length=MAX_KEY_LENGTH, pattern=r"^[^\x00-\x1f\x7f\\]*$")],
    folders: Annotated[bool, Query(description="List the directories one level below instead.")] = False,
    after: Annotated[str, Query(max_length=MAX_KEY_LENGTH, description="The `next_cursor` of the page before.")] = "",
    limit: Annotated[int, Query(ge=1, le=10_000)] = 10_000,
) -> ObjectList:
    """List the objects below `prefix/`, by key. The prefix is that of a dataset, `datasets/WORKSPACE` or `datasets`.

    Datasets that the caller may not read are left out, and so is everything else in the store.
    """
    prefix = prefix.strip("/")
    if folders:
        return ObjectList(objects=[], folders=list_folders(service, caller, prefix), next_cursor=None)
    found: list[ObjectInfo] = []
    for info in list_readable(service, caller, prefix):
        if info.key > after:
            found.append(info)
        if len(found) > limit:
            break
    following = found[limit - 1].key if len(found) > limit else None
    return ObjectList(objects=[_view(info) for info in found[:limit]], folders=[], next_cursor=following)


@router.head("/{key:path}", summary="Show the size of an object", responses=BYTES, operation_id="head_object")
@router.get(
    "/{key:path}", summary="Read an object", responses=BYTES, response_class=Response, operation_id="get_object"
)
def get_object(
    *,
    request: Request,
    service: ServiceOf,
    caller: Caller,
    key: ObjectKey,
    wanted: Annotated[str | None, Header(alias="Range", description="One range of bytes.")] = None,
    if_none_match: Annotated[str | None, Header(max_length=1024)] = None,
) -> Response:
    """Read an object, or a range of it. A blob is an object of each dataset that has a version with it."""
    authorize_read(service, caller, key)
    info = service.session.writer.stat(key)
    wanted_object = ObjectRequest(request.method, key, wanted, if_none_match)
    return send_object(service.session.writer, wanted_object, info.size_bytes, describe_object(info))


def _view(info: ObjectInfo) -> ObjectView:
    modified = None if info.modified is None else info.modified.astimezone(UTC).isoformat()
    return ObjectView(key=info.key, size_bytes=info.size_bytes, etag=etag_of(info), modified=modified)
