"""Functions that open and create collections."""

from __future__ import annotations

from warpdata.collections.collection import Collection
from warpdata.collections.creation import create_empty
from warpdata.collections.service_collection import ServiceCollection, create_at_service
from warpdata.primitives.arguments import check_arguments
from warpdata.repository.catalog import check_dataset_id
from warpdata.session import Session, connect
from warpdata.settings import Settings
from warpdata.storage import ServiceStore

__all__ = ["collection", "create_collection"]


@check_arguments
def collection(dataset_id: str, *, store: str | Session | None = None, settings: Settings | None = None) -> Collection:
    """Open a collection: labelled files with a HEAD and versions. Makes no request.

    The first `add` or `upload` creates a collection that does not exist. Behind a service, `wd.connect(…)` is the
    store, and the service makes the changes.
    """
    session = store if isinstance(store, Session) else connect(store, settings)
    return _open(session, check_dataset_id(dataset_id))


@check_arguments
def create_collection(
    dataset_id: str, *, packed: bool = False, store: str | Session | None = None, settings: Settings | None = None
) -> Collection:
    """Create a collection without files. Raise `AlreadyExistsError` if the dataset exists.

    Each file is an object of its own, which labelling tools can open by a signed URL. `packed` stores files in tar
    shards, for many small files; a purge then writes the shards of its files again.
    """
    session = store if isinstance(store, Session) else connect(store, settings)
    opened = _open(session, check_dataset_id(dataset_id))
    if isinstance(opened, ServiceCollection):
        create_at_service(opened.client, dataset_id, packed=packed)
    else:
        create_empty(session, dataset_id, packed=packed)
    return opened


def _open(session: Session, dataset_id: str) -> Collection:
    is_service = isinstance(session.writer, ServiceStore)
    return ServiceCollection(session, dataset_id) if is_service else Collection(session, dataset_id)
