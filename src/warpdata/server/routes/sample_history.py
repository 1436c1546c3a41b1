"""The commits that changed a sample: its row, and its annotations."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Path, Query

from warpdata.collections import is_collection, read_annotations
from warpdata.datasets import Dataset
from warpdata.errors import NotFoundError, WarpError
from warpdata.repository.catalog import HistoryEntry
from warpdata.server.caller import ServiceOf
from warpdata.server.cells import json_rows
from warpdata.server.routes.datasets import Readable
from warpdata.server.routes.parameters import Answer, EntryName, RefQuery
from warpdata.server.routes.refs import CommitView, commit_view
from warpdata.server.service import Service

__all__ = ["router"]

router = APIRouter(prefix="/datasets/{workspace}/{name}", tags=["samples"])
_MAX_COLUMNS = 64
_State = tuple[dict[str, Any], dict[str, dict[str, Any]]]
"""The values of a row, and its annotations by id."""


class SampleCommitView(Answer):
    """What one commit changed of a sample: "added", "changed" or "removed".

    `columns` names the values that differ. The others count annotations.
    """

    commit: CommitView
    change: str
    columns: list[str]
    annotations_added: int
    annotations_removed: int
    annotations_changed: int


class SampleHistoryView(Answer):
    """The commits that changed a sample, newest first. `searched` commits were compared; a lost version ends them.

    `is_complete` tells that the first commit of the dataset was reached.
    """

    version: str
    table: str
    sample_id: int
    changes: list[SampleCommitView]
    searched: int
    is_complete: bool


@router.get("/samples/{sample_id}/history", summary="List the commits that changed a sample")
def get_sample_history(
    *,
    service: ServiceOf,
    dataset_id: Readable,
    sample_id: Annotated[int, Path(ge=0, le=2**53)],
    ref: RefQuery = None,
    table: EntryName = None,
    limit: Annotated[int, Query(ge=1, le=100, description="The number of commits to compare.")] = 50,
) -> SampleHistoryView:
    """Compare a sample in each version with the one before. Versions whose tables are equal are not read."""
    found, dataset = service.open(dataset_id, ref)
    name = dataset.table(table).name
    entries = list(service.session.catalog.history(found, limit + 1))
    newer = _read(dataset, name, sample_id, None)
    if newer is None:
        raise NotFoundError(f"table {name!r} has no sample {sample_id} in this version", hint="Take an id of a page.")
    changes: list[SampleCommitView] = []
    path = newer[0].get("path")
    state: _State | None = newer
    searched = 0
    for at, entry in enumerate(entries[:limit]):
        before = entries[at + 1] if at + 1 < len(entries) else None
        try:
            older = (
                None
                if before is None
                else _before(service, dataset_id, (entry, before), (name, sample_id, path), state)
            )
        except WarpError:
            break  # a version that was erased
        searched += 1
        change = _compare(entry, older, state)
        if change is not None:
            changes.append(change)
        state = older
    return SampleHistoryView(
        version=dataset.version,
        table=name,
        sample_id=sample_id,
        changes=changes,
        searched=searched,
        is_complete=searched == len(entries),
    )


def _before(
    service: Service,
    dataset_id: str,
    pair: tuple[HistoryEntry, HistoryEntry],
    place: tuple[str, int, Any],
    state: _State | None,
) -> _State | None:
    """Return the sample before a commit. If the commit left the tables as they were, it is the same."""
    newer, older = (service.open(dataset_id, entry.commit.version)[1] for entry in pair)
    table, sample_id, path = place
    if newer.manifest.tables == older.manifest.tables:
        return state
    return _read(older, table, sample_id, path) if table in older.tables else None


def _read(dataset: Dataset, table: str, sample_id: int, path: Any) -> _State | None:
    """Return a sample of a version with its annotations; None if the version does not have it."""
    opened = dataset.table(table).raw()
    names = [field.name for field in opened.schema() if not str(field.type).startswith("fixed_size_list")]
    try:
        rows = opened.select(names[:_MAX_COLUMNS]).take(ids=[sample_id])
    except NotFoundError:
        return None
    ((values, _),) = json_rows(rows)
    path = values.get("path", path)
    held: list[dict[str, Any]] = []
    if table == "images" and isinstance(path, str) and is_collection(dataset):
        held = read_annotations(dataset, [path])[path]
    return values, {str(one["id"]): one for one in held}


def _compare(entry: HistoryEntry, older: _State | None, newer: _State | None) -> SampleCommitView | None:
    """Return what a commit changed; None if nothing."""
    if older is None and newer is None:
        return None
    change = "added" if older is None else "removed" if newer is None else "changed"
    (old, was), (new, has) = older or ({}, {}), newer or ({}, {})
    columns = [name for name in new if new[name] != old.get(name)] if change == "changed" else []
    altered = sum(was[one] != has[one] for one in was.keys() & has.keys())
    counts = {
        "annotations_added": len(has.keys() - was.keys()),
        "annotations_removed": len(was.keys() - has.keys()),
        "annotations_changed": altered,
    }
    if change == "changed" and not columns and not any(counts.values()):
        return None
    return SampleCommitView(commit=commit_view(entry), change=change, columns=columns, **counts)
