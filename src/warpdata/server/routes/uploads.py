"""Uploads: send files one by one, compare the receipts, and commit them together."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Header, Path, Request, Response
from pydantic import StringConstraints
from starlette.concurrency import run_in_threadpool

from warpdata.limits import MAX_NAME_LENGTH
from warpdata.server.access import Action, AuditEntry, record
from warpdata.server.caller import Caller, Once, ServiceOf
from warpdata.server.routes.parameters import Answer, Authorized, Body, Sentence, dataset_place
from warpdata.server.uploads import begin_upload, commit_upload, find_upload, list_files, receive_file

__all__ = ["router"]

router = APIRouter(prefix="/datasets/{workspace}/{name}/uploads", tags=["uploads"])
Writable = Annotated[str, Depends(Authorized(Action.WRITE))]
UploadId = Annotated[str, Path(pattern=r"^[0-9a-f]{32}$")]


class NewUploadBody(Body):
    """The artifact that gets the files."""

    artifact: Annotated[str, StringConstraints(pattern=r"^[a-z0-9_-]+$", max_length=MAX_NAME_LENGTH)] = "images"


class ReceiptView(Answer):
    """A file whose bytes are stored."""

    path: str
    sha256: str
    size_bytes: int


class UploadView(Answer):
    """An upload with the receipts of its files. `version` is there once it was committed."""

    id: str
    artifact: str
    created: str
    version: str | None
    files: list[ReceiptView]


class CommitBody(Body):
    """What the commit is for."""

    message: Sentence = ""


@router.post("", summary="Begin an upload", status_code=201, response_model=UploadView)
def create_upload(
    service: ServiceOf, caller: Caller, dataset_id: Writable, body: NewUploadBody, once: Once
) -> Response:
    """Begin to collect files. A dataset that does not exist is created by the commit."""

    def work() -> UploadView:
        row = begin_upload(service, caller, dataset_place(dataset_id), body.artifact)
        return UploadView(id=row.id, artifact=row.artifact, created=row.created, version=None, files=[])

    return once.answer(work)


@router.put(
    "/{upload_id}/files/{path:path}",
    summary="Send a file",
    openapi_extra={"requestBody": {"required": True, "content": {"application/octet-stream": {"schema": {}}}}},
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

    def work() -> UploadView:
        version = commit_upload(service, find_upload(service, place, upload_id), caller.name, body.message)
        with service.database.write() as db:
            record(service, db, caller, AuditEntry("commit-upload", dataset_id, place, {"version": version}))
        return get_upload(service, dataset_id, upload_id)

    return once.answer(work, status=200)
