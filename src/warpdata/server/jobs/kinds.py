"""The kinds of jobs. Each is a function of a run, which tells its arguments, takes progress, and may be cancelled."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any, TypeAlias

from warpdata.maintenance import verify
from warpdata.primitives.progress import ProgressEvent
from warpdata.server.database import JobRow
from warpdata.server.index import synchronize
from warpdata.server.jobs.queue import Report, log, report
from warpdata.server.service import Service

__all__ = ["KINDS", "JobEndedError", "JobKind", "JobRun"]

_REPORT_S = 0.5
_MAX_PROBLEMS = 100


class JobEndedError(Exception):
    """The job was cancelled, or belongs to another worker now, or its worker ends."""


class JobRun:
    """One attempt at a job. `progress` and `save` raise `JobEndedError` when the work shall stop."""

    def __init__(self, service: Service, row: JobRow, worker: str, is_ending: Callable[[], bool]) -> None:
        self.service = service
        self.row = row
        self._worker = worker
        self._is_ending = is_ending
        self._reported = float("-inf")
        self._counts = (row.done, row.total)

    @property
    def checkpoint(self) -> Mapping[str, Any]:
        """What earlier attempts saved."""
        return self.row.checkpoint or {}

    def progress(self, done: int, total: int) -> None:
        """Report progress, at most twice a second."""
        self._counts = (done, total)
        if self._is_ending():
            raise JobEndedError
        if self.service.session.timer() - self._reported >= _REPORT_S:
            self._report(None)

    def save(self, checkpoint: Mapping[str, Any]) -> None:
        """Store what is done, so that another attempt continues there."""
        self._report(checkpoint)
        if self._is_ending():
            raise JobEndedError

    def log(self, text: str) -> None:
        """Add a line to the log of the job."""
        log(self.service, self.row.id, text)

    def _report(self, checkpoint: Mapping[str, Any] | None) -> None:
        self._reported = self.service.session.timer()
        if not report(self.service, self.row.id, self._worker, Report(*self._counts, checkpoint)):
            raise JobEndedError


JobKind: TypeAlias = Callable[[JobRun], Mapping[str, Any]]


def _synchronize(run: JobRun) -> Mapping[str, Any]:
    """Bring the index to the state of the store. Continues behind the last dataset that was done."""

    def on_dataset(dataset_id: str, done: int, total: int) -> None:
        run.progress(done, total)
        if done % 50 == 0:
            run.save({"after": dataset_id})

    return asdict(synchronize(run.service, after=run.checkpoint.get("after", ""), on_dataset=on_dataset))


def _verify(run: JobRun) -> Mapping[str, Any]:
    """Read and hash every blob of a version."""
    _, dataset = run.service.open(f"{run.row.workspace}/{run.row.dataset}", run.row.arguments.get("version"))

    def on_progress(event: ProgressEvent) -> None:
        run.progress(event.done_bytes, event.total_bytes)

    found = verify(dataset, progress=on_progress)
    for problem in found.problems[:_MAX_PROBLEMS]:
        run.log(problem)
    return {
        "version": dataset.version,
        "blobs": found.blobs,
        "size_bytes": found.size_bytes,
        "problems": len(found.problems),
    }


KINDS: dict[str, JobKind] = {"synchronize": _synchronize, "verify": _verify}
"""The function of each kind."""
