"""Functions that open and create collections."""

from __future__ import annotations

from warpdata.collections.collection import Collection
from warpdata.collections.creation import create_empty
from warpdata.primitives.arguments import check_arguments
from warpdata.repository.catalog import check_dataset_id
from warpdata.session import Session, connect
from warpdata.settings import Settings

__all__ = ["collection", "create_collection"]


@check_arguments
def collection(dataset_id: str, *, store: str | Session | None = None, settings: Settings | None = None) -> Collection:
    """Open a collection: labelled files with a HEAD and versions. Makes no request.

    The first `add` or `upload` creates a collection that does not exist.
    """
    session = store if isinstance(store, Session) else connect(store, settings)
    return Collection(session, check_dataset_id(dataset_id))


@check_arguments
def create_collection(
    dataset_id: str, *, packed: bool = False, store: str | Session | None = None, settings: Settings | None = None
) -> Collection:
    """Create a collection without files. Raise `AlreadyExistsError` if the dataset exists.

    Each file is an object of its own, which labelling tools can open by a signed URL. `packed` stores files in tar
    shards, for many small files; a purge then writes the shards of its files again.
    """
    session = store if isinstance(store, Session) else connect(store, settings)
    create_empty(session, check_dataset_id(dataset_id), packed=packed)
    return Collection(session, dataset_id)
