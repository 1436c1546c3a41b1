"""Stored objects by key: who may read which, and which listings.

A key under `datasets/` belongs to its dataset. A blob belongs to every dataset that has a version with it, so it is
served to those who may read one of them. Every other key does not exist: leases, pins, and lists of the collector.
"""

from __future__ import annotations

from collections.abc import Iterator

from sqlalchemy import select

from warpdata.errors import ObjectNotFoundError
from warpdata.primitives.hashing import blob_key, is_digest
from warpdata.repository.catalog import STORE_MARKER, dataset_prefix, is_dataset_id
from warpdata.server.access import Action, Place, Principal
from warpdata.server.database import DatasetRow
from warpdata.server.index import visible_to
from warpdata.server.service import Service
from warpdata.storage import ObjectInfo, check_key

__all__ = ["authorize_read", "dataset_of", "digest_of", "list_folders", "list_objects", "recall_read"]

_DATASETS = "datasets"


def authorize_read(service: Service, caller: Principal, key: str) -> None:
    """Return if the caller may read an object. Otherwise it does not exist, whether it is stored or not."""
    dataset_id, digest = dataset_of(key), digest_of(key)
    if dataset_id is not None:
        if not _may_read(caller, dataset_id):
            raise no_object(key)
        service.blobs.note_use(caller.user_id, dataset_id)
    elif digest is not None:
        if not may_read_blob(service, caller, digest):
            raise no_object(key)
    elif key != STORE_MARKER:
        raise no_object(key)


def recall_read(service: Service, caller: Principal, digest: str) -> bool:
    """Return whether a dataset that the caller reads, and may read, is known to have a blob. Reads nothing."""
    return any(
        _may_read(caller, dataset_id) and service.blobs.is_known(dataset_id, digest)
        for dataset_id in service.blobs.recent(caller.user_id)
    )


def may_read_blob(service: Service, caller: Principal, digest: str) -> bool:
    """Return whether a dataset that the caller may read has the blob. Datasets that it read last come first."""
    reader, blobs = service.session.writer, service.blobs
    tried = set()
    for dataset_id in _datasets_to_search(service, caller):
        if dataset_id not in tried and _may_read(caller, dataset_id):
            tried.add(dataset_id)
            if blobs.has(reader, dataset_id, digest):
                blobs.note_use(caller.user_id, dataset_id)
                return True
    return False


def _datasets_to_search(service: Service, caller: Principal) -> Iterator[str]:
    yield from service.blobs.recent(caller.user_id)
    with service.database.read() as db:
        found = db.scalars(select(DatasetRow.id).where(visible_to(caller)).order_by(DatasetRow.updated.desc())).all()
    yield from found


def list_objects(service: Service, caller: Principal, prefix: str) -> Iterator[ObjectInfo]:
    """Yield the objects below a prefix by key, of those datasets that the caller may read."""
    writer = service.session.writer
    dataset_id = dataset_of(f"{prefix}/")
    if dataset_id is not None:
        if _may_read(caller, dataset_id):
            yield from writer.list_objects(prefix)
        return
    for one in sorted(_datasets_below(service, caller, prefix), key=lambda one: f"{one}/"):
        yield from writer.list_objects(dataset_prefix(one))


def list_folders(service: Service, caller: Principal, prefix: str) -> list[str]:
    """Return the directories below a prefix that the caller may see: workspaces, datasets and what is in a dataset."""
    dataset_id = dataset_of(f"{prefix}/")
    if dataset_id is not None:
        return service.session.writer.list_folders(prefix) if _may_read(caller, dataset_id) else []
    at = prefix.count("/")
    return sorted({one.split("/")[at] for one in _datasets_below(service, caller, prefix)})


def _datasets_below(service: Service, caller: Principal, prefix: str) -> list[str]:
    """Return the datasets that the caller may read, for `datasets` or `datasets/WORKSPACE`; none for other prefixes."""
    parts = prefix.split("/")
    if parts[0] != _DATASETS or len(parts) > 2:
        return []
    query = select(DatasetRow.id).where(visible_to(caller))
    if len(parts) == 2:
        query = query.where(DatasetRow.workspace == parts[1])
    with service.database.read() as db:
        return list(db.scalars(query).all())


def dataset_of(key: str) -> str | None:
    """Return the dataset that a key belongs to, or None."""
    parts = key.split("/", 3)
    dataset_id = "/".join(parts[1:3])
    return dataset_id if len(parts) == 4 and parts[0] == _DATASETS and is_dataset_id(dataset_id) else None


def digest_of(key: str) -> str | None:
    """Return the digest of the key of a blob, in any generation, or None."""
    name = check_key(key).rpartition("/")[2]
    digest, dot, generation = name.partition(".")
    is_blob = is_digest(digest) and key == blob_key(digest, generation if dot else None)
    return digest if is_blob else None


def no_object(key: str) -> ObjectNotFoundError:
    """Return the one error for an object that is not stored, and one that the caller may not read."""
    return ObjectNotFoundError(f"there is no object {key!r}")


def _may_read(caller: Principal, dataset_id: str) -> bool:
    workspace, _, name = dataset_id.partition("/")
    return caller.may(Action.READ, Place(workspace, name))
