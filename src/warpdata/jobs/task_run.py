"""One task, from its item to a result in the store. The same code runs in threads, processes and workers of Ray.

Results do not depend on where a task runs, or how often: outputs are named by their content, and the first record of a
task decides. Implements "Tasks" of docs/specs/jobs.md.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from warpdata.errors import WarpError
from warpdata.jobs.engine import ReportProgress, WorkerBudget
from warpdata.jobs.plan import Task, TaskBlob, TaskContext, TaskResult, Work
from warpdata.jobs.records import TaskRecords
from warpdata.primitives.hashing import Blob, Fingerprint, fingerprint_file
from warpdata.primitives.parallel import configure
from warpdata.repository.catalog import put_blob_file
from warpdata.repository.gc import CondemnedKeys
from warpdata.repository.manifest import Json
from warpdata.session import Session, StoreAddress
from warpdata.storage.cache import StagingDirectory

__all__ = ["StoredTask", "TaskFailure"]

_REPORT_S = 0.25


@dataclass(frozen=True, slots=True)
class TaskFailure:
    """An error of this library that ended a task. It crosses processes as a value."""

    error: WarpError


@dataclass
class StoredTask:
    """Runs tasks of one plan, and stores their outputs. The instance stays in a process, with what it has opened."""

    work: Work[Any]
    address: StoreAddress
    job_id: str | None
    """The job that records its finished tasks; None records nothing."""
    condemned: CondemnedKeys
    generation: str
    """The generation of blobs whose plain key is about to be collected."""
    generations: dict[str, str]
    """Those of the blobs that tasks read."""
    budget: WorkerBudget | None
    token: str
    """Tells this instance from those of other plans, for processes that see several."""
    _opened: tuple[Session, Callable[[Any, TaskContext], Json]] | None = field(default=None, repr=False)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_opened": None}

    def __call__(self, task: Task[Any], report: ReportProgress) -> TaskResult | TaskFailure:
        try:
            session, run = self._open()
            return self._run(session, run, task, report)
        except WarpError as error:
            return TaskFailure(error)

    def _open(self) -> tuple[Session, Callable[[Any, TaskContext], Json]]:
        if self._opened is None:
            session = self.address.open()
            if self.budget is not None:
                configure(
                    io_concurrency=self.budget.requests,
                    threads=self.budget.threads,
                    read_memory_bytes=self.budget.read_memory_bytes,
                )
            self._opened = session, self.work.open(session.at_generations(self.generations))
        return self._opened

    def _run(
        self, session: Session, run: Callable[[Any, TaskContext], Json], task: Task[Any], report: ReportProgress
    ) -> TaskResult:
        context = _StoringContext(session, self, report)
        try:
            value = run(task.item, context)
            result = TaskResult(value, tuple(context.blobs))
        finally:
            context.remove()
        if self.job_id is None:
            return result
        return TaskRecords(session.writer, self.job_id, session.pause).put(task.key, result)

    def generation_of(self, digest: str) -> str | None:
        """Return the generation of the key under which a blob is stored."""
        return self.generation if digest in self.condemned else None


class _StoringContext:
    """Uploads the files of a task at once, so that a worker needs the space of one task."""

    def __init__(self, session: Session, task: StoredTask, report: ReportProgress) -> None:
        self.blobs: list[TaskBlob] = []
        self._session = session
        self._task = task
        self._report = report
        self._staging: StagingDirectory | None = None
        self._number = 0
        self._done = 0
        self._reported_at = session.timer()

    def new_directory(self) -> Path:
        if self._staging is None:
            self._staging = StagingDirectory(self._session.settings.cache_dir)
        self._number += 1
        path = self._staging.path / f"task-{self._number}"
        path.mkdir()
        return path

    def add_file(self, path: Path, fingerprint: Fingerprint | None = None) -> Blob:
        found = fingerprint_file(path) if fingerprint is None else fingerprint
        generation = self._task.generation_of(found.blob.hash)
        put_blob_file(self._session.writer, path, found, generation, self._session.pause)
        path.unlink()
        self.blobs.append(TaskBlob(found.blob.hash, found.blob.byte_size, generation))
        return found.blob

    def count(self, amount: int) -> None:
        self._done += amount
        now = self._session.timer()
        if now - self._reported_at >= _REPORT_S:
            self._reported_at = now
            self._report(self._done)

    def remove(self) -> None:
        if self._staging is not None:
            self._staging.remove()
