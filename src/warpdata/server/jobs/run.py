"""One attempt at a job: its arguments, its checkpoint, its progress, and the moments at which it may be stopped."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from warpdata.server.access import Principal, Roles
from warpdata.server.database import JobRow
from warpdata.server.jobs.queue import Report, log, report
from warpdata.server.service import Service

__all__ = ["JobEndedError", "JobKind", "JobRun"]

_REPORT_S = 0.5


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

    @property
    def dataset_id(self) -> str:
        return f"{self.row.workspace}/{self.row.dataset}"

    @property
    def arguments(self) -> Mapping[str, Any]:
        return self.row.arguments

    @property
    def principal(self) -> Principal:
        """The user who started the job, for the audit log. A schedule has no user."""
        name = self.arguments.get("author") or "schedule"
        return Principal(self.row.owner_id, name, Roles(is_admin=False))

    def check(self) -> None:
        """Raise if the job shall stop. Reports at most twice a second."""
        self.progress(*self._counts)

    def progress(self, done: int, total: int) -> None:
        """Report progress, at most twice a second."""
        self._counts = (done, total)
        if self._is_ending():
            raise JobEndedError
        if self.service.session.timer() - self._reported >= _REPORT_S:
            self._report(None)

    def count(self, done: int, total: int) -> None:
        """Set the final progress, which is written with the next report."""
        self._counts = (done, total)
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
