"""Uploads: send files one by one, in archives or in parts, compare the receipts, and commit them together."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Header, Path, Request, Response
from pydantic import Field, StringConstraints
from starlette.concurrency import run_in_threadpool

from warpdata.limits import MAX_NAME_LENGTH, MAX_UPLOAD_FILES
from warpdata.server.access import Action, AuditEntry, record
from warpdata.server.caller import Caller, Once, ServiceOf
from warpdata.server.routes.annotations import AnnotationBody, parse_bodies
from warpdata.server.routes.parameters import Answer, Authorized, Body, Sentence, dataset_place
from warpdata.server.uploads import (
    ImageOptions,
    NewUpload,
    UploadPlan,
    begin_upload,
    commit_upload,
    find_upload,
    list_files,
    receive_archive,
    receive_file,
)

__all__ = ["ReceiptView", "UploadId", "Writable", "router"]

router = APIRouter(prefix="/datasets/{workspace}/{name}/uploads", tags=["uploads"])
Writable = Annotated[str, Depends(Authorized(Action.WRITE))]
UploadId = Annotated[str, Path(pattern=r"^[0-9a-f]{32}$")]
_ImagePath = Annotated[str, StringConstraints(min_length=1, max_length=1024)]
_Tag = Annotated[str, StringConstraints(max_length=MAX_NAME_LENGTH)]


class NewUploadBody(Body):
    """The artifact that gets the files. The same `key` of a user leads to the same upload.

    With `only_images`, a file that is no image, or too large a one, is refused when it arrives, with the reason.
    """

    artifact: Annotated[str, StringConstraints(pattern=r"^[a-z0-9_-]+$", max_length=MAX_NAME_LENGTH)] = "images"
    key: Annotated[str, StringConstraints(pattern=r"^[^\x00-\x1f]+$", max_length=1024)] | None = None
    only_images: bool = False


class ReceiptView(Answer):
    """A file whose bytes are stored."""

    path: str
    sha256: str
    size_bytes: int


class ReceiptList(Answer):
    """The files of an archive."""

    files: list[ReceiptView]


class UploadView(Answer):
    """An upload with the receipts of its files. `version` is there once it was committed."""

    id: str
    artifact: str
    created: str
    version: str | None
    files: list[ReceiptView]


class ImageChangeBody(Body):
    """What is said about an image: one of the upload, or one that HEAD has.

    `replace` lets a file of the upload take the place of the file with its path; of another image, it replaces the
    annotations.
    """

    path: _ImagePath
    split: _Tag | None = None
    tags: Annotated[list[_Tag], Field(max_length=1000)] | None = None
    annotations: Annotated[list[AnnotationBody], Field(max_length=10_000)] = Field(default_factory=list)
    replace: bool = False


class CommitBody(Body):
    """What the commit is for, and for a collection also what it says about images, and images to remove from HEAD."""

    message: Sentence = ""
    images: Annotated[list[ImageChangeBody], Field(max_length=2 * MAX_UPLOAD_FILES)] = Field(default_factory=list)
    remove: Annotated[list[_ImagePath], Field(max_length=2 * MAX_UPLOAD_FILES)] = Field(default_factory=list)


def bytes_body(media_type: str) -> dict[str, Any]:
    """Return the description of a body of bytes."""
    return {"requestBody": {"required": True, "content": {media_type: {"schema": {}}}}}


@router.post("", summary="Begin an upload", status_code=201, response_model=UploadView)
def create_upload(
    service: ServiceOf, caller: Caller, dataset_id: Writable, body: NewUploadBody, once: Once
) -> Response:
    """Begin to collect files. A dataset that does not exist is created by the commit."""

    def work() -> UploadView:
        row = begin_upload(
            service, caller, dataset_place(dataset_id), NewUpload(body.artifact, body.key, body.only_images)
        )
        return get_upload(service, dataset_id, row.id)

    return once.answer(work)


@router.put(
    "/{upload_id}/files/{path:path}",
    summary="Send a file",
    openapi_extra=bytes_body("application/octet-stream"),
)
async def put_file(
    *,
    request: Request,
    service: ServiceOf,
    dataset_id: Writable,
    upload_id: UploadId,
    path: Annotated[str, Path(min_length=1, max_length=4096)],
    content_sha256: Annotated[
        str, Header(alias="X-Content-SHA256", pattern=r"^[0-9a-f]{64}$", description="SHA-256 of the body.")
    ],
) -> ReceiptView:
    """Send one file of at most 64 MiB as the body. The answer comes when its bytes are stored, and is the receipt."""
    data = await request.body()

    def receive() -> ReceiptView:
        upload = find_upload(service, dataset_place(dataset_id), upload_id)
        return ReceiptView.model_validate(receive_file(service, upload, path, data, content_sha256))

    return await run_in_threadpool(receive)


@router.post("/{upload_id}/archive", summary="Send many files", openapi_extra=bytes_body("application/x-tar"))
async def post_archive(
    *, request: Request, service: ServiceOf, dataset_id: Writable, upload_id: UploadId
) -> ReceiptList:
    """Send a tar archive of at most 64 MiB, without compression. All of its files are acknowledged, or none.

    Compare the receipts before the commit. Links and devices are refused.
    """
    data = await request.body()

    def receive() -> ReceiptList:
        upload = find_upload(service, dataset_place(dataset_id), upload_id)
        return ReceiptList(files=[ReceiptView.model_validate(one) for one in receive_archive(service, upload, data)])

    return await run_in_threadpool(receive)


@router.get("/{upload_id}", summary="Show an upload")
def get_upload(service: ServiceOf, dataset_id: Writable, upload_id: UploadId) -> UploadView:
    """Show which files have arrived, so that an interrupted upload continues."""
    row = find_upload(service, dataset_place(dataset_id), upload_id)
    files = [ReceiptView.model_validate(file) for file in list_files(service, row)]
    return UploadView(id=row.id, artifact=row.artifact, created=row.created, version=row.version, files=files)


@router.post("/{upload_id}/commit", summary="Commit an upload", response_model=UploadView)
def post_commit(
    *, service: ServiceOf, caller: Caller, dataset_id: Writable, upload_id: UploadId, body: CommitBody, once: Once
) -> Response:
    """Make all files part of `main` with one commit. Repeating it returns the same version."""
    place = dataset_place(dataset_id)
    plan = UploadPlan(
        body.message,
        {
            one.path: ImageOptions(one.split, one.tags, parse_bodies(one.annotations), one.replace)
            for one in body.images
        },
        body.remove,
    )

    def work() -> UploadView:
        upload = find_upload(service, place, upload_id)
        version = commit_upload(service, upload, caller.name, plan)
        with service.database.write() as db:
            record(service, db, caller, AuditEntry("commit-upload", dataset_id, place, {"version": version}))
        return get_upload(service, dataset_id, upload_id)

    return once.answer(work, status=200)
