"""Schedules: jobs that are started again and again. A job that still runs is not started a second time."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import func, select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session as OrmSession

from warpdata.errors import LimitExceededError, NotFoundError
from warpdata.limits import MAX_SCHEDULES
from warpdata.primitives.hashing import sha256_hex
from warpdata.server.access import Place, Principal
from warpdata.server.database import JobRow, ScheduleRow
from warpdata.server.jobs.queue import JobState, NewJob, enqueue
from warpdata.server.service import Service

__all__ = [
    "DAILY_SCRUB",
    "NewSchedule",
    "create_schedule",
    "ensure_daily_scrub",
    "ensure_label_schedule",
    "find_schedule",
    "no_schedule",
    "remove_label_schedule",
    "start_due_jobs",
]

DAILY_SCRUB = "daily-scrub"
"""The id of the schedule that every service begins with. It can be changed and switched off."""
_DAY_S = 24 * 3600
_LABELS_S = 300
_AT_ONCE = 20


@dataclass(frozen=True, slots=True)
class NewSchedule:
    """A job to start at intervals. Without a place, it is for the whole service."""

    kind: str
    owner_id: str
    every_s: int
    place: Place | None = None
    arguments: Mapping[str, Any] = field(default_factory=dict)


def create_schedule(service: Service, db: OrmSession, new: NewSchedule) -> ScheduleRow:
    """Create a schedule. Its first job starts after the first interval."""
    workspace = new.place.workspace if new.place else ""
    count = db.scalar(select(func.count()).where(ScheduleRow.workspace == workspace)) or 0
    if count >= MAX_SCHEDULES:
        raise LimitExceededError(f"a workspace has at most {MAX_SCHEDULES} schedules", hint="Remove one first.")
    row = _make_row(service, service.new_id(), new)
    db.add(row)
    return row


def find_schedule(service: Service, schedule_id: str) -> ScheduleRow:
    """Return a schedule. Callers check that the principal may see it."""
    with service.database.read() as db:
        row = db.get(ScheduleRow, schedule_id)
    if row is None:
        raise no_schedule(schedule_id)
    return row


def no_schedule(schedule_id: str) -> NotFoundError:
    """Return the error for a schedule that does not exist, or that the caller may not see."""
    return NotFoundError(f"there is no schedule {schedule_id!r}")


def ensure_daily_scrub(service: Service) -> None:
    """Create the schedule of the daily scrub, unless there is one, perhaps changed or switched off."""
    with service.database.read() as db:
        if db.get(ScheduleRow, DAILY_SCRUB) is not None:
            return
    new = NewSchedule("scrub", "", _DAY_S)
    with suppress(IntegrityError), service.database.write() as db:  # another replica starts too
        db.add(_make_row(service, DAILY_SCRUB, new))


def ensure_label_schedule(service: Service, db: OrmSession, place: Place, caller: Principal) -> None:
    """Create the schedule that asks the tools of a dataset for labels, unless there is one."""
    if db.get(ScheduleRow, _label_schedule(place)) is None:
        arguments = {"author": caller.name}
        new = NewSchedule("labels", caller.user_id, _LABELS_S, place, arguments)
        db.add(_make_row(service, _label_schedule(place), new))


def remove_label_schedule(db: OrmSession, place: Place) -> None:
    """Remove the schedule of a dataset that has no tools any more."""
    row = db.get(ScheduleRow, _label_schedule(place))
    if row is not None:
        db.delete(row)


def _label_schedule(place: Place) -> str:
    return sha256_hex(f"labels {place}".encode())[:32]


def start_due_jobs(service: Service) -> int:
    """Start the jobs of schedules that are due, and return their number."""
    is_due = (ScheduleRow.next_run <= service.now()) & ScheduleRow.is_active
    with service.database.read() as db:
        if db.scalar(select(ScheduleRow.id).where(is_due).limit(1)) is None:
            return 0
    started = 0
    with service.database.write() as db:
        query = select(ScheduleRow).where(is_due).order_by(ScheduleRow.next_run).limit(_AT_ONCE)
        for row in db.scalars(query.with_for_update(skip_locked=True)):
            last = None if row.last_job_id is None else db.get(JobRow, row.last_job_id)
            row.next_run = service.later(row.every_s)
            if last is not None and last.state in (JobState.QUEUED, JobState.RUNNING):
                continue
            place = Place(row.workspace, row.dataset or None) if row.workspace else None
            row.last_job_id = enqueue(service, db, NewJob(row.kind, row.owner_id, place, row.arguments)).id
            started += 1
    return started


def _make_row(service: Service, schedule_id: str, new: NewSchedule) -> ScheduleRow:
    return ScheduleRow(
        id=schedule_id,
        kind=new.kind,
        workspace=new.place.workspace if new.place else "",
        dataset=(new.place.dataset or "") if new.place else "",
        owner_id=new.owner_id,
        arguments=dict(new.arguments),
        every_s=new.every_s,
        next_run=service.later(new.every_s),
        last_job_id=None,
        is_active=True,
        created=service.now(),
    )
