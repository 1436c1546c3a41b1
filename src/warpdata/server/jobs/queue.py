"""The table of jobs as a queue: add, claim, report, finish.

A claim is one transaction: PostgreSQL skips rows that another worker has locked, and SQLite has one writer at a time.
A worker that does not report for half a minute is taken for dead, and its job goes to another. Every later write of the
first one finds that the job is not its own any more.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from sqlalchemy import and_, or_, select
from sqlalchemy.orm import Session as OrmSession

from warpdata.errors import ConflictError, NotFoundError
from warpdata.server.access import Place
from warpdata.server.database import JobLogRow, JobRow
from warpdata.server.event_log import ServiceEvent, add_event
from warpdata.server.service import Service

__all__ = [
    "STALE_S",
    "JobState",
    "NewJob",
    "Report",
    "cancel_job",
    "claim",
    "enqueue",
    "find_job",
    "finish",
    "log",
    "release",
    "report",
    "resume_job",
]

STALE_S = 30
_MAX_ATTEMPTS = 5


class JobState(StrEnum):
    """Where a job stands. The last three are final."""

    QUEUED = "queued"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True)
class NewJob:
    """A job to add. Without a place, it is for the whole service."""

    kind: str
    owner_id: str
    place: Place | None = None
    arguments: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Report:
    """Progress of a job. A checkpoint replaces the one before."""

    done: int
    total: int
    checkpoint: Mapping[str, Any] | None = None


def enqueue(service: Service, db: OrmSession, new: NewJob) -> JobRow:
    """Add a job in the transaction of the request, so that both are there or neither is."""
    row = JobRow(
        id=service.new_id(),
        kind=new.kind,
        workspace=new.place.workspace if new.place else "",
        dataset=(new.place.dataset or "") if new.place else "",
        owner_id=new.owner_id,
        state=JobState.QUEUED,
        arguments=dict(new.arguments),
        done=0,
        total=0,
        attempts=0,
        is_cancelled=False,
        created=service.now(),
    )
    db.add(row)
    _announce(service, db, row)
    return row


def claim(service: Service, worker: str) -> JobRow | None:
    """Take the oldest job that waits or whose worker died. None if there is none."""
    is_stale = and_(JobRow.state == JobState.RUNNING, JobRow.heartbeat < service.later(-STALE_S))
    query = (
        select(JobRow)
        .where(or_(JobRow.state == JobState.QUEUED, is_stale))
        .order_by(JobRow.created, JobRow.id)
        .limit(1)
        .with_for_update(skip_locked=True)
    )
    with service.database.write() as db:
        row = db.scalar(query)
        if row is None:
            return None
        if row.attempts >= _MAX_ATTEMPTS:
            _finish(service, db, row, JobState.FAILED, error={"code": "error", "detail": "its worker died repeatedly"})
            return None
        row.state, row.worker, row.heartbeat = JobState.RUNNING, worker, service.now()
        row.started = row.started or row.heartbeat
        row.attempts += 1
        _announce(service, db, row)
    return row


def report(service: Service, job_id: str, worker: str, made: Report | None = None) -> bool:
    """Write that the worker lives, and its progress. False: the job was cancelled, or belongs to another worker."""
    with service.database.write() as db:
        row = _owned(db, job_id, worker)
        if row is None or row.is_cancelled:
            return False
        row.heartbeat = service.now()
        if made is not None:
            row.done, row.total = made.done, made.total
            row.checkpoint = dict(made.checkpoint) if made.checkpoint is not None else row.checkpoint
            _announce(service, db, row)
    return True


def release(service: Service, job_id: str, worker: str) -> None:
    """Give a job back, because the worker ends. It continues at its checkpoint, and the attempt does not count."""
    with service.database.write() as db:
        row = _owned(db, job_id, worker)
        if row is not None:
            row.state, row.worker, row.heartbeat = JobState.QUEUED, None, None
            row.attempts -= 1


def finish(
    service: Service,
    job_id: str,
    worker: str,
    *,
    result: Mapping[str, Any] | None = None,
    error: Mapping[str, Any] | None = None,
) -> None:
    """End a job with its result or its error; without either, as cancelled. Ignored if another worker has it."""
    with service.database.write() as db:
        row = _owned(db, job_id, worker)
        if row is None:
            return
        state = JobState.DONE if result is not None else JobState.FAILED if error is not None else JobState.CANCELLED
        _finish(service, db, row, state, result=result, error=error)


def cancel_job(service: Service, db: OrmSession, job_id: str) -> JobRow:
    """Cancel a job. One that waits ends at once, one that runs at its next report."""
    row = db.scalar(select(JobRow).where(JobRow.id == job_id).with_for_update())
    if row is None:
        raise no_job(job_id)
    if row.state == JobState.QUEUED:
        _finish(service, db, row, JobState.CANCELLED)
    row.is_cancelled = True
    return row


def resume_job(service: Service, db: OrmSession, job_id: str) -> JobRow:
    """Queue a failed or cancelled job again. It continues at its checkpoint. `ConflictError` for any other job."""
    row = db.scalar(select(JobRow).where(JobRow.id == job_id).with_for_update())
    if row is None:
        raise no_job(job_id)
    if row.state not in (JobState.FAILED, JobState.CANCELLED):
        raise ConflictError(f"job {job_id} is {row.state}", hint="Failed and cancelled jobs are resumed.")
    row.state, row.is_cancelled, row.attempts = JobState.QUEUED, False, 0
    row.error = row.finished = None
    _announce(service, db, row)
    return row


def find_job(service: Service, job_id: str) -> JobRow:
    """Return a job. Callers check that the principal may see it."""
    with service.database.read() as db:
        row = db.get(JobRow, job_id)
    if row is None:
        raise no_job(job_id)
    return row


def no_job(job_id: str) -> NotFoundError:
    """Return the error for a job that does not exist, or that the caller may not see."""
    return NotFoundError(f"there is no job {job_id!r}")


def log(service: Service, job_id: str, text: str) -> None:
    """Add a line to the log of a job."""
    with service.database.write() as db:
        db.add(JobLogRow(job_id=job_id, time=service.now(), text=text.replace("\0", "")))


def _owned(db: OrmSession, job_id: str, worker: str) -> JobRow | None:
    query = select(JobRow).where(JobRow.id == job_id, JobRow.worker == worker, JobRow.state == JobState.RUNNING)
    return db.scalar(query.with_for_update())


def _finish(
    service: Service,
    db: OrmSession,
    row: JobRow,
    state: JobState,
    *,
    result: Mapping[str, Any] | None = None,
    error: Mapping[str, Any] | None = None,
) -> None:
    row.state, row.finished, row.worker = state, service.now(), None
    row.result = None if result is None else dict(result)
    row.error = None if error is None else dict(error)
    _announce(service, db, row)


def _announce(service: Service, db: OrmSession, row: JobRow) -> None:
    data = {"job": row.id, "kind": row.kind, "state": row.state, "done": row.done, "total": row.total}
    add_event(service, db, ServiceEvent("job", row.workspace, row.dataset, data))
