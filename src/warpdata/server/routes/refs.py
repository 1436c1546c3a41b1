"""History and names of a dataset: the head, commits, branches, labels, and differences between versions."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from itertools import islice
from typing import Annotated

from fastapi import APIRouter, Depends, Path, Query, Response

from warpdata.datasets import RestoreRequest, execute_removal, open_dataset, plan_removal, restore, to_revision
from warpdata.errors import BadInputError, ErrorKind, NotFoundError
from warpdata.limits import MAX_REF_LENGTH
from warpdata.repository.catalog import MAIN, Address, HistoryEntry
from warpdata.server.access import Action
from warpdata.server.caller import Caller, Once, ServiceOf
from warpdata.server.index import record_change
from warpdata.server.routes.datasets import Readable
from warpdata.server.routes.parameters import (
    Answer,
    Authorized,
    Body,
    IfMatch,
    RefName,
    RefQuery,
    RefText,
    Sentence,
    check_match,
)
from warpdata.server.service import Service

__all__ = ["CommitView", "RefPath", "Writable", "commit_view", "router"]

router = APIRouter(prefix="/datasets/{workspace}/{name}", tags=["history"])
Writable = Annotated[str, Depends(Authorized(Action.WRITE))]
CommitCursor = Annotated[
    str | None, Query(pattern=r"^[0-9a-f]{64}$", description="The `next_cursor` of the page before.")
]
RefPath = Annotated[str, Path(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length=MAX_REF_LENGTH)]


class HeadView(Answer):
    """The newest commit of a branch. Its version is the ETag of the answer."""

    branch: str
    version: str
    commit: str | None


class HeadBody(Body):
    """The version that shall become the head of the branch."""

    ref: RefText
    message: Sentence = ""


class CommitView(Answer):
    """One step of history."""

    commit: str
    version: str
    parents: tuple[str, ...]
    operation: str
    author: str
    message: str
    time: datetime


class CommitList(Answer):
    """Commits, newest first."""

    commits: list[CommitView]
    next_cursor: str | None


class RefView(Answer):
    """A branch or label, and the version that it names."""

    name: str
    kind: str
    version: str
    commit: str | None


class RefList(Answer):
    """The branches and labels of a dataset, by name."""

    refs: list[RefView]


class NewRefBody(Body):
    """A new branch or label, at a version."""

    name: RefName
    ref: RefText | None = None


class EntryChangeView(Answer):
    """An entry that differs between two versions."""

    section: str
    name: str
    change: str
    shards_added: int
    shards_removed: int
    rows_added: int
    rows_removed: int
    bytes_added: int
    bytes_removed: int


class SampleChangeView(Answer):
    """The samples of all tables that differ, counted by their ids."""

    added: int
    removed: int


class DiffView(Answer):
    """The difference between two versions."""

    older: str
    newer: str
    entries: list[EntryChangeView]
    samples: SampleChangeView


@router.get("/head", summary="Show the head of a branch")
def get_head(service: ServiceOf, dataset_id: Readable, response: Response, branch: RefQuery = None) -> HeadView:
    """Show the newest commit of a branch, by default `main`."""
    found = _head(service, dataset_id, branch or MAIN)
    response.headers["ETag"] = f'"{found.version}"'
    return found


@router.patch("/head", summary="Move the head to an earlier version")
def patch_head(
    *,
    service: ServiceOf,
    caller: Caller,
    dataset_id: Writable,
    body: HeadBody,
    branch: RefQuery = None,
    response: Response,
    if_match: IfMatch = None,
) -> HeadView:
    """Make an earlier version the head again, as a new commit. Another head than `If-Match` says is a conflict."""
    request = RestoreRequest(
        address=Address(dataset_id, body.ref),
        branch=branch or MAIN,
        expected_version=if_match.strip('"') if if_match else None,
        message=body.message or None,
        author=caller.name,
    )
    done = restore(service.session_of(caller.name), request)
    record_change(service, caller, dataset_id, "restore", {"branch": done.branch, "version": done.version})
    response.headers["ETag"] = f'"{done.version}"'
    return HeadView(branch=done.branch, version=done.version, commit=done.commit)


@router.get("/commits", summary="List commits")
def list_commits(
    service: ServiceOf,
    dataset_id: Readable,
    ref: RefQuery = None,
    cursor: CommitCursor = None,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
) -> CommitList:
    """List the commits that led to a version, newest first."""
    found, _ = service.open(dataset_id, ref)
    history = service.session.catalog.history(found, None if cursor else limit + 1)
    if cursor is not None:
        history = _after(history, cursor)
    page = [commit_view(entry) for entry in islice(history, limit + 1)]
    following = page[limit - 1].commit if len(page) > limit else None
    return CommitList(commits=page[:limit], next_cursor=following)


@router.get("/refs", summary="List branches and labels")
def list_refs(service: ServiceOf, dataset_id: Readable) -> RefList:
    """List the branches and labels of a dataset."""
    service.open(dataset_id, None)
    catalog = service.session.catalog
    labels = [
        RefView(name=label.name, kind="label", version=label.version, commit=label.commit)
        for label in catalog.labels(dataset_id)
    ]
    heads = [_head(service, dataset_id, name) for name in catalog.branches(dataset_id)]
    branches = [RefView(name=head.branch, kind="branch", version=head.version, commit=head.commit) for head in heads]
    return RefList(refs=sorted([*branches, *labels], key=lambda one: (one.kind, one.name)))


@router.post("/labels", summary="Give a version a label", status_code=201, response_model=RefView)
def create_label(service: ServiceOf, caller: Caller, dataset_id: Writable, body: NewRefBody, once: Once) -> Response:
    """Give a version a permanent name. Repeating it for the same version changes nothing."""

    def work() -> RefView:
        dataset = open_dataset(service.session_of(caller.name), Address(dataset_id, body.ref))
        made = dataset.snapshot(body.name)
        record_change(service, caller, dataset_id, "create-label", {"name": body.name, "version": made.version})
        return RefView(name=made.name, kind="label", version=made.version, commit=made.commit)

    return once.answer(work)


@router.post("/branches", summary="Start a branch", status_code=201, response_model=RefView)
def create_branch(service: ServiceOf, caller: Caller, dataset_id: Writable, body: NewRefBody, once: Once) -> Response:
    """Start a branch at a version."""

    def work() -> RefView:
        dataset = open_dataset(service.session_of(caller.name), Address(dataset_id, body.ref))
        made = dataset.branch(body.name).version_ref
        record_change(service, caller, dataset_id, "create-branch", {"name": body.name, "version": made.version})
        return RefView(name=body.name, kind="branch", version=made.version, commit=made.commit)

    return once.answer(work)


@router.get("/refs/{ref_name}", summary="Show a branch or label")
def get_ref(service: ServiceOf, dataset_id: Readable, ref_name: RefPath, response: Response) -> RefView:
    """Show the version that a name leads to. It is the ETag of the answer."""
    found, _ = service.open(dataset_id, ref_name)
    response.headers["ETag"] = f'"{found.version}"'
    kind = "label" if found.branch is None else "branch"
    return RefView(name=ref_name, kind=kind, version=found.version, commit=found.commit)


@router.delete("/refs/{ref_name}", summary="Remove a branch or label", status_code=204)
def delete_ref(
    service: ServiceOf, caller: Caller, dataset_id: Writable, ref_name: RefPath, if_match: IfMatch = None
) -> Response:
    """Remove a name. No data is deleted; a label comes before a branch of the same name.

    With `If-Match`, a name that leads to another version is a conflict.
    """
    session = service.session_of(caller.name)
    found = plan_removal(session, Address(dataset_id, ref_name))
    check_match(if_match, f'"{found.version}"', f"the {found.kind} {ref_name!r}")
    execute_removal(session, found)
    record_change(service, caller, dataset_id, f"remove-{found.kind}", {"name": ref_name, "version": found.version})
    return Response(status_code=204)


@router.get("/diff", summary="Compare two versions")
def get_diff(
    service: ServiceOf,
    dataset_id: Readable,
    older: Annotated[str, Query(alias="from", pattern=r"^[A-Za-z0-9][A-Za-z0-9._~@:+-]*$", max_length=MAX_REF_LENGTH)],
    newer: Annotated[str, Query(alias="to", pattern=r"^[A-Za-z0-9][A-Za-z0-9._~@:+-]*$", max_length=MAX_REF_LENGTH)],
) -> DiffView:
    """Compare two versions by entry, and by sample id. Values are not read."""
    _, old = service.open(dataset_id, older)
    _, new = service.open(dataset_id, newer)
    samples = new.diff_samples(old)
    return DiffView(
        older=old.version,
        newer=new.version,
        entries=[EntryChangeView.model_validate(change) for change in new.diff(old).changes],
        samples=SampleChangeView(added=samples.added, removed=samples.removed),
    )


def _head(service: Service, dataset_id: str, branch: str) -> HeadView:
    found, _ = service.open(dataset_id, branch)
    if found.branch is None:
        raise NotFoundError(f"{dataset_id} has no branch {branch!r}", kind=ErrorKind.REF_NOT_FOUND)
    return HeadView(branch=found.branch, version=found.version, commit=found.commit)


def _after(history: Iterator[HistoryEntry], commit: str) -> Iterator[HistoryEntry]:
    """Return the entries behind a commit. `BadInputError` if the history does not have it."""
    for entry in history:
        if entry.commit_id == commit:
            return history
    raise BadInputError("the cursor is not a commit of this history", kind=ErrorKind.TOKEN_MISMATCH)


def commit_view(entry: HistoryEntry) -> CommitView:
    """Return a commit as an answer."""
    found = to_revision(entry)
    return CommitView(**{name: getattr(found, name) for name in CommitView.model_fields})
