"""Collections by name: opened without a request, and created by the first change or on request.

Implements "Layout" of docs/specs/collections.md.
"""

from __future__ import annotations

from contextlib import suppress

from warpdata.collections.tables import ANNOTATIONS, FILES, IMAGES, annotation_schema, check_collection, image_schema
from warpdata.datasets import Dataset, open_dataset
from warpdata.errors import AlreadyExistsError, ConflictError
from warpdata.publish import DatasetBuilder
from warpdata.repository.catalog import MAIN, Address, find_newest
from warpdata.session import Session

__all__ = ["create_empty", "ensure_collection"]


def ensure_collection(session: Session, dataset_id: str) -> Dataset:
    """Open HEAD of a collection; create it if there has never been a dataset of this name."""
    if find_newest(session.writer, dataset_id, MAIN) is None:
        with suppress(ConflictError):  # another writer was first
            create_empty(session, dataset_id, packed=False)
    return check_collection(open_dataset(session, Address(dataset_id, MAIN)))


def create_empty(session: Session, dataset_id: str, *, packed: bool) -> None:
    """Publish a collection without files. Raise `AlreadyExistsError` if the dataset exists."""
    newest = find_newest(session.writer, dataset_id, MAIN)
    if newest is not None and newest.removed is None:
        raise AlreadyExistsError(f"{dataset_id} exists", hint=f"Open it with wd.collection({dataset_id!r}).")
    builder = DatasetBuilder(dataset_id, session)
    builder.add_table(IMAGES, image_schema().empty_table()).add_table(ANNOTATIONS, annotation_schema().empty_table())
    builder.add_artifact(FILES, None, "tar_shards" if packed else "files")
    builder.bind(IMAGES, "path", FILES, "image").bind(ANNOTATIONS, "image", FILES, "image")
    builder.publish("create", expected_version="")
