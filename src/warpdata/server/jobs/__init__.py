"""Jobs: work in the background that survives a restart, in a table of the database.

A new kind of job is a function in `KINDS`.
"""

from warpdata.server.jobs.kinds import KINDS, JobRun
from warpdata.server.jobs.queue import JobState, NewJob, cancel_job, enqueue, find_job
from warpdata.server.jobs.worker import JobWorker

__all__ = ["KINDS", "JobRun", "JobState", "JobWorker", "NewJob", "cancel_job", "enqueue", "find_job"]
