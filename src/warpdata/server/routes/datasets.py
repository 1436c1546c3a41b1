"""Datasets: lists from the index, and what one version holds."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query
from sqlalchemy import select

from warpdata.datasets import Dataset
from warpdata.kinds import entries_by_kind
from warpdata.repository.catalog import VersionRef
from warpdata.server.access import Action, Principal
from warpdata.server.caller import Caller, ServiceOf
from warpdata.server.database import DatasetRow
from warpdata.server.index import index_dataset, visible_to
from warpdata.server.routes.parameters import Answer, Authorized, RefQuery, dataset_place
from warpdata.server.samples import describe_schema

__all__ = ["Readable", "router"]

router = APIRouter(prefix="/datasets", tags=["datasets"])
Readable = Annotated[str, Depends(Authorized(Action.READ))]


class DatasetView(Answer):
    """A dataset in a list, as the head of `main` was when it was indexed."""

    id: str
    workspace: str
    name: str
    version: str
    commit: str
    updated: str
    rows: int
    size_bytes: int
    sections: dict[str, list[str]]
    role: str


class DatasetList(Answer):
    """Datasets in order of their ids."""

    datasets: list[DatasetView]
    next_cursor: str | None


class EntryView(Answer):
    """An entry of a version, such as a table: its name, its section, and the facts of its kind."""

    section: str
    name: str
    size_bytes: int
    facts: dict[str, Any]


class VersionView(Answer):
    """One version of a dataset, and the branch or label that led to it."""

    id: str
    version: str
    commit: str | None
    branch: str | None
    label: str | None
    rows: int
    size_bytes: int
    entries: list[EntryView]
    metadata: dict[str, Any]
    role: str


class TableSchemaView(Answer):
    """The columns of a table. A column that refers to files names their artifact."""

    table: str
    rows: int
    columns: list[ColumnView]


class ColumnView(Answer):
    """A column and its Arrow type."""

    name: str
    type: str
    artifact: str | None
    refers_to: str | None


class SchemaView(Answer):
    """The tables of a version with their columns."""

    version: str
    tables: list[TableSchemaView]


@router.get("", summary="List datasets")
def list_datasets(
    service: ServiceOf,
    caller: Caller,
    workspace: Annotated[str | None, Query(pattern=r"^[a-z0-9_-]+$", max_length=128)] = None,
    contains: Annotated[str | None, Query(pattern=r"^[a-z0-9_/-]+$", max_length=128)] = None,
    cursor: Annotated[str | None, Query(pattern=r"^[a-z0-9_-]+/[a-z0-9_-]+$", max_length=260)] = None,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
) -> DatasetList:
    """List the datasets that the caller may read, by id. Those published elsewhere appear within half a minute."""
    query = select(DatasetRow).where(visible_to(caller)).order_by(DatasetRow.id).limit(limit + 1)
    if workspace is not None:
        query = query.where(DatasetRow.workspace == workspace)
    if contains is not None:
        query = query.where(DatasetRow.id.contains(contains, autoescape=True))
    if cursor is not None:
        query = query.where(DatasetRow.id > cursor)
    with service.database.read() as db:
        rows = db.scalars(query).all()
    shown = [_dataset_view(row, caller) for row in rows[:limit]]
    return DatasetList(datasets=shown, next_cursor=shown[-1].id if len(rows) > limit else None)


@router.get("/{workspace}/{name}", summary="Show a version")
def get_dataset(service: ServiceOf, caller: Caller, dataset_id: Readable, ref: RefQuery = None) -> VersionView:
    """Show what a version holds, by default the head of `main`."""
    found, dataset = service.open(dataset_id, ref)
    if ref is None:
        index_dataset(service, dataset_id)
    return version_view(found, dataset, caller)


@router.get("/{workspace}/{name}/schema", summary="Show tables and columns")
def get_schema(service: ServiceOf, dataset_id: Readable, ref: RefQuery = None) -> SchemaView:
    """Show the columns of every table of a version."""
    _, dataset = service.open(dataset_id, ref)
    tables = [dataset.table(name) for name in dataset.tables]
    return SchemaView(
        version=dataset.version,
        tables=[
            TableSchemaView(
                table=table.name,
                rows=table.unfiltered_count,
                columns=[ColumnView(**column) for column in describe_schema(dataset, table)],
            )
            for table in tables
        ],
    )


def version_view(found: VersionRef, dataset: Dataset, caller: Principal) -> VersionView:
    """Return what the manifest of a version says."""
    entries = [
        EntryView(section=kind.section, name=info.name, size_bytes=info.size_bytes, facts=_facts(info))
        for kind, named in entries_by_kind(dataset.manifest)
        for info in (kind.describe(name, entry) for name, entry in named.items())
    ]
    return VersionView(
        id=dataset.id,
        version=found.version,
        commit=found.commit,
        branch=found.branch,
        label=found.label,
        rows=dataset.manifest.row_count,
        size_bytes=dataset.manifest.data_bytes,
        entries=entries,
        metadata=dict(dataset.manifest.metadata or {}),
        role=caller.role_at(dataset_place(dataset.id)),
    )


def _facts(info: Any) -> dict[str, Any]:
    names = [name for name in info.__slots__ if name not in ("name", "size_bytes")]
    return {name: getattr(info, name) for name in names}


def _dataset_view(row: DatasetRow, caller: Principal) -> DatasetView:
    return DatasetView(
        id=row.id,
        workspace=row.workspace,
        name=row.name,
        version=row.version,
        commit=row.commit,
        updated=row.updated,
        rows=row.row_count,
        size_bytes=row.size_bytes,
        sections=row.sections,
        role=caller.role_at(dataset_place(row.id)),
    )
