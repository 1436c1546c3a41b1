"""Connections of a dataset to labelling tools, their checks, and the batches that were sent there."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Path, Query, Request, Response
from pydantic import Field, StringConstraints

from warpdata.errors import BadInputError
from warpdata.limits import MAX_CLASS_NAME_LENGTH, MAX_FILTER_LENGTH, MAX_NAME_LENGTH
from warpdata.server.access import Action, AuditEntry, authorize_credentials, record
from warpdata.server.caller import LOCAL_USER, Caller, Once, ServiceOf
from warpdata.server.database import LabelBatchRow, LabelConnectionRow
from warpdata.server.jobs import NewJob, enqueue, ensure_label_schedule, remove_label_schedule
from warpdata.server.labelling import (
    NewConnection,
    check_parts,
    create_connection,
    events_url,
    find_connection,
    list_batches,
    list_connections,
    poll_connection,
    remove_connection,
)
from warpdata.server.routes.collections import open_collection
from warpdata.server.routes.datasets import Readable
from warpdata.server.routes.parameters import Answer, Body, RefText, dataset_place
from warpdata.server.routes.refs import Writable
from warpdata.server.service import Service

__all__ = ["base_url", "router"]

router = APIRouter(prefix="/datasets/{workspace}/{name}/connections", tags=["labelling"])
ConnectionId = Annotated[str, Path(pattern=r"^[0-9a-f]{32}$")]
_Text = Annotated[str, StringConstraints(pattern=r"^[^\x00-\x1f]+$", min_length=1, max_length=MAX_NAME_LENGTH)]
_Class = Annotated[str, StringConstraints(pattern=r"^[^\x00-\x1f]+$", min_length=1, max_length=MAX_CLASS_NAME_LENGTH)]
_ImagePath = Annotated[str, StringConstraints(min_length=1, max_length=1024)]


class NewConnectionBody(Body):
    """A labelling tool: its address, and the token of a user there."""

    tool: Literal["label-studio", "cvat"] = "label-studio"
    name: _Text = Field(examples=["Label Studio"])
    url: Annotated[str, StringConstraints(pattern=r"^https?://[^\x00-\x20]+$", max_length=2048)] = Field(
        examples=["https://labels.example.com"]
    )
    token: Annotated[str, StringConstraints(pattern=r"^[!-~]+$", min_length=1, max_length=4096)]


class ConnectionView(Answer):
    """A connection, with what a person enters in the tool. Secrets are left out, but for maintainers.

    `ml_backend` predicts the labels of HEAD; another ref in its place predicts those of that version.
    """

    id: str
    tool: str
    name: str
    url: str
    created: str
    last_event: str | None
    endpoint: str
    bucket: str
    access_key: str
    events_url: str
    ml_backend: str
    secret: str | None


class ConnectionList(Answer):
    """The connections of a dataset, oldest first."""

    connections: list[ConnectionView]


class ToolCheckView(Answer):
    """The result of one check. `next_step` is what to set, and where."""

    check: str
    status: Literal["ok", "failed", "note", "skipped"]
    detail: str
    next_step: str | None


class ToolCheckList(Answer):
    """The checks of a connection, in order."""

    checks: list[ToolCheckView]


class NewBatchBody(Body):
    """Images of a version to label: those that are named, or all that match. Without classes, those of the version.

    With `pre_labels`, the labels of the version are predictions to start from.
    """

    title: _Text
    ref: RefText | None = None
    paths: Annotated[list[_ImagePath], Field(min_length=1, max_length=10_000)] | None = None
    filter: Annotated[str, StringConstraints(max_length=MAX_FILTER_LENGTH)] | None = None
    class_name: _Class | None = None
    classes: Annotated[list[_Class], Field(max_length=1000)] = Field(default_factory=list)
    pre_labels: bool = True


class BatchView(Answer):
    """Images that were sent. `project` is that of the tool; `labelled` and `received` are as of `polled`."""

    id: str
    connection_id: str
    title: str
    version: str
    ref: str
    project: str | None
    project_url: str | None
    tasks: int
    labelled: int
    received: int
    author: str
    job_id: str
    error: str | None
    polled: str | None
    created: str


class BatchList(Answer):
    """The batches of a connection, newest first."""

    batches: list[BatchView]


@router.get("", summary="List connections")
def get_connections(request: Request, service: ServiceOf, caller: Caller, dataset_id: Readable) -> ConnectionList:
    """List the labelling tools that are connected to a dataset."""
    is_writer = caller.may(Action.WRITE, dataset_place(dataset_id))
    rows = list_connections(service, dataset_place(dataset_id))
    return ConnectionList(connections=[_view(request, service, row, shows_secret=is_writer) for row in rows])


@router.post("", summary="Connect a labelling tool", status_code=201, response_model=ConnectionView)
def post_connection(
    *, request: Request, service: ServiceOf, caller: Caller, dataset_id: Writable, body: NewConnectionBody, once: Once
) -> Response:
    """Connect a tool to a collection, with an S3 key of its own. Only a user who signed in may, because it is a key."""
    authorize_credentials(caller)
    if caller.user_id == LOCAL_USER:
        raise BadInputError(
            "a service without sign-in has no users, and a connection has a key of one",
            hint="Start `warp serve` without --no-sign-in.",
        )
    open_collection(service, dataset_id)
    place = dataset_place(dataset_id)

    def work() -> ConnectionView:
        new = NewConnection(place, body.tool, body.name, body.url, body.token, caller.user_id)
        row = create_connection(service, new)
        with service.database.write() as db:
            ensure_label_schedule(service, db, place, caller)
            record(service, db, caller, AuditEntry("connect-tool", row.id, place, {"tool": row.tool, "url": row.url}))
        return _view(request, service, row, shows_secret=True)

    return once.answer(work, keeps_body=False)


@router.delete("/{connection_id}", summary="Disconnect a labelling tool", status_code=204)
def delete_connection(
    service: ServiceOf, caller: Caller, dataset_id: Writable, connection_id: ConnectionId
) -> Response:
    """End a connection and its S3 key. Projects of the tool stay there, and can no longer read images."""
    place = dataset_place(dataset_id)
    row = find_connection(service, place, connection_id)
    remove_connection(service, row)
    with service.database.write() as db:
        if not list_connections(service, place):
            remove_label_schedule(db, place)
        record(service, db, caller, AuditEntry("disconnect-tool", row.id, place, {"tool": row.tool, "url": row.url}))
    return Response(status_code=204)


@router.post("/{connection_id}/check", summary="Check a connection", response_model=ToolCheckList)
def post_check(
    *,
    request: Request,
    service: ServiceOf,
    dataset_id: Writable,
    connection_id: ConnectionId,
    part: Annotated[Literal["gateway", "tool"], Query(description="The side that is asked.")] = "gateway",
) -> ToolCheckList:
    """Check one side of a connection, as the tool and a browser use it. What is red says the line to set.

    The tool is asked to make a project, to try the storage and to send a webhook; the project is removed again.
    """
    row = find_connection(service, dataset_place(dataset_id), connection_id)
    found = check_parts(service, row, base_url(request, service), part)
    return ToolCheckList(checks=[ToolCheckView.model_validate(one) for one in found])


@router.get("/{connection_id}/batches", summary="List batches")
def get_batches(service: ServiceOf, dataset_id: Readable, connection_id: ConnectionId) -> BatchList:
    """List what was sent to a tool, and how far it is labelled."""
    row = find_connection(service, dataset_place(dataset_id), connection_id)
    return BatchList(batches=[_batch_view(row, one) for one in list_batches(service, row.id)])


@router.post("/{connection_id}/batches", summary="Send a batch", status_code=202, response_model=BatchView)
def post_batch(
    *,
    request: Request,
    service: ServiceOf,
    caller: Caller,
    dataset_id: Writable,
    connection_id: ConnectionId,
    body: NewBatchBody,
    once: Once,
) -> Response:
    """Send images of a version to Label Studio as a project, as a job. The version is fixed now."""
    place = dataset_place(dataset_id)
    row = find_connection(service, place, connection_id)
    if row.tool != "label-studio":
        raise BadInputError(
            "batches go to Label Studio", hint="In CVAT, make a task from the cloud storage and its manifest.jsonl."
        )
    found, dataset = service.open(dataset_id, body.ref)
    if body.filter:
        dataset.table("images").filter(body.filter)

    def work() -> BatchView:
        batch_id = service.new_id()
        given = body.model_dump(exclude={"ref"}) | {"version": found.version, "base": base_url(request, service)}
        given |= {"batch_id": batch_id, "connection_id": row.id, "author": caller.name}
        with service.database.write() as db:
            job = enqueue(service, db, NewJob("label-batch", caller.user_id, place, given))
            batch = LabelBatchRow(
                id=batch_id,
                connection_id=row.id,
                title=body.title,
                version=found.version,
                ref=body.ref or "HEAD",
                project=None,
                tasks=0,
                labelled=0,
                received=0,
                author=caller.name,
                job_id=job.id,
                error=None,
                polled=None,
                created=service.now(),
            )
            db.add(batch)
            record(service, db, caller, AuditEntry("send-batch", batch_id, place, {"version": found.version}))
        return _batch_view(row, batch)

    return once.answer(work, status=202)


@router.post("/{connection_id}/poll", summary="Ask a tool for labels", response_model=BatchList)
def post_poll(service: ServiceOf, dataset_id: Writable, connection_id: ConnectionId) -> BatchList:
    """Ask a tool how far its batches are, and take labels that did not arrive by themselves."""
    row = find_connection(service, dataset_place(dataset_id), connection_id)
    poll_connection(service, row)
    return BatchList(batches=[_batch_view(row, one) for one in list_batches(service, row.id)])


def base_url(request: Request, service: Service) -> str:
    """Return the address under which tools and browsers reach this service."""
    return (service.options.public_url or str(request.base_url)).rstrip("/")


def _view(request: Request, service: Service, row: LabelConnectionRow, *, shows_secret: bool) -> ConnectionView:
    base = base_url(request, service)
    return ConnectionView(
        id=row.id,
        tool=row.tool,
        name=row.name,
        url=row.url,
        created=row.created,
        last_event=row.last_event,
        endpoint=f"{base}/s3",
        bucket=row.workspace,
        access_key=row.access_key,
        events_url=events_url(base, row),
        ml_backend=f"{base}/api/v1/labelling/{row.id}/ml/HEAD",
        secret=row.secret if shows_secret else None,
    )


def _batch_view(row: LabelConnectionRow, batch: LabelBatchRow) -> BatchView:
    names = [name for name in BatchView.model_fields if name != "project_url"]
    url = None if batch.project is None else f"{row.url}/projects/{batch.project}"
    return BatchView(**{name: getattr(batch, name) for name in names}, project_url=url)
