"""Objects of the store by key, for clients that read datasets as from a store: pointers, manifests and blobs.

The client checks what it gets: keys of blobs, manifests and commits are hashes, and other records have checksums.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC
from email.utils import format_datetime
from typing import Annotated, Any

from fastapi import APIRouter, Header, Path, Query, Request, Response
from fastapi.responses import StreamingResponse

from warpdata.limits import MAX_KEY_LENGTH, MIB
from warpdata.server.byte_ranges import is_one_range, parse_range
from warpdata.server.caller import Caller, ServiceOf
from warpdata.server.objects import authorize_read, digest_of, list_folders, no_object
from warpdata.server.objects import list_objects as list_readable
from warpdata.server.routes.parameters import Answer
from warpdata.server.service import Service
from warpdata.storage import ByteRange, ObjectInfo, Reader

__all__ = ["BYTES", "ObjectKey", "router", "send_object"]

router = APIRouter(prefix="/objects", tags=["objects"])
_PART_BYTES = 4 * MIB
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
    reader = service.session.writer
    info = reader.stat(key)
    etag = _etag(info)
    headers = {
        "ETag": etag,
        "Cache-Control": "private, max-age=31536000, immutable" if digest_of(key) else "private, no-cache",
        "Content-Security-Policy": "sandbox; default-src 'none'",
        "Content-Disposition": "attachment",
    }
    if info.modified is not None:
        headers["Last-Modified"] = format_datetime(info.modified.astimezone(UTC), usegmt=True)
    if if_none_match is not None and etag in if_none_match:
        return Response(status_code=304, headers=headers)
    return send_object(service, request.method, key, info.size_bytes, wanted, headers)


def send_object(
    service: Service, method: str, key: str, size_bytes: int, wanted: str | None, headers: Mapping[str, str]
) -> Response:
    """Answer with a stored object, or with one range of it. `headers` say what it is."""
    reader, kind, sent = service.session.writer, "application/octet-stream", {"Accept-Ranges": "bytes", **headers}
    span = parse_range(wanted, size_bytes)
    if span is None:
        return Response(status_code=416, headers={**sent, "Content-Range": f"bytes */{size_bytes}"})
    is_part = is_one_range(wanted) and bool(span)
    if is_part:
        sent["Content-Range"] = f"bytes {span.start}-{span.stop - 1}/{size_bytes}"
    sent["Content-Length"] = str(len(span))
    status = 206 if is_part else 200
    if method == "HEAD" or not span:
        return Response(b"", status, sent, kind)
    if len(span) <= _PART_BYTES:
        return Response(bytes(reader.read_range(key, ByteRange(span.start, span.stop))), status, sent, kind)
    return StreamingResponse(_parts(reader, key, span), status, sent, kind)


def _parts(reader: Reader, key: str, span: range) -> Iterator[memoryview]:
    for start in range(span.start, span.stop, _PART_BYTES):
        yield reader.read_range(key, ByteRange(start, min(start + _PART_BYTES, span.stop)))


def _etag(info: ObjectInfo) -> str:
    tag = digest_of(info.key) or (info.etag or "").removeprefix("W/").strip('"')
    if not tag:
        raise no_object(info.key)
    return f'"{tag}"'


def _view(info: ObjectInfo) -> ObjectView:
    modified = None if info.modified is None else info.modified.astimezone(UTC).isoformat()
    return ObjectView(key=info.key, size_bytes=info.size_bytes, etag=_etag(info), modified=modified)
