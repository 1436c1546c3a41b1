"""Jobs: work in the background that survives a restart, in a table of the database.

A new kind of job is a function in `KINDS`.
"""

from warpdata.server.jobs.kinds import KINDS
from warpdata.server.jobs.queue import JobState, NewJob, cancel_job, enqueue, find_job, resume_job
from warpdata.server.jobs.run import JobRun
from warpdata.server.jobs.worker import JobWorker, stop_workers

__all__ = [
    "KINDS",
    "JobRun",
    "JobState",
    "JobWorker",
    "NewJob",
    "cancel_job",
    "enqueue",
    "find_job",
    "resume_job",
    "stop_workers",
]
