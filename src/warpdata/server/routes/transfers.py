"""Exports and imports: jobs that write a version as a file to download, and that make a version of files."""

from __future__ import annotations

from typing import Annotated, Any, Literal
from urllib.parse import quote

from fastapi import APIRouter, Header, Request, Response
from pydantic import Field, StringConstraints

from warpdata.collections import check_collection
from warpdata.errors import BadInputError
from warpdata.limits import MAX_CLASS_NAME_LENGTH, MAX_FILTER_LENGTH, MAX_NAME_LENGTH
from warpdata.server.caller import Caller, Once, ServiceOf
from warpdata.server.jobs import NewJob, result_key
from warpdata.server.jobs.data_kinds import LABEL_EXPORTS, SERVICE_EXPORTS
from warpdata.server.routes.datasets import Readable
from warpdata.server.routes.jobs import JobId, JobView, Writable, start_job, visible_job
from warpdata.server.routes.objects import BYTES
from warpdata.server.routes.parameters import Body, RefText, Sentence, dataset_place
from warpdata.server.safe_http import check_url
from warpdata.server.stored_objects import ObjectRequest, send_object
from warpdata.server.uploads import find_upload

__all__ = ["router"]

router = APIRouter(tags=["transfers"])
_Entry = Annotated[str, StringConstraints(pattern=r"^[^\x00-\x1f/]+$", max_length=MAX_NAME_LENGTH)]
_Column = Annotated[str, StringConstraints(max_length=1024)]
_ImagePath = Annotated[str, StringConstraints(min_length=1, max_length=1024)]
ExportFormat = Literal[
    "parquet",
    "imagefolder",
    "audiofolder",
    "webdataset",
    "huggingface",
    "platform",
    "files",
    "coco",
    "yolo",
    "voc",
    "cvat",
    "label-studio",
    "datumaro",
]
ImportFormat = Literal["imagefolder", "audiofolder", "tables", "webdataset", "platform", "files"]


class NewExportBody(Body):
    """What to export. `platform` is for collections, `files` are those of an artifact, as they are.

    `filter` and `columns` select rows for the other formats. `label` and `split` name columns. Formats of labels are
    for collections, and also take a selection of images: by `filter` and `class_name`, or by `paths`.
    """

    format: ExportFormat = "parquet"
    ref: RefText | None = None
    table: _Entry | None = None
    artifact: _Entry | None = None
    columns: Annotated[list[_Column], Field(min_length=1, max_length=1000)] | None = None
    filter: Annotated[str, StringConstraints(max_length=MAX_FILTER_LENGTH)] | None = None
    label: _Column | None = None
    split: _Column | None = None
    class_name: Annotated[str, StringConstraints(max_length=MAX_CLASS_NAME_LENGTH)] | None = None
    paths: Annotated[list[_ImagePath], Field(min_length=1, max_length=10_000)] | None = None


class NewImportBody(Body):
    """What to import: the files of an upload, or what is at a URL. A single ZIP or tar archive is unpacked.

    `tables` are CSV, JSON lines or Parquet. `platform` is a collection with `annotations.json`. `replace` publishes
    also if the head has entries that the import lacks. With `sha256`, the bytes at the URL are compared.
    """

    format: ImportFormat
    upload: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{32}$")] | None = None
    url: Annotated[str, StringConstraints(pattern=r"^https?://[^\x00-\x20]+$", max_length=2048)] | None = None
    sha256: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")] | None = None
    table: Annotated[str, StringConstraints(pattern=r"^[a-z0-9_-]+$", max_length=MAX_NAME_LENGTH)] | None = None
    artifact: Annotated[str, StringConstraints(pattern=r"^[a-z0-9_-]+$", max_length=MAX_NAME_LENGTH)] | None = None
    replace: bool = False
    message: Sentence = ""


@router.post(
    "/datasets/{workspace}/{name}/exports", summary="Export a version", status_code=202, response_model=JobView
)
def create_export(
    service: ServiceOf, caller: Caller, dataset_id: Readable, body: NewExportBody, once: Once
) -> Response:
    """Write a version as a ZIP archive, as a job. `GET /jobs/{job_id}/file` reads it for a week."""
    if (body.class_name or body.paths) and body.format not in LABEL_EXPORTS:
        raise BadInputError(f"the format {body.format!r} takes no class and no paths", hint="Send a filter.")
    found, dataset = service.open(dataset_id, body.ref)
    if body.format == "platform" or body.format in LABEL_EXPORTS:
        check_collection(dataset)
        if body.filter is not None:
            dataset.table("images").filter(body.filter)
    elif body.format not in SERVICE_EXPORTS:
        table = dataset.table(body.table)
        if body.filter is not None:
            table.filter(body.filter)
    else:
        dataset.artifact(body.artifact)
    arguments = {**body.model_dump(exclude={"ref"}), "version": found.version, "author": caller.name}
    return start_job(caller, NewJob("export", caller.user_id, dataset_place(dataset_id), arguments), once)


@router.post("/datasets/{workspace}/{name}/imports", summary="Import files", status_code=202, response_model=JobView)
def create_import(
    service: ServiceOf, caller: Caller, dataset_id: Writable, body: NewImportBody, once: Once
) -> Response:
    """Make a version of uploaded files, or of what is at a public URL, as a job."""
    place = dataset_place(dataset_id)
    if (body.upload is None) == (body.url is None):
        raise BadInputError("an import takes either an upload or a URL", hint="Send one of them.")
    if body.upload is not None:
        find_upload(service, place, body.upload)
    else:
        check_url(service.addresses, body.url or "")
    arguments = {**body.model_dump(), "author": caller.name}
    return start_job(caller, NewJob("import", caller.user_id, place, arguments), once)


@router.head("/jobs/{job_id}/file", responses=BYTES, operation_id="head_job_file", include_in_schema=False)
@router.get(
    "/jobs/{job_id}/file",
    summary="Read the file of a job",
    responses=BYTES,
    response_class=Response,
    operation_id="get_job_file",
)
def get_job_file(
    *,
    request: Request,
    service: ServiceOf,
    caller: Caller,
    job_id: JobId,
    wanted: Annotated[str | None, Header(alias="Range", description="One range of bytes.")] = None,
) -> Response:
    """Read what an export has made, or a range of it. It is there for a week."""
    row = visible_job(service, caller, job_id)
    key = result_key(row)
    file: dict[str, Any] = (row.result or {})["file"]
    headers = {
        "ETag": f'"{file["sha256"]}"',
        "Cache-Control": "private, no-cache",
        "Content-Disposition": f"attachment; filename*=UTF-8''{quote(str(file['filename']), safe='')}",
    }
    wanted_object = ObjectRequest(request.method, key, wanted)
    return send_object(service.session.writer, wanted_object, int(file["size_bytes"]), headers)
