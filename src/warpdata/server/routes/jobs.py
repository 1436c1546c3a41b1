"""Jobs: start, list, follow and cancel work in the background."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from itertools import islice
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Path, Query, Response
from pydantic import Field, StringConstraints
from sqlalchemy import select
from sqlalchemy.orm import Session as OrmSession

from warpdata.repository.gc import parse_retention
from warpdata.server.access import Action, AuditEntry, Place, Principal, authorize, authorize_admin, record
from warpdata.server.caller import Caller, Once, ServiceOf
from warpdata.server.database import JobLogRow, JobRow
from warpdata.server.jobs import NewJob, cancel_job, enqueue, find_job, resume_job
from warpdata.server.jobs.queue import no_job
from warpdata.server.routes.collections import open_collection
from warpdata.server.routes.parameters import Answer, Authorized, Body, RefText, dataset_place
from warpdata.server.service import Service

__all__ = ["JobId", "JobView", "Writable", "router", "start_job", "visible_job"]

router = APIRouter(tags=["jobs"])
_READ_AHEAD = 200
Writable = Annotated[str, Depends(Authorized(Action.WRITE))]
JobId = Annotated[str, Path(pattern=r"^[0-9a-f]{32}$")]


class JobView(Answer):
    """A job. `done` of `total` counts bytes or datasets, by its kind."""

    id: str
    kind: str
    workspace: str
    dataset: str
    state: str
    done: int
    total: int
    attempts: int
    result: dict[str, Any] | None
    error: dict[str, Any] | None
    created: str
    started: str | None
    finished: str | None


class JobList(Answer):
    """Jobs, newest first."""

    jobs: list[JobView]
    next_cursor: str | None


class JobLogLine(Answer):
    """A line of a log."""

    time: str
    text: str


class JobLogView(Answer):
    """The log of a job, oldest line first."""

    lines: list[JobLogLine]


class NewJobBody(Body):
    """A job for a dataset. Without `ref`, `verify` takes the head, and the kinds for collections take all versions.
    `refs` names several versions of a collection.

    `verify` reads and hashes every blob of a version. `integrity` looks for the files of versions of a collection, with
    `deep` also reads them, and marks broken versions. `repair` makes successors of broken versions.
    `scrub` reads all versions of a dataset, and restores damaged bytes before it marks anything.
    """

    kind: Literal["verify", "integrity", "repair", "scrub"]
    ref: RefText | None = None
    refs: Annotated[list[RefText], Field(max_length=1000)] | None = None
    deep: bool = False


class NewServiceJobBody(Body):
    """A job for the service.

    `synchronize` brings the index to the state of the store. `scrub` reads every stored byte and restores what is
    damaged. `gc` finds garbage, and with `dry_run: false` deletes it; `keep` says which versions stay.
    """

    kind: Literal["synchronize", "scrub", "gc"]
    keep: Annotated[str, StringConstraints(pattern=r"^[a-z0-9 ,]+$", max_length=256)] = "all"
    dry_run: bool = True
    wait_s: Annotated[int, Field(ge=0, le=24 * 3600)] | None = 3600


@router.post("/datasets/{workspace}/{name}/jobs", summary="Start a job", status_code=202, response_model=JobView)
def create_job(service: ServiceOf, caller: Caller, dataset_id: Writable, body: NewJobBody, once: Once) -> Response:
    """Start a job for a dataset. A version is fixed now."""
    place = dataset_place(dataset_id)
    arguments: dict[str, Any] = {"author": caller.name}
    if body.kind == "verify":
        arguments["version"] = service.open(dataset_id, body.ref)[0].version
    elif body.kind == "scrub":
        service.open(dataset_id, None)
    else:
        open_collection(service, dataset_id)
        arguments |= {"refs": [body.ref] if body.ref else body.refs, "deep": body.deep}
    return start_job(caller, NewJob(body.kind, caller.user_id, place, arguments), once)


@router.post("/jobs", summary="Start a job for the service", status_code=202, response_model=JobView)
def create_service_job(caller: Caller, body: NewServiceJobBody, once: Once) -> Response:
    """Start a job for the whole service. Administrators may."""
    authorize_admin(caller, "route /jobs")
    arguments: dict[str, Any] = {"author": caller.name}
    if body.kind == "gc":
        parse_retention(body.keep)
        arguments |= {"keep": body.keep, "dry_run": body.dry_run, "wait_s": body.wait_s}
    return start_job(caller, NewJob(body.kind, caller.user_id, None, arguments), once)


@router.get("/jobs", summary="List jobs")
def list_jobs(
    service: ServiceOf,
    caller: Caller,
    cursor: Annotated[str | None, Query(pattern=r"^[0-9TZ:.-]{24}_[0-9a-f]{32}$")] = None,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
) -> JobList:
    """List the jobs of datasets that the caller may read, newest first."""
    query = select(JobRow).order_by(JobRow.created.desc(), JobRow.id.desc())
    if cursor is not None:
        created, _, job_id = cursor.partition("_")
        is_older = (JobRow.created < created) | ((JobRow.created == created) & (JobRow.id < job_id))
        query = query.where(is_older)
    streamed = query.execution_options(yield_per=_READ_AHEAD)
    with service.database.read() as db, closing(db.scalars(streamed)) as listed:
        rows = list(islice((row for row in listed if _is_visible(caller, row)), limit + 1))
    following = f"{rows[limit - 1].created}_{rows[limit - 1].id}" if len(rows) > limit else None
    return JobList(jobs=[JobView.model_validate(row) for row in rows[:limit]], next_cursor=following)


@router.get("/jobs/{job_id}", summary="Show a job")
def get_job(service: ServiceOf, caller: Caller, job_id: JobId) -> JobView:
    return JobView.model_validate(visible_job(service, caller, job_id))


@router.get("/jobs/{job_id}/log", summary="Show the log of a job")
def get_job_log(service: ServiceOf, caller: Caller, job_id: JobId) -> JobLogView:
    """Show the first 1,000 lines of the log."""
    visible_job(service, caller, job_id)
    query = select(JobLogRow).where(JobLogRow.job_id == job_id).order_by(JobLogRow.sequence).limit(1000)
    with service.database.read() as db:
        return JobLogView(lines=[JobLogLine.model_validate(row) for row in db.scalars(query)])


@router.post("/jobs/{job_id}/cancel", summary="Cancel a job", status_code=202, response_model=JobView)
def cancel(service: ServiceOf, caller: Caller, job_id: JobId, once: Once) -> Response:
    """Cancel a job. Work that is done stays; repeating it changes nothing."""
    row = visible_job(service, caller, job_id)
    return _change(caller, row, once, "cancel-job", cancel_job)


@router.post("/jobs/{job_id}/resume", summary="Resume a job", status_code=202, response_model=JobView)
def resume(service: ServiceOf, caller: Caller, job_id: JobId, once: Once) -> Response:
    """Queue a failed or cancelled job again. It continues where it was; another state is a conflict."""
    row = visible_job(service, caller, job_id)
    return _change(caller, row, once, "resume-job", resume_job)


def _change(
    caller: Principal, row: JobRow, once: Once, action: str, change: Callable[[Service, OrmSession, str], JobRow]
) -> Response:
    if row.workspace:
        authorize(caller, Action.WRITE, _place_of(row))

    def work() -> JobView:
        with once.service.database.write() as db:
            changed = change(once.service, db, row.id)
            record(once.service, db, caller, AuditEntry(action, row.id, _place_of(row) if row.workspace else None))
        return JobView.model_validate(changed)

    return once.answer(work, status=202)


def start_job(caller: Principal, new: NewJob, once: Once) -> Response:
    """Add a job with its audit entry, and answer with it."""

    def work() -> JobView:
        with once.service.database.write() as db:
            row = enqueue(once.service, db, new)
            record(once.service, db, caller, AuditEntry(f"start-{new.kind}", str(new.place or "service"), new.place))
        return JobView.model_validate(row)

    return once.answer(work, status=202)


def visible_job(service: ServiceOf, caller: Principal, job_id: str) -> JobRow:
    """Return a job that the caller may see; for any other, `NotFoundError`."""
    row = find_job(service, job_id)
    if not _is_visible(caller, row):
        raise no_job(job_id)
    return row


def _is_visible(caller: Principal, row: JobRow) -> bool:
    if not row.workspace:
        return caller.roles.is_admin and caller.reach is None
    return caller.may(Action.READ, _place_of(row))


def _place_of(row: JobRow) -> Place:
    return Place(row.workspace, row.dataset or None)
