"""Jobs: work over a whole dataset, divided into tasks that threads, processes or a Ray cluster run.

docs/specs/jobs.md is the normative text.
"""

from warpdata.jobs.engine import Engine, WorkerBudget, divide_budget
from warpdata.jobs.job import EngineChoice, Job, JobOptions, choose_engine, open_job, run_here, stored_copy
from warpdata.jobs.local_engines import ProcessEngine, ThreadEngine
from warpdata.jobs.plan import Plan, Task, TaskBlob, TaskContext, TaskResult, Work, group_by_bytes, task_key
from warpdata.jobs.ray_engine import RayEngine

__all__ = [
    "Engine",
    "EngineChoice",
    "Job",
    "JobOptions",
    "Plan",
    "ProcessEngine",
    "RayEngine",
    "Task",
    "TaskBlob",
    "TaskContext",
    "TaskResult",
    "ThreadEngine",
    "Work",
    "WorkerBudget",
    "choose_engine",
    "divide_budget",
    "group_by_bytes",
    "open_job",
    "run_here",
    "stored_copy",
    "task_key",
]
