"""Files of an upload: their bytes in the store, and one row each in the database."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import delete, func, insert, select
from sqlalchemy.orm import Session as OrmSession

from warpdata.errors import BadInputError, ConflictError, LimitExceededError, NotFoundError
from warpdata.kinds.artifacts import check_member_path
from warpdata.limits import MAX_UPLOAD_FILES
from warpdata.primitives.hashing import sha256_hex
from warpdata.server.access import Place, Principal
from warpdata.server.database import UploadFileRow, UploadRow
from warpdata.server.quotas import check_quota
from warpdata.server.service import Service
from warpdata.server.uploads.image_check import HEADER_BYTES, check_image

__all__ = [
    "NewUpload",
    "Piece",
    "ReceivedFile",
    "begin_upload",
    "check_open",
    "check_room",
    "find_upload",
    "list_files",
    "object_key",
    "put_files",
    "receive_file",
    "record_files",
    "upload_prefix",
]

_ROOT = "service/uploads"
_MERGED_ROWS = 500
"""Paths in one statement. SQLite takes at most 32,766 parameters."""

Piece = tuple[str, int, int]
"""Name of an object of the upload, first byte, number of bytes."""


@dataclass(frozen=True, slots=True)
class ReceivedFile:
    """A file whose bytes are stored: the receipt for a client to compare."""

    path: str
    sha256: str
    size_bytes: int


@dataclass(frozen=True, slots=True)
class NewUpload:
    """The artifact that gets the files. With `only_images`, others are refused when they arrive."""

    artifact: str
    key: str | None = None
    only_images: bool = False


def begin_upload(service: Service, principal: Principal, place: Place, new: NewUpload) -> UploadRow:
    """Begin to collect files for an artifact. With a key, a repetition returns the upload that was begun."""
    text = f"{place}\n{new.artifact}\n{principal.user_id}\n{new.key}"
    named = None if new.key is None else sha256_hex(text.encode())[:32]
    with service.database.write() as db:
        row = None if named is None else db.get(UploadRow, named)
        if row is None:
            row = UploadRow(
                id=named or service.new_id(),
                workspace=place.workspace,
                dataset=place.dataset or "",
                user_id=principal.user_id,
                artifact=new.artifact,
                created=service.now(),
                version=None,
                only_images=new.only_images,
            )
            db.add(row)
    return row


def find_upload(service: Service, place: Place, upload_id: str) -> UploadRow:
    """Return an upload of a dataset; `NotFoundError` for one of another."""
    with service.database.read() as db:
        row = db.get(UploadRow, upload_id)
    if row is None or (row.workspace, row.dataset) != (place.workspace, place.dataset):
        raise NotFoundError(f"there is no upload {upload_id!r}")
    return row


def receive_file(service: Service, upload: UploadRow, path: str, data: bytes, expected: str) -> ReceivedFile:
    """Store a file, after a check that its bytes are those that the client meant. A path may be sent again."""
    check_member_path(path, "upload")
    found = sha256_hex(data)
    if found != expected:
        raise BadInputError(f"{path!r} arrived with SHA-256 {found}, expected {expected}", hint="Send the file again.")
    if upload.only_images:
        check_image(path, data[:HEADER_BYTES])
    check_room(service, upload, 1, len(data))
    service.session.writer.create(object_key(upload.id, found), data)
    received = ReceivedFile(path, found, len(data))
    record_files(service, upload.id, [(received, [(found, 0, len(data))])])
    return received


def list_files(service: Service, upload: UploadRow) -> list[ReceivedFile]:
    """Return the receipts of an upload, by path."""
    query = select(UploadFileRow).where(UploadFileRow.upload_id == upload.id).order_by(UploadFileRow.path)
    with service.database.read() as db:
        return [ReceivedFile(row.path, row.sha256, row.size_bytes) for row in db.scalars(query)]


def check_room(service: Service, upload: UploadRow, files: int, size_bytes: int) -> None:
    """Raise `LimitExceededError` if the upload or its workspace cannot take this many files and bytes more."""
    with service.database.read() as db:
        count = db.scalar(select(func.count()).where(UploadFileRow.upload_id == upload.id)) or 0
    if count + files > MAX_UPLOAD_FILES:
        raise LimitExceededError(
            f"an upload has at most {MAX_UPLOAD_FILES:,} files", hint="Commit it, and begin another."
        )
    check_quota(service, upload.workspace, files, size_bytes)


def record_files(service: Service, upload_id: str, files: Sequence[tuple[ReceivedFile, Sequence[Piece]]]) -> None:
    """Write the rows of files whose bytes are stored. A path that was sent before has the new bytes."""
    with service.database.write() as db:
        check_open(db.get(UploadRow, upload_id, with_for_update=True))
        put_files(db, upload_id, files)


def put_files(db: OrmSession, upload_id: str, files: Sequence[tuple[ReceivedFile, Sequence[Piece]]]) -> None:
    """Write the rows of files in the transaction of a caller."""
    rows: list[dict[str, Any]] = [
        {
            "upload_id": upload_id,
            "path": file.path,
            "sha256": file.sha256,
            "size_bytes": file.size_bytes,
            "pieces": [list(piece) for piece in pieces],
        }
        for file, pieces in files
    ]
    for start in range(0, len(rows), _MERGED_ROWS):
        paths = [row["path"] for row in rows[start : start + _MERGED_ROWS]]
        db.execute(delete(UploadFileRow).where(UploadFileRow.upload_id == upload_id, UploadFileRow.path.in_(paths)))
    if rows:
        db.execute(insert(UploadFileRow), rows)


def check_open(row: UploadRow | None) -> UploadRow:
    """Return an upload that takes files. `ConflictError` if it was committed meanwhile."""
    if row is None or row.version is not None:
        raise ConflictError("the upload was committed", hint="Begin another upload.")
    return row


def upload_prefix(upload_id: str) -> str:
    """Return where the objects of an upload are."""
    return f"{_ROOT}/{upload_id}"


def object_key(upload_id: str, name: str) -> str:
    """Return the key of an object of an upload."""
    return f"{_ROOT}/{upload_id}/{name}"
