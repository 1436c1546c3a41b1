"""Bytes of files: one member of an artifact, by range, under its own name or by a signed URL.

A file is looked up in the index of its artifact, so no path leaves the version. User bytes never run in the origin of
the service: browsers get them sandboxed, and what could run is a download.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, BinaryIO, Literal

from fastapi import APIRouter, Header, Path, Query, Request, Response
from fastapi.responses import StreamingResponse

from warpdata.limits import MAX_SIGNED_URL_S, MEMBER_CHUNK_BYTES
from warpdata.server.access import Action, FileGrant, authorize, sign_file, verify_file
from warpdata.server.caller import Caller, ServiceOf
from warpdata.server.routes.datasets import Readable
from warpdata.server.routes.parameters import Answer, EntryName, RefQuery, dataset_place
from warpdata.server.service import is_pinned
from warpdata.server.stored_files import (
    FOREVER,
    REVALIDATED,
    SIGNED,
    FileRequest,
    StoredFile,
    file_head,
    find_file,
    safe_name,
)

__all__ = ["IfNoneMatch", "MemberPath", "router"]

router = APIRouter(tags=["files"])
MemberPath = Annotated[str, Path(max_length=4096, description="The path of the file in its artifact.")]
RangeHeader = Annotated[str | None, Header(alias="Range", description="One range of bytes; several are ignored.")]
IfNoneMatch = Annotated[str | None, Header(max_length=1024)]
_BYTES: dict[int | str, dict[str, Any]] = {
    200: {"description": "The whole file.", "content": {"*/*": {}}},
    206: {"description": "A range of the file.", "content": {"*/*": {}}},
    304: {"description": "The file has the ETag of `If-None-Match`."},
    416: {"description": "The range begins behind the end of the file."},
}
_PATH = "/datasets/{workspace}/{name}/images/{path:path}"


class FileUrl(Answer):
    """A URL that reads one file until it expires. `sha256` is known for files that are stored one by one."""

    url: str
    method: Literal["GET"] = "GET"
    expires_in: int
    expires_at: str
    sha256: str | None
    size_bytes: int
    version: str


class FileView(Answer):
    """A file of an artifact."""

    path: str
    size_bytes: int


class FileList(Answer):
    """Files of an artifact, by path."""

    version: str
    artifact: str
    files: list[FileView]
    next_cursor: str | None


@router.get(_PATH + "/url", summary="Make a URL for a file", operation_id="get_file_url")
def get_file_url(
    *,
    request: Request,
    service: ServiceOf,
    caller: Caller,
    dataset_id: Readable,
    path: MemberPath,
    ref: RefQuery = None,
    artifact: EntryName = None,
    expires_in: Annotated[int, Query(ge=60, le=MAX_SIGNED_URL_S)] = 3600,
    via: Annotated[Literal["service", "store"], Query(description="Who serves the bytes.")] = "service",
) -> FileUrl:
    """Make a URL that reads one file without signing in, for scripts and labelling tools.

    The URL is of this version, also if the branch moves. It ends early with the token that made it, and when its user
    may not read the dataset any more. `via=store` gives a URL of the store itself, where that can sign.
    """
    found, dataset = service.open(dataset_id, ref)
    file = find_file(dataset, artifact, path)
    expires = service.later(expires_in)
    if via == "store":
        url = file.artifact.signed_url(file.path, expires_in)
    else:
        grant = FileGrant(
            dataset_id, found.version, file.artifact.name, file.path, caller.user_id, caller.token_id, expires
        )
        base = (service.options.public_url or str(request.base_url)).rstrip("/")
        url = f"{base}/api/v1/files/{sign_file(service, grant)}/{safe_name(path)}"
    return FileUrl(
        url=url,
        expires_in=expires_in,
        expires_at=expires,
        sha256=file.sha256,
        size_bytes=file.size_bytes,
        version=found.version,
    )


@router.head(_PATH, summary="Show the size of a file", responses=_BYTES, operation_id="head_file")
@router.get(_PATH, summary="Read a file", responses=_BYTES, response_class=Response, operation_id="get_file")
def get_file(
    *,
    request: Request,
    service: ServiceOf,
    dataset_id: Readable,
    path: MemberPath,
    ref: RefQuery = None,
    artifact: EntryName = None,
    wanted: RangeHeader = None,
    if_none_match: IfNoneMatch = None,
) -> Response:
    """Read a file, or a range of it. Answers by version are cached for ever, those by branch are checked each time."""
    _, dataset = service.open(dataset_id, ref)
    caching = FOREVER if is_pinned(ref) else REVALIDATED
    return _answer(find_file(dataset, artifact, path), FileRequest(request.method, wanted, if_none_match, caching))


@router.head("/files/{signed}/{filename}", responses=_BYTES, operation_id="head_signed_file", include_in_schema=False)
@router.get(
    "/files/{signed}/{filename}",
    summary="Read a file by its signed URL",
    responses=_BYTES,
    response_class=Response,
    operation_id="get_signed_file",
    openapi_extra={"security": []},
)
def get_signed_file(
    *,
    request: Request,
    service: ServiceOf,
    signed: Annotated[str, Path(max_length=8192)],
    filename: Annotated[str, Path(max_length=256)],  # noqa: ARG001 - names the download, and grants nothing
    wanted: RangeHeader = None,
    if_none_match: IfNoneMatch = None,
) -> Response:
    """Read the file that a signed URL grants. Any web page may use the URL; cookies are not looked at."""
    grant, principal = verify_file(service, signed)
    authorize(principal, Action.READ, dataset_place(grant.dataset_id))
    _, dataset = service.open(grant.dataset_id, grant.version)
    file = find_file(dataset, grant.artifact, grant.path)
    return _answer(file, FileRequest(request.method, wanted, if_none_match, SIGNED, is_cross_origin=True))


@router.get("/datasets/{workspace}/{name}/files", summary="List files")
def list_files(
    *,
    service: ServiceOf,
    dataset_id: Readable,
    ref: RefQuery = None,
    artifact: EntryName = None,
    prefix: Annotated[str, Query(max_length=4096)] = "",
    after: Annotated[str, Query(max_length=4096, description="The `next_cursor` of the page before.")] = "",
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
) -> FileList:
    """List the files of an artifact by path. Send the `version` of the first page as `ref` for the next ones."""
    _, dataset = service.open(dataset_id, ref)
    opened = dataset.artifact(artifact)
    listed: list[FileView] = []
    for member in opened.members(prefix, after):
        if member.path > after:
            listed.append(FileView(path=member.path, size_bytes=member.size_bytes))
        if len(listed) > limit:
            break
    following = listed[limit - 1].path if len(listed) > limit else None
    return FileList(version=dataset.version, artifact=opened.name, files=listed[:limit], next_cursor=following)


def _answer(file: StoredFile, request: FileRequest) -> Response:
    head = file_head(file, request)
    if head.span is None:
        return Response(status_code=head.status, headers=head.headers)
    if file.size_bytes <= MEMBER_CHUNK_BYTES:
        body = file.artifact.read(file.path)
        return Response(body[head.span.start : head.span.stop], head.status, head.headers)
    return StreamingResponse(_chunks(file.artifact.open(file.path), head.span), head.status, head.headers)


def _chunks(opened: BinaryIO, span: range) -> Iterator[bytes]:
    """Yield the bytes of a range. Each chunk of the store is verified before a part of it is sent."""
    with opened:
        opened.seek(span.start)
        left = len(span)
        while left > 0:
            data = opened.read(min(left, MEMBER_CHUNK_BYTES))
            left -= len(data)
            yield data
