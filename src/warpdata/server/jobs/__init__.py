"""Jobs: work in the background that survives a restart, in a table of the database.

A new kind of job is a function in `KINDS`.
"""

from warpdata.server.jobs.kinds import KINDS
from warpdata.server.jobs.queue import JobState, NewJob, cancel_job, enqueue, find_job, resume_job
from warpdata.server.jobs.results import result_key
from warpdata.server.jobs.run import JobRun
from warpdata.server.jobs.schedules import (
    NewSchedule,
    create_schedule,
    ensure_label_schedule,
    find_schedule,
    remove_label_schedule,
)
from warpdata.server.jobs.worker import JobWorker, start_workers, stop_workers

__all__ = [
    "KINDS",
    "JobRun",
    "JobState",
    "JobWorker",
    "NewJob",
    "NewSchedule",
    "cancel_job",
    "create_schedule",
    "enqueue",
    "ensure_label_schedule",
    "find_job",
    "find_schedule",
    "remove_label_schedule",
    "result_key",
    "resume_job",
    "start_workers",
    "stop_workers",
]
