"""The index of the store: one row for each dataset, so that lists need no listing of the store.

The store is the truth. A dataset that was published without the service enters the index at the next synchronization,
or when a request opens it. `warp server reindex` fills an empty index completely.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from sqlalchemy import and_, delete, or_, select, true
from sqlalchemy.exc import IntegrityError
from sqlalchemy.sql.elements import ColumnElement

from warpdata.kinds import entries_by_kind
from warpdata.kinds.artifacts import ArtifactInfo
from warpdata.repository.catalog import MAIN, Address, find_head, read_commit
from warpdata.repository.manifest import Manifest
from warpdata.server.access import AuditEntry, Place, Principal, Role, record
from warpdata.server.database import DatasetRow
from warpdata.server.event_log import ServiceEvent, add_event
from warpdata.server.service import Service

__all__ = ["Synchronized", "forget_dataset", "index_dataset", "record_change", "synchronize", "visible_to"]


@dataclass(frozen=True, slots=True)
class Synchronized:
    """The result of a synchronization: datasets in the store, and those whose row changed."""

    datasets: int
    changed: int
    removed: int


def synchronize(
    service: Service, *, after: str = "", on_dataset: Callable[[str, int, int], None] | None = None
) -> Synchronized:
    """Bring the index to the state of the store. Costs one small read for each dataset that has not changed.

    `after` continues an interrupted run behind this dataset. `on_dataset` hears of each dataset that is done.
    """
    found = service.session.catalog.list_datasets().dataset_ids
    with service.database.read() as db:
        known = set(db.scalars(select(DatasetRow.id)).all())
    changed = 0
    for at, dataset_id in enumerate(found, 1):
        if dataset_id > after:
            changed += index_dataset(service, dataset_id)
            if on_dataset is not None:
                on_dataset(dataset_id, at, len(found))
    gone = sorted(known - set(found))
    _forget(service, gone)
    return Synchronized(len(found), changed, len(gone))


def index_dataset(service: Service, dataset_id: str) -> bool:
    """Bring the row of one dataset up to date. Return whether it changed."""
    head = find_head(service.session.reader, dataset_id, MAIN)
    if head is None:
        return forget_dataset(service, dataset_id)
    with service.database.read() as db:
        row = db.get(DatasetRow, dataset_id)
    if row is not None and row.commit == head.commit:
        return False
    _, manifest = service.session.catalog.open(Address(dataset_id, head.version))
    commit = read_commit(service.session.reader, dataset_id, head.commit)
    workspace, _, name = dataset_id.partition("/")
    made = DatasetRow(
        id=dataset_id,
        workspace=workspace,
        name=name,
        version=head.version,
        commit=head.commit,
        updated=commit.time,
        row_count=manifest.row_count,
        size_bytes=manifest.data_bytes,
        file_count=_count_files(manifest),
        sections={kind.section: sorted(entries) for kind, entries in entries_by_kind(manifest) if entries},
    )
    data = {"dataset": dataset_id, "version": head.version, "commit": head.commit}
    event = ServiceEvent("head", workspace, name, data)
    with suppress(IntegrityError), service.database.write() as db:  # another process indexes the same head
        db.merge(made)
        add_event(service, db, event)
    return True


def _count_files(manifest: Manifest) -> int:
    """Return the number of files in all artifacts."""
    return sum(
        info.members
        for kind, entries in entries_by_kind(manifest)
        for info in (kind.describe(name, entry) for name, entry in entries.items())
        if isinstance(info, ArtifactInfo)
    )


def record_change(service: Service, caller: Principal, dataset_id: str, action: str, detail: Mapping[str, Any]) -> None:
    """Record a change that the store has, and bring the index up to date."""
    workspace, _, name = dataset_id.partition("/")
    with service.database.write() as db:
        record(service, db, caller, AuditEntry(action, dataset_id, Place(workspace, name), detail))
    index_dataset(service, dataset_id)


def visible_to(caller: Principal) -> ColumnElement[bool]:
    """Return the condition that keeps the datasets which the caller may read, in the query itself."""
    roles, reach = caller.roles, caller.reach
    within: ColumnElement[bool] = true() if reach is None else DatasetRow.workspace == reach.workspace
    if reach is not None and reach.dataset is not None:
        within = and_(within, DatasetRow.name == reach.dataset)
    if roles.is_admin:
        return within
    hidden = [f"{workspace}/{name}" for (workspace, name), role in roles.datasets.items() if role is Role.NONE]
    shown = [f"{workspace}/{name}" for (workspace, name), role in roles.datasets.items() if role is not Role.NONE]
    allowed = or_(DatasetRow.workspace.in_(list(roles.workspaces)), DatasetRow.id.in_(shown))
    return and_(within, allowed, DatasetRow.id.not_in(hidden))


def forget_dataset(service: Service, dataset_id: str) -> bool:
    """Remove a dataset from the index. Return whether it was there."""
    return _forget(service, [dataset_id]) > 0


def _forget(service: Service, dataset_ids: Iterable[str]) -> int:
    wanted = list(dataset_ids)
    if not wanted:
        return 0
    with service.database.write() as db:
        return len(db.scalars(delete(DatasetRow).where(DatasetRow.id.in_(wanted)).returning(DatasetRow.id)).all())
