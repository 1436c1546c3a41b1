"""Files in parts, by the tus protocol 1.0: core, creation, checksum and termination.

Any tus client continues an upload after a broken connection at the last byte that is stored.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import hmac
from binascii import Error as Base64Error
from typing import Annotated

from fastapi import APIRouter, Header, Path, Request, Response
from starlette.concurrency import run_in_threadpool

from warpdata.errors import BadInputError, ConflictError, LimitExceededError
from warpdata.limits import MAX_FILE_BYTES, MAX_PARTIAL_BYTES, MIB
from warpdata.primitives.hashing import is_digest
from warpdata.server.caller import ServiceOf
from warpdata.server.database import PartialFileRow, UploadRow
from warpdata.server.problems import problem
from warpdata.server.routes.parameters import dataset_place
from warpdata.server.routes.uploads import UploadId, Writable, bytes_body
from warpdata.server.service import Service
from warpdata.server.uploads import (
    CHECKSUM_ALGORITHMS,
    NewPartial,
    append_part,
    begin_partial,
    find_partial,
    find_upload,
    remove_partial,
)

__all__ = ["router"]

router = APIRouter(prefix="/datasets/{workspace}/{name}/uploads/{upload_id}/partial", tags=["uploads"])
_PART_BYTES = 16 * MIB
"""A long request is stored in parts of this size, so that a broken connection loses at most one."""
_TUS = {"Tus-Resumable": "1.0.0", "Cache-Control": "no-store"}
PartialId = Annotated[str, Path(pattern=r"^[0-9a-f]{32}$")]
Offset = Annotated[int, Header(ge=0, le=MAX_PARTIAL_BYTES, description="Bytes that the service has.")]
_EMPTY = {
    "Tus-Resumable": {"schema": {"type": "string"}},
    "Upload-Offset": {"schema": {"type": "integer"}},
}


@router.options("", summary="Show what the protocol supports", status_code=204)
def get_tus_options(dataset_id: Writable, upload_id: UploadId) -> Response:  # noqa: ARG001 - checked by their types
    """Show the version, the extensions and the limits of the tus protocol here."""
    return Response(
        status_code=204,
        headers={
            "Tus-Resumable": "1.0.0",
            "Tus-Version": "1.0.0",
            "Tus-Extension": "creation,checksum,termination",
            "Tus-Checksum-Algorithm": ",".join(CHECKSUM_ALGORITHMS),
            "Tus-Max-Size": str(MAX_PARTIAL_BYTES),
        },
    )


@router.post("", summary="Begin a file in parts", status_code=201, responses={201: {"headers": _EMPTY}})
def begin(
    *,
    service: ServiceOf,
    dataset_id: Writable,
    upload_id: UploadId,
    request: Request,
    upload_length: Annotated[int, Header(ge=0)],
    upload_metadata: Annotated[str, Header(max_length=8192, description="`filename` and perhaps `sha256`, in base64.")],
) -> Response:
    """Begin a file of a known length. `Location` is where its bytes go.

    `filename` is the path in the artifact. With `sha256`, in hexadecimal, the whole file is compared at its end, and
    a repetition continues the file that was begun.
    """
    if upload_length > MAX_PARTIAL_BYTES:
        raise LimitExceededError(f"{upload_length:,} bytes are more than the limit of {MAX_PARTIAL_BYTES:,}")
    metadata = _parse_metadata(upload_metadata)
    if "filename" not in metadata:
        raise BadInputError("Upload-Metadata has no filename", hint="Send `filename BASE64`.")
    digest = metadata.get("sha256")
    if digest is not None and not is_digest(digest):
        raise BadInputError(f"sha256={digest[:80]!r} is not a SHA-256 in hexadecimal")
    upload = find_upload(service, dataset_place(dataset_id), upload_id)
    row = begin_partial(service, upload, NewPartial(metadata["filename"], upload_length, digest))
    base = (service.options.public_url or str(request.base_url)).rstrip("/")
    location = f"{base}{request.url.path.rstrip('/')}/{row.id}"
    return Response(status_code=201, headers={**_TUS, "Location": location, "Upload-Offset": str(row.offset)})


@router.head("/{partial_id}", summary="Show how much has arrived", responses={200: {"headers": _EMPTY}})
def show(service: ServiceOf, dataset_id: Writable, upload_id: UploadId, partial_id: PartialId) -> Response:
    """Show the offset at which the file continues."""
    row = find_partial(service, find_upload(service, dataset_place(dataset_id), upload_id), partial_id)
    headers = {**_TUS, "Upload-Offset": str(row.offset), "Upload-Length": str(row.length)}
    return Response(status_code=200, headers=headers)


@router.patch(
    "/{partial_id}",
    summary="Send a part of a file",
    status_code=204,
    responses={204: {"headers": _EMPTY}, 415: {"description": "Another content type."}, 460: {"description": "Sum."}},
    openapi_extra=bytes_body("application/offset+octet-stream"),
)
async def append(
    *,
    request: Request,
    service: ServiceOf,
    dataset_id: Writable,
    upload_id: UploadId,
    partial_id: PartialId,
    upload_offset: Offset,
    upload_checksum: Annotated[str | None, Header(max_length=256, description="Algorithm and base64.")] = None,
) -> Response:
    """Append the body to the file. What arrived before a connection broke stays.

    With `Upload-Checksum`, the body has at most 64 MiB, and all of it is stored or nothing.
    """
    if request.headers.get("content-type", "").partition(";")[0] != "application/offset+octet-stream":
        return problem(415, "bad_input", "the content type is not application/offset+octet-stream")
    expected = None if upload_checksum is None else _parse_checksum(upload_checksum)
    upload = await run_in_threadpool(find_upload, service, dataset_place(dataset_id), upload_id)
    row = await run_in_threadpool(find_partial, service, upload, partial_id)
    if upload_offset != row.offset:
        raise ConflictError(f"the file has {row.offset} bytes, and not {upload_offset}", hint="Ask with HEAD.")
    limit = MAX_FILE_BYTES if expected else _PART_BYTES
    waiting = bytearray()
    async for chunk in request.stream():
        waiting += chunk
        if expected and len(waiting) > limit:
            raise LimitExceededError("a part with a checksum has at most 64 MiB", hint="Send smaller parts.")
        while not expected and len(waiting) >= limit:
            row = await _store(service, upload, row, bytes(waiting[:limit]))
            del waiting[:limit]
    if expected and not hmac.compare_digest(hashlib.new(expected[0], waiting).digest(), expected[1]):
        return problem(460, "bad_input", "the body does not have this checksum", "Send the part again.")
    if waiting:
        row = await _store(service, upload, row, bytes(waiting))
    return Response(status_code=204, headers={**_TUS, "Upload-Offset": str(row.offset)})


@router.delete("/{partial_id}", summary="Give a file in parts up", status_code=204)
def terminate(service: ServiceOf, dataset_id: Writable, upload_id: UploadId, partial_id: PartialId) -> Response:
    """Forget a file that has not arrived. One that has stays part of the upload."""
    remove_partial(
        service, find_partial(service, find_upload(service, dataset_place(dataset_id), upload_id), partial_id)
    )
    return Response(status_code=204, headers=_TUS)


async def _store(service: Service, upload: UploadRow, row: PartialFileRow, data: bytes) -> PartialFileRow:
    store = functools.partial(append_part, only_images=upload.only_images)
    return await run_in_threadpool(store, service, row, row.offset, data)


def _parse_metadata(text: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for pair in text.split(","):
        name, _, value = pair.strip().partition(" ")
        try:
            found[name] = base64.b64decode(value, validate=True).decode()
        except (ValueError, Base64Error) as error:
            raise BadInputError(f"{name[:80]!r} of Upload-Metadata is not base64 of text") from error
    return found


def _parse_checksum(text: str) -> tuple[str, bytes]:
    algorithm, _, value = text.partition(" ")
    if algorithm not in CHECKSUM_ALGORITHMS:
        raise BadInputError(f"{algorithm[:80]!r} is not one of {', '.join(CHECKSUM_ALGORITHMS)}")
    try:
        return algorithm, base64.b64decode(value, validate=True)
    except (ValueError, Base64Error) as error:
        raise BadInputError("Upload-Checksum is not base64") from error
