"""`wd.connect`: a session that opens datasets and collections by name, on a store or a service."""

from __future__ import annotations

from dataclasses import dataclass, fields

from warpdata.collections import Collection, collection, create_collection
from warpdata.datasets import Dataset, open_dataset
from warpdata.primitives.arguments import check_arguments
from warpdata.repository.catalog import parse_address
from warpdata.session import Session
from warpdata.session import connect as connect_session
from warpdata.settings import Settings

__all__ = ["Connection", "connect"]


@dataclass(frozen=True, repr=False)
class Connection(Session):
    """An open store, or a service that has one. Whatever takes a `store` also takes this object."""

    def dataset(self, address: str) -> Dataset:
        """Open a version of a dataset, as `wd.dataset` does."""
        return open_dataset(self, parse_address(address))

    def collection(self, dataset_id: str) -> Collection:
        """Open a collection, as `wd.collection` does."""
        return collection(dataset_id, store=self)

    def create_collection(self, dataset_id: str, *, packed: bool = False) -> Collection:
        """Create a collection without files, as `wd.create_collection` does."""
        return create_collection(dataset_id, packed=packed, store=self)

    def datasets(self, workspace: str | None = None) -> list[str]:
        """List the published datasets that the user may read, of one workspace or all."""
        return self.catalog.datasets(workspace.rstrip("/") if workspace else None)


@check_arguments
def connect(
    store: str | None = None, settings: Settings | None = None, *, mode: str | None = None, token: str | None = None
) -> Connection:
    """Open a store, by default that of the settings, or a service: `connect("https://HOST", token="wd_…")`.

    The address `warp+https://HOST` is always that of a service. Its token is that of the argument, of WARP_TOKEN or of
    `warp login`. Opening a service makes one request, which says who the user is; opening a store makes none. Budgets
    of the settings (`io_concurrency`, `threads`, `read_memory_bytes`) become those of the process.
    """
    session = connect_session(store, settings, mode=mode, token=token)
    return Connection(**{one.name: getattr(session, one.name) for one in fields(Session)})
