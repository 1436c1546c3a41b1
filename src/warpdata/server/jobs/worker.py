"""The worker: a thread that runs jobs one by one, and keeps the index and the tables in order in between."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable
from dataclasses import asdict

from sqlalchemy import delete

from warpdata.errors import ErrorKind, WarpError
from warpdata.server.database import (
    EventRow,
    IdempotencyRow,
    JobRow,
    ProviderSignInRow,
    SignInRow,
    WebhookDeliveryRow,
)
from warpdata.server.index import synchronize
from warpdata.server.jobs.kinds import KINDS
from warpdata.server.jobs.queue import STALE_S, claim, finish, log, release, report
from warpdata.server.jobs.results import remove_old_results
from warpdata.server.jobs.run import JobEndedError, JobRun
from warpdata.server.jobs.schedules import ensure_daily_scrub, start_due_jobs
from warpdata.server.problems import describe_error
from warpdata.server.service import Service
from warpdata.server.tracing import job_span
from warpdata.server.uploads import remove_expired_uploads
from warpdata.server.webhooks import WebhookSender

__all__ = ["JobWorker", "start_workers", "stop_workers"]

_IDLE_S = 0.5
_UPKEEP_S = 30.0
_EVENTS_S = 3600
_ANSWERS_S = 24 * 3600
_DELIVERIES_S = 30 * 24 * 3600
_LOG = logging.getLogger("warpdata.server.jobs")


class JobWorker:
    """Runs jobs until `stop`. Several workers share one queue, in one process or many."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._id = service.new_id()
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self.run, name="warp-jobs", daemon=True)

    def start(self) -> None:
        """Run in a thread of its own."""
        self._thread.start()

    def stop(self) -> None:
        """Give the job at work back, and wait for the thread."""
        self.end()
        if self._thread.is_alive():
            self._thread.join(timeout=10)

    def end(self) -> None:
        """Let the job at work stop at its next report. Does not wait."""
        self._ending.set()

    def run(self) -> None:
        """Run jobs, and return after `stop`. A failure of the database or the store is tried again."""
        upkeep = float("-inf")
        while not self._ending.is_set():
            try:
                if self._service.session.timer() - upkeep > _UPKEEP_S:
                    upkeep = self._service.session.timer()
                    self._keep_order()
                if self.run_next():
                    continue
            except Exception:  # noqa: BLE001 - logged with its traceback, and tried again
                _LOG.exception("the worker cannot reach the database or the store")
            self._ending.wait(_IDLE_S)

    def run_next(self) -> bool:
        """Run one job, if there is one. Return whether there was."""
        row = claim(self._service, self._id)
        if row is None:
            return False
        alive = threading.Event()
        pulse = threading.Thread(target=self._keep_alive, args=(row.id, alive), name="warp-job-pulse", daemon=True)
        pulse.start()
        try:
            self._run(row)
        finally:
            alive.set()
            pulse.join()
        return True

    def _run(self, row: JobRow) -> None:
        run = JobRun(self._service, row, self._id, self._ending.is_set)
        try:
            with job_span(row):
                result = KINDS[row.kind](run)
        except JobEndedError:
            if self._ending.is_set():
                release(self._service, row.id, self._id)
            else:
                finish(self._service, row.id, self._id)
        except WarpError as error:
            shown = describe_error(error)
            _LOG.warning("job %s (%s) failed: %s", row.id, row.kind, error.message)
            log(self._service, row.id, shown.detail)
            failed = {"code": error.kind.value, **asdict(shown)}
            finish(self._service, row.id, self._id, error=failed)
        except Exception:  # noqa: BLE001 - logged with its traceback, and the job says so
            _LOG.exception("job %s (%s) failed", row.id, row.kind)
            failed = {"code": ErrorKind.ERROR.value, "detail": "the job failed; the log of the service has the reason"}
            finish(self._service, row.id, self._id, error=failed)
        else:
            finish(self._service, row.id, self._id, result=result)

    def _keep_alive(self, job_id: str, done: threading.Event) -> None:
        """Write a heartbeat while a job works without reporting."""
        while not done.wait(STALE_S / 5):
            report(self._service, job_id, self._id)

    def _keep_order(self) -> None:
        """Bring the index up to date, and remove rows that have expired."""
        synchronize(self._service)
        start_due_jobs(self._service)
        remove_old_results(self._service)
        remove_expired_uploads(self._service)
        with self._service.database.write() as db:
            db.execute(delete(EventRow).where(EventRow.time < self._service.later(-_EVENTS_S)))
            db.execute(delete(IdempotencyRow).where(IdempotencyRow.created < self._service.later(-_ANSWERS_S)))
            db.execute(delete(SignInRow).where(SignInRow.expires < self._service.now()))
            db.execute(delete(ProviderSignInRow).where(ProviderSignInRow.expires < self._service.now()))
            old = WebhookDeliveryRow.finished < self._service.later(-_DELIVERIES_S)
            db.execute(delete(WebhookDeliveryRow).where(old))


def start_workers(service: Service) -> list[JobWorker | WebhookSender]:
    """Start the threads that run jobs and send messages to webhooks. Scheduled care of the store begins with them."""
    ensure_daily_scrub(service)
    workers: list[JobWorker | WebhookSender]
    workers = [*(JobWorker(service) for _ in range(service.options.job_threads)), WebhookSender(service)]
    for worker in workers:
        worker.start()
    return workers


def stop_workers(workers: Iterable[JobWorker | WebhookSender]) -> None:
    """Give the jobs at work back, and wait for all threads."""
    listed = list(workers)
    for worker in listed:
        worker.end()
    for worker in listed:
        worker.stop()
