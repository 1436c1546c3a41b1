"""Schedules: jobs that start again and again, of a dataset or of the whole service."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Path, Query, Response
from pydantic import Field
from sqlalchemy import select

from warpdata.server.access import Action, AuditEntry, Place, Principal, authorize, authorize_admin, record
from warpdata.server.caller import Caller, Once, ServiceOf
from warpdata.server.database import ScheduleRow
from warpdata.server.jobs import NewSchedule, create_schedule, find_schedule
from warpdata.server.jobs.schedules import no_schedule
from warpdata.server.routes.jobs import Writable
from warpdata.server.routes.parameters import Answer, Body, dataset_place
from warpdata.server.service import Service

__all__ = ["router"]

router = APIRouter(tags=["schedules"])
ScheduleId = Annotated[str, Path(pattern=r"^[0-9a-z-]{1,32}$")]
_Seconds = Annotated[int, Field(ge=300, le=366 * 24 * 3600)]


class NewScheduleBody(Body):
    """A job for a dataset, every so many seconds. With `deep`, an integrity check reads all bytes.

    `labels` takes labels from the S3 gateway and from connected tools into the inbox.
    """

    kind: Literal["integrity", "scrub", "labels"]
    every_s: _Seconds = 24 * 3600
    deep: bool = False


class NewServiceScheduleBody(Body):
    """A job for the service, every so many seconds."""

    kind: Literal["synchronize", "scrub"]
    every_s: _Seconds = 24 * 3600


class ScheduleChangeBody(Body):
    """What changes. Members that are left out stay."""

    every_s: _Seconds | None = None
    is_active: bool | None = None


class ScheduleView(Answer):
    """A schedule. Without a workspace, it is for the whole service."""

    id: str
    kind: str
    workspace: str
    dataset: str
    every_s: int
    next_run: str
    last_job_id: str | None
    is_active: bool
    created: str


class ScheduleList(Answer):
    """Schedules, oldest first."""

    schedules: list[ScheduleView]
    next_cursor: str | None


@router.get("/schedules", summary="List schedules")
def list_schedules(
    service: ServiceOf,
    caller: Caller,
    cursor: Annotated[str | None, Query(pattern=r"^[0-9TZ:.-]{24}_[0-9a-z-]{1,32}$")] = None,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
) -> ScheduleList:
    """List the schedules of datasets that the caller may read. Administrators also see those of the service."""
    query = select(ScheduleRow).order_by(ScheduleRow.created, ScheduleRow.id)
    if cursor is not None:
        created, _, last = cursor.partition("_")
        same = (ScheduleRow.created == created) & (ScheduleRow.id > last)
        query = query.where((ScheduleRow.created > created) | same)
    with service.database.read() as db:
        rows = [row for row in db.scalars(query) if _is_visible(caller, row)][: limit + 1]
    following = f"{rows[limit - 1].created}_{rows[limit - 1].id}" if len(rows) > limit else None
    shown = [ScheduleView.model_validate(row) for row in rows[:limit]]
    return ScheduleList(schedules=shown, next_cursor=following)


@router.post("/schedules", summary="Create a schedule for the service", status_code=201, response_model=ScheduleView)
def post_service_schedule(service: ServiceOf, caller: Caller, body: NewServiceScheduleBody, once: Once) -> Response:
    """Start a job for the whole service again and again. Administrators may."""
    authorize_admin(caller, "route /schedules")
    return _create(service, caller, NewSchedule(body.kind, caller.user_id, body.every_s), once)


@router.post(
    "/datasets/{workspace}/{name}/schedules",
    summary="Create a schedule",
    status_code=201,
    response_model=ScheduleView,
)
def post_schedule(
    service: ServiceOf, caller: Caller, dataset_id: Writable, body: NewScheduleBody, once: Once
) -> Response:
    """Start a job for a dataset again and again. A job that still runs is not started twice."""
    service.open(dataset_id, None)
    arguments: dict[str, Any] = {"author": caller.name, "refs": None, "deep": body.deep}
    new = NewSchedule(body.kind, caller.user_id, body.every_s, dataset_place(dataset_id), arguments)
    return _create(service, caller, new, once)


@router.patch("/schedules/{schedule_id}", summary="Change a schedule")
def patch_schedule(
    service: ServiceOf, caller: Caller, schedule_id: ScheduleId, body: ScheduleChangeBody
) -> ScheduleView:
    """Change the interval, or switch a schedule off and on. The next job starts after the new interval."""
    _authorize_change(service, caller, schedule_id)
    with service.database.write() as db:
        row = db.get_one(ScheduleRow, schedule_id)
        row.every_s = row.every_s if body.every_s is None else body.every_s
        row.is_active = row.is_active if body.is_active is None else body.is_active
        row.next_run = service.later(row.every_s)
        record(service, db, caller, AuditEntry("change-schedule", schedule_id, _place_of(row)))
    return ScheduleView.model_validate(row)


@router.delete("/schedules/{schedule_id}", summary="Remove a schedule", status_code=204)
def delete_schedule(service: ServiceOf, caller: Caller, schedule_id: ScheduleId) -> Response:
    """Remove a schedule. Jobs that it started stay. The daily scrub comes back at the next start: switch it off."""
    _authorize_change(service, caller, schedule_id)
    with service.database.write() as db:
        row = db.get_one(ScheduleRow, schedule_id)
        record(service, db, caller, AuditEntry("remove-schedule", schedule_id, _place_of(row)))
        db.delete(row)
    return Response(status_code=204)


def _create(service: Service, caller: Principal, new: NewSchedule, once: Once) -> Response:
    def work() -> ScheduleView:
        with service.database.write() as db:
            row = create_schedule(service, db, new)
            record(service, db, caller, AuditEntry("create-schedule", row.id, new.place, {"kind": new.kind}))
        return ScheduleView.model_validate(row)

    return once.answer(work)


def _authorize_change(service: Service, caller: Principal, schedule_id: str) -> None:
    row = find_schedule(service, schedule_id)
    if not _is_visible(caller, row):
        raise no_schedule(schedule_id)
    place = _place_of(row)
    if place is None:
        authorize_admin(caller, f"schedule {schedule_id!r}")
    else:
        authorize(caller, Action.WRITE, place)


def _is_visible(caller: Principal, row: ScheduleRow) -> bool:
    place = _place_of(row)
    if place is None:
        return caller.roles.is_admin and caller.reach is None
    return caller.may(Action.READ, place)


def _place_of(row: ScheduleRow) -> Place | None:
    return Place(row.workspace, row.dataset or None) if row.workspace else None
