"""Files that arrive in parts, for connections that break: the state behind the tus protocol.

Each part is an object of the store. Its row is written after its bytes, so the offset that a client reads is stored.
A file becomes part of its upload with the last byte, after its hash was compared.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import select

from warpdata.errors import BadInputError, ConflictError, CorruptError, NotFoundError
from warpdata.formats.labels import check_image_path
from warpdata.kinds.artifacts import check_member_path
from warpdata.primitives.hashing import sha256_hex
from warpdata.server.database import PartialFileRow, UploadRow
from warpdata.server.service import Service
from warpdata.server.uploads.image_check import HEADER_BYTES, check_image
from warpdata.server.uploads.received import (
    Piece,
    ReceivedFile,
    check_open,
    check_room,
    object_key,
    put_files,
)
from warpdata.storage import ByteRange

__all__ = ["CHECKSUM_ALGORITHMS", "NewPartial", "append_part", "begin_partial", "find_partial", "remove_partial"]

CHECKSUM_ALGORITHMS = ("sha256", "sha1")


@dataclass(frozen=True, slots=True)
class NewPartial:
    """A file to come. `sha256` is compared when all of it is there."""

    path: str
    length: int
    sha256: str | None


def begin_partial(service: Service, upload: UploadRow, new: NewPartial) -> PartialFileRow:
    """Begin a file. One with the same path, length and hash that has begun is continued."""
    check_member_path(new.path, "upload")
    if upload.only_images:
        check_image_path(new.path)
    check_room(service, upload, 1, new.length)
    query = select(PartialFileRow).where(
        PartialFileRow.upload_id == upload.id,
        PartialFileRow.path == new.path,
        PartialFileRow.length == new.length,
        PartialFileRow.sha256 == new.sha256,
    )
    with service.database.write() as db:
        check_open(db.get(UploadRow, upload.id, with_for_update=True))
        row = db.scalar(query.limit(1)) if new.sha256 is not None else None
        if row is None:
            row = PartialFileRow(
                id=service.new_id(),
                upload_id=upload.id,
                path=new.path,
                length=new.length,
                offset=0,
                sha256=new.sha256,
                pieces=[],
            )
            db.add(row)
        if new.length == 0:
            put_files(db, upload.id, [(ReceivedFile(new.path, sha256_hex(b""), 0), [])])
    return row


def find_partial(service: Service, upload: UploadRow, partial_id: str) -> PartialFileRow:
    """Return a file that arrives in parts; `NotFoundError` for one of another upload."""
    with service.database.read() as db:
        row = db.get(PartialFileRow, partial_id)
    if row is None or row.upload_id != upload.id:
        raise NotFoundError(f"there is no file {partial_id!r} in the upload")
    return row


def append_part(
    service: Service, row: PartialFileRow, offset: int, data: bytes, *, only_images: bool = False
) -> PartialFileRow:
    """Append bytes at an offset. `ConflictError` if the file is not that long, or another request was first.

    The last part makes the file part of its upload in the same transaction, if its bytes have the announced hash.
    """
    if offset != row.offset:
        raise ConflictError(f"the file has {row.offset} bytes, and not {offset}", hint="Ask for its offset with HEAD.")
    if offset + len(data) > row.length:
        raise BadInputError(f"{offset + len(data)} bytes are more than the announced {row.length}")
    if offset == 0 and only_images:
        check_image(row.path, data[:HEADER_BYTES])
    name = f"{row.id}-{offset:016d}-{sha256_hex(data)}"
    service.session.writer.create(object_key(row.upload_id, name), data)
    pieces = [*row.pieces, (name, 0, len(data))]
    is_last = offset + len(data) == row.length
    digest = _hash(service, row, pieces) if is_last else None
    is_wrong = is_last and row.sha256 not in (None, digest)
    with service.database.write() as db:
        check_open(db.get(UploadRow, row.upload_id, with_for_update=True))
        fresh = db.get(PartialFileRow, row.id, with_for_update=True)
        if fresh is None or fresh.offset != offset:
            raise ConflictError("another request appended to the file", hint="Ask for its offset with HEAD.")
        fresh.pieces, fresh.offset = ([], 0) if is_wrong else (pieces, offset + len(data))
        if digest is not None and not is_wrong:
            put_files(db, row.upload_id, [(ReceivedFile(row.path, digest, row.length), pieces)])
    if is_wrong:
        raise BadInputError(
            f"{row.path!r} arrived with SHA-256 {digest}, expected {row.sha256}", hint="Send it again from its start."
        )
    return fresh


def remove_partial(service: Service, row: PartialFileRow) -> None:
    """Give a file up that has not arrived. One that has arrived stays part of its upload."""
    keys = [object_key(row.upload_id, name) for name, _, _ in row.pieces] if row.offset < row.length else []
    with service.database.write() as db:
        found = db.get(PartialFileRow, row.id)
        if found is not None:
            db.delete(found)
    service.session.writer.delete_many(keys)


def _hash(service: Service, row: PartialFileRow, pieces: Sequence[Piece]) -> str:
    """Return the hash of the stored parts together, each compared with its own."""
    digest = hashlib.sha256()
    for name, start, size in pieces:
        part = service.session.writer.read_range(object_key(row.upload_id, name), ByteRange(start, start + size))
        if sha256_hex(part) != name.rpartition("-")[2]:
            raise CorruptError(f"the stored bytes of {row.path!r} are not those that were received")
        digest.update(part)
    return digest.hexdigest()
