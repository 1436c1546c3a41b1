"""The commit of an upload: its files and what is said about them become part of a dataset at once.

The commit is done once, whatever is repeated or killed: its transaction follows from the upload.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory

from sqlalchemy import delete, select

from warpdata.collections import FILES, Annotation, Changes, Collection, check_collection, is_collection
from warpdata.datasets import Dataset, open_dataset
from warpdata.edit import EditOptions, transaction_of
from warpdata.errors import BadInputError, CorruptError, DatasetNotFoundError
from warpdata.publish import DatasetBuilder
from warpdata.repository.catalog import MAIN, Address, find_head, find_transaction
from warpdata.server.database import UploadFileRow, UploadRow
from warpdata.server.index import index_dataset
from warpdata.server.s3 import remove_old_parts
from warpdata.server.service import Service, stamp
from warpdata.server.uploads.received import check_open, object_key, upload_prefix
from warpdata.storage import ByteRange

__all__ = [
    "EXPIRES_S",
    "ImageOptions",
    "UploadPlan",
    "apply_labels",
    "commit_upload",
    "copy_files",
    "discard_upload",
    "remove_expired_uploads",
]

EXPIRES_S = 7 * 24 * 3600
"""An upload that gets no bytes for so long, and no commit, is removed."""
_EXPIRED_AT_ONCE = 100


@dataclass(frozen=True, slots=True)
class ImageOptions:
    """What is said about an image, beside its bytes. `split` and `tags` are those of `Changes.add` and `set`."""

    split: str | None = None
    tags: Sequence[str] | None = None
    annotations: Sequence[Annotation] = ()
    replace: bool = False
    """For a file of the upload: take the place of a file with its path. Else: exchange all annotations."""


@dataclass(frozen=True, slots=True)
class UploadPlan:
    """What a commit does beside adding files. All of it is for collections. `images` has files of the upload too."""

    message: str = ""
    images: Mapping[str, ImageOptions] = field(default_factory=dict)
    remove: Sequence[str] = ()

    @property
    def is_empty(self) -> bool:
        return not self.images and not self.remove


def commit_upload(service: Service, upload: UploadRow, author: str, plan: UploadPlan) -> str:
    """Make the files part of the dataset with one commit, and return the version. Repeating it changes nothing."""
    if upload.version is not None:
        _discard(service, upload.id)  # an earlier request may have been killed before it did
        return upload.version
    dataset_id, key = f"{upload.workspace}/{upload.dataset}", f"upload-{upload.id}"
    writer = service.session.writer
    known = find_transaction(writer, dataset_id, MAIN, transaction_of(dataset_id, key))
    if known is not None:  # committed by a request that was killed before the database knew
        version = known.commit.version
    else:
        files = _list_rows(service, upload)
        if not files and plan.is_empty:
            raise BadInputError("the upload has no files", hint="Send files first.")
        with _fetched(service, files) as paths:
            version = _publish(service, upload, paths, plan, EditOptions(plan.message, author, MAIN, key))
    _mark_committed(service, upload.id, version)
    _discard(service, upload.id)
    index_dataset(service, dataset_id)
    return version


def apply_labels(
    service: Service, dataset_id: str, author: str, images: Mapping[str, ImageOptions], key: str | None
) -> str:
    """Annotate images of HEAD with one commit, and return the version. With a key, at most once."""
    message = f"annotate {len(images):,} images" if len(images) > 1 else f"annotate {next(iter(images))}"
    collection = Collection(service.session_of(author), dataset_id)
    collection.dataset()
    with collection.changes(message, key=key) as change:
        for path, options in images.items():
            change.annotate(path, options.annotations, replace=options.replace)
    assert change.version is not None
    return change.version


def _list_rows(service: Service, upload: UploadRow) -> list[UploadFileRow]:
    with service.database.read() as db:
        return list(db.scalars(select(UploadFileRow).where(UploadFileRow.upload_id == upload.id)))


def _mark_committed(service: Service, upload_id: str, version: str) -> None:
    with service.database.write() as db:
        db.get_one(UploadRow, upload_id).version = version


def _discard(service: Service, upload_id: str) -> None:
    """Delete what is kept for an upload."""
    found = service.session.writer.list_objects(upload_prefix(upload_id))
    service.session.writer.delete_many([info.key for info in found])


def _publish(
    service: Service, upload: UploadRow, paths: Mapping[str, Path], plan: UploadPlan, options: EditOptions
) -> str:
    session, dataset_id = service.session_of(options.author), f"{upload.workspace}/{upload.dataset}"
    if find_head(session.writer, dataset_id, MAIN) is None:
        if not plan.is_empty:
            raise DatasetNotFoundError(f"there is no collection {dataset_id!r}", hint="Create it first.")
        builder = DatasetBuilder(dataset_id, session)
        builder.add_artifact(upload.artifact, dict(paths), kind="files")
        return builder.publish(message=options.message, author=options.author, expected_version=None).version
    dataset = open_dataset(session, Address(dataset_id))
    if upload.artifact == FILES and (is_collection(dataset) or not plan.is_empty):
        return _change_collection(Collection(session, dataset_id), dataset, paths, plan, options)
    with dataset.edit(options.message, author=options.author, key=options.key) as edit:
        edit.add_files(upload.artifact, dict(paths))
    assert edit.version is not None
    return edit.version


def _change_collection(
    collection: Collection, dataset: Dataset, paths: Mapping[str, Path], plan: UploadPlan, options: EditOptions
) -> str:
    check_collection(dataset)
    with collection.changes(options.message, key=options.key) as change:
        if plan.remove:
            change.remove(plan.remove)
        for path, content in paths.items():
            given = plan.images.get(path, ImageOptions())
            change.add(
                path,
                content,
                annotations=given.annotations,
                split=given.split,
                tags=given.tags or (),
                replace=given.replace,
            )
        for path, given in plan.images.items():
            if path not in paths:
                _relabel(change, path, given)
    assert change.version is not None
    return change.version


def _relabel(change: Changes, path: str, given: ImageOptions) -> None:
    """Change what HEAD says about an image that stays."""
    if given.annotations or given.replace:
        change.annotate(path, given.annotations, replace=given.replace)
    if given.split is not None or given.tags is not None:
        change.set(path, split=given.split, tags=given.tags)


def copy_files(service: Service, upload: UploadRow, place: Callable[[str], Path], check: Callable[[], None]) -> int:
    """Copy the files of an upload that is not committed to this machine, and return their number."""
    files = _list_rows(service, check_open(upload))
    if not files:
        raise BadInputError("the upload has no files", hint="Send files first.")
    for file in files:
        check()
        _fetch_parts(service, file, place(file.path))
    return len(files)


def discard_upload(service: Service, upload: UploadRow) -> None:
    """Forget an upload with its files."""
    _discard(service, upload.id)
    with service.database.write() as db:
        db.execute(delete(UploadRow).where(UploadRow.id == upload.id, UploadRow.version.is_(None)))


def remove_expired_uploads(service: Service) -> int:
    """Forget uploads that were never committed and got no bytes for a week, and return their number.

    Uploads in parts to the S3 gateway are among them.
    """
    limit = service.later(-EXPIRES_S)
    silent = select(UploadRow).where(UploadRow.version.is_(None), UploadRow.created < limit)
    with service.database.read() as db:
        rows = list(db.scalars(silent.order_by(UploadRow.created).limit(_EXPIRED_AT_ONCE)))
    expired = [row for row in rows if _last_bytes(service, row) < limit]
    for row in expired:
        discard_upload(service, row)
    return len(expired) + remove_old_parts(service.session, service.session.clock() - timedelta(seconds=EXPIRES_S))


def _last_bytes(service: Service, upload: UploadRow) -> str:
    """Return when bytes came for an upload, or when it began."""
    found = service.session.writer.list_objects(upload_prefix(upload.id))
    times = [stamp(info.modified) for info in found if info.modified is not None]
    return max([upload.created, *times])


@contextmanager
def _fetched(service: Service, files: Sequence[UploadFileRow]) -> Iterator[dict[str, Path]]:
    """Yield local copies by member path. Their names are numbers, so no path of a client reaches the disk."""
    with TemporaryDirectory(prefix="warp-upload-") as directory:
        paths = {file.path: Path(directory, str(number)) for number, file in enumerate(files)}
        shared: defaultdict[str, list[UploadFileRow]] = defaultdict(list)
        for file in files:
            if len(file.pieces) == 1:
                shared[file.pieces[0][0]].append(file)
            else:
                _fetch_parts(service, file, paths[file.path])
        for name, members in shared.items():
            _fetch_members(service, name, members, paths)
        yield paths


def _fetch_members(service: Service, name: str, files: Sequence[UploadFileRow], paths: Mapping[str, Path]) -> None:
    """Fetch files that are in one object, such as those of an archive, with few requests."""
    filled = [file for file in files if file.size_bytes]
    spans = [ByteRange(file.pieces[0][1], file.pieces[0][1] + file.size_bytes) for file in filled]
    found = service.session.writer.read_ranges(object_key(files[0].upload_id, name), spans) if spans else []
    contents = {file.path: data for file, data in zip(filled, found, strict=True)}
    for file in files:
        data = contents.get(file.path, memoryview(b""))
        _check(file, sha256(data).hexdigest())
        paths[file.path].write_bytes(data)


def _fetch_parts(service: Service, file: UploadFileRow, target: Path) -> None:
    """Fetch a file that arrived in parts. Memory holds one part."""
    digest = sha256()
    with target.open("wb") as out:
        for name, start, size in file.pieces:
            part = service.session.writer.read_range(object_key(file.upload_id, name), ByteRange(start, start + size))
            digest.update(part)
            out.write(part)
    _check(file, digest.hexdigest())


def _check(file: UploadFileRow, found: str) -> None:
    if found != file.sha256:
        raise CorruptError(f"the stored bytes of {file.path!r} are not those that were received")
