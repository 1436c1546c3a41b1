"""Files that clients send, kept in the store until a commit makes them part of a dataset.

A file is acknowledged when its bytes are in the store and its row is in the database. Its key is outside those that
garbage collection looks at, so it stays until the commit. The commit is done once, whatever is repeated or killed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from sqlalchemy import func, select

from warpdata.collections import FILES, Collection, is_collection
from warpdata.datasets import open_dataset
from warpdata.edit import EditOptions, transaction_of
from warpdata.errors import BadInputError, ConflictError, CorruptError, LimitExceededError, NotFoundError
from warpdata.kinds.artifacts import check_member_path
from warpdata.primitives.hashing import sha256_hex
from warpdata.publish import DatasetBuilder
from warpdata.repository.catalog import MAIN, Address, find_head, find_transaction
from warpdata.server.access import Place, Principal
from warpdata.server.database import UploadFileRow, UploadRow
from warpdata.server.index import index_dataset
from warpdata.server.service import Service

__all__ = ["ReceivedFile", "begin_upload", "commit_upload", "find_upload", "list_files", "receive_file"]

_MAX_FILES = 10_000
_ROOT = "service/uploads"


@dataclass(frozen=True, slots=True)
class ReceivedFile:
    """A file whose bytes are stored: the receipt for a client to compare."""

    path: str
    sha256: str
    size_bytes: int


def begin_upload(service: Service, principal: Principal, place: Place, artifact: str) -> UploadRow:
    """Begin to collect files for an artifact."""
    row = UploadRow(
        id=service.new_id(),
        workspace=place.workspace,
        dataset=place.dataset or "",
        user_id=principal.user_id,
        artifact=artifact,
        created=service.now(),
        version=None,
    )
    with service.database.write() as db:
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
    with service.database.read() as db:
        count = db.scalar(select(func.count()).where(UploadFileRow.upload_id == upload.id)) or 0
    if count >= _MAX_FILES:
        raise LimitExceededError(f"an upload has at most {_MAX_FILES:,} files", hint="Commit it, and begin another.")
    service.session.writer.create(_key(upload, found), data)
    with service.database.write() as db:
        row = db.get(UploadRow, upload.id, with_for_update=True)
        if row is None or row.version is not None:
            raise ConflictError("the upload was committed", hint="Begin another upload.")
        db.merge(UploadFileRow(upload_id=upload.id, path=path, sha256=found, size_bytes=len(data)))
    return ReceivedFile(path, found, len(data))


def list_files(service: Service, upload: UploadRow) -> list[ReceivedFile]:
    """Return the receipts of an upload, by path."""
    query = select(UploadFileRow).where(UploadFileRow.upload_id == upload.id).order_by(UploadFileRow.path)
    with service.database.read() as db:
        return [ReceivedFile(row.path, row.sha256, row.size_bytes) for row in db.scalars(query)]


def commit_upload(service: Service, upload: UploadRow, author: str, message: str) -> str:
    """Make the files part of the dataset with one commit, and return the version. Repeating it changes nothing."""
    if upload.version is not None:
        _discard(service, upload.id)  # an earlier request may have been killed before it did
        return upload.version
    files = list_files(service, upload)
    if not files:
        raise BadInputError("the upload has no files", hint="Send files first.")
    dataset_id = f"{upload.workspace}/{upload.dataset}"
    with _fetched(service, upload, files) as paths:
        version = _publish(service, upload, paths, EditOptions(message, author, MAIN, f"upload-{upload.id}"))
    _mark_committed(service, upload.id, version)
    _discard(service, upload.id)
    index_dataset(service, dataset_id)
    return version


def _discard(service: Service, upload_id: str) -> None:
    """Delete what is kept for an upload."""
    found = service.session.writer.list_objects(f"{_ROOT}/{upload_id}")
    service.session.writer.delete_many([info.key for info in found])


def _mark_committed(service: Service, upload_id: str, version: str) -> None:
    with service.database.write() as db:
        db.get_one(UploadRow, upload_id).version = version


def _publish(service: Service, upload: UploadRow, paths: dict[str, Path], options: EditOptions) -> str:
    session, dataset_id = service.session_of(options.author), f"{upload.workspace}/{upload.dataset}"
    assert options.key is not None
    known = find_transaction(session.writer, dataset_id, MAIN, transaction_of(dataset_id, options.key))
    if known is not None:  # committed by a request that was killed before the database knew
        return known.commit.version
    if find_head(session.writer, dataset_id, MAIN) is None:
        builder = DatasetBuilder(dataset_id, session)
        builder.add_artifact(upload.artifact, paths, kind="files")
        return builder.publish(message=options.message, author=options.author, expected_version=None).version
    dataset = open_dataset(session, Address(dataset_id))
    if upload.artifact == FILES and is_collection(dataset):
        with Collection(session, dataset_id).changes(options.message, key=options.key) as change:
            for path, content in paths.items():
                change.add(path, content)
        assert change.version is not None
        return change.version
    with dataset.edit(options.message, author=options.author, key=options.key) as edit:
        edit.add_files(upload.artifact, paths)
    assert edit.version is not None
    return edit.version


@contextmanager
def _fetched(service: Service, upload: UploadRow, files: Sequence[ReceivedFile]) -> Iterator[dict[str, Path]]:
    """Yield local copies by member path. Their names are numbers, so no path of a client reaches the disk."""
    with TemporaryDirectory(prefix="warp-upload-") as directory:
        paths = {}
        for number, file in enumerate(files):
            data = service.session.writer.read(_key(upload, file.sha256)).data
            if sha256_hex(data) != file.sha256:
                raise CorruptError(f"the stored bytes of {file.path!r} are not those that were received")
            paths[file.path] = Path(directory, str(number))
            paths[file.path].write_bytes(data)
        yield paths


def _key(upload: UploadRow, sha256: str) -> str:
    return f"{_ROOT}/{upload.id}/{sha256}"
