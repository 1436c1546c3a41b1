"""Training jobs: each pins HEAD as a version, and gets the environment that a trainer of the platform reads.

`task_type` belongs to the job, because the same images serve many tasks. Implements "Training" of
docs/specs/collections.md.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from warpdata.collections.records import JobRecord, JobResult, RecordStore
from warpdata.collections.states import VersionState, read_state
from warpdata.datasets import Dataset
from warpdata.errors import AlreadyExistsError, BadInputError, ConflictError, ErrorKind, NotFoundError
from warpdata.limits import MAX_MESSAGE_LENGTH, MAX_TRAINING_TEXT_LENGTH
from warpdata.primitives.suggest import suggest
from warpdata.session import Session

__all__ = [
    "JOB_PREFIX",
    "JobRequest",
    "TrainingJob",
    "end_job",
    "environment",
    "list_jobs",
    "read_job",
    "start_job",
    "store_variables",
]

_SERVICE = ("warp+https://", "warp+http://")
JOB_PREFIX = "training-job-"
RESULTS = ("completed", "failed", "cancelled")
_JOB_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


@dataclass(frozen=True, slots=True)
class JobRequest:
    """A job to start. Without an id, it gets a random one."""

    task_type: str
    model_name: str
    job_id: str | None = None

    def check(self) -> None:
        """Raise `BadInputError` for texts that a record does not take."""
        for name, value in (("task_type", self.task_type), ("model_name", self.model_name)):
            if not value or len(value) > MAX_TRAINING_TEXT_LENGTH or not value.isprintable():
                raise BadInputError(f"{name}={value[:80]!r} is not text of 1 to {MAX_TRAINING_TEXT_LENGTH} characters")
        if self.job_id is not None and not _JOB_ID.fullmatch(self.job_id):
            raise BadInputError(
                f"job_id={self.job_id!r} is not a name",
                hint="Use up to 64 letters, digits, dots, hyphens and underscores.",
                kind=ErrorKind.INVALID_NAME,
            )


@dataclass(frozen=True, slots=True)
class TrainingJob:
    """A training job. `environment` is the block of variables that its trainer starts with."""

    job_id: str
    snapshot_id: str
    version: str
    task_type: str
    model_name: str
    status: str
    """"running", "completed", "failed" or "cancelled"."""
    snapshot_status_at_start: str
    snapshot: VersionState
    """The state of the pinned version now."""
    author: str
    time: str
    environment: Mapping[str, str]


def start_job(records: RecordStore, head: Dataset, request: JobRequest, author: str) -> TrainingJob:
    """Pin a version as `training-job-<id>`, then record the job. Repeating it with the same id and model returns it."""
    request.check()
    session = records.session
    job_id = request.job_id or session.new_id()
    snapshot_id = JOB_PREFIX + job_id
    known = records.get(f"jobs/{job_id}", JobRecord)
    if known is None:
        label = head.snapshot(snapshot_id)
        status = read_state(records, label.version).status
        record = JobRecord(
            job_id,
            snapshot_id,
            label.version,
            label.commit,
            request.task_type,
            request.model_name,
            status,
            author,
            session.timestamp(),
        )
        records.put(f"jobs/{job_id}", record)
        known = records.get(f"jobs/{job_id}", JobRecord)
        assert known is not None, "records are never removed"
    if (known.task_type, known.model_name) != (request.task_type, request.model_name):
        raise AlreadyExistsError(
            f"job {job_id!r} trains {known.model_name!r} for {known.task_type!r} already", hint="Use another job_id."
        )
    return _job(records, known)


def list_jobs(records: RecordStore) -> list[TrainingJob]:
    """Return all jobs, oldest first."""
    names = [name for name in records.names("jobs") if name.count("/") == 1]
    found = [record for name in names if (record := records.get(name, JobRecord))]
    return [_job(records, record) for record in sorted(found, key=lambda record: (record.time, record.job_id))]


def read_job(records: RecordStore, job_id: str) -> TrainingJob:
    """Return a job by its id. Raise `NotFoundError` with similar ids."""
    record = records.get(f"jobs/{job_id}", JobRecord) if _JOB_ID.fullmatch(job_id) else None
    if record is None:
        known = [name.removeprefix("jobs/") for name in records.names("jobs") if name.count("/") == 1]
        raise NotFoundError(f"{records.dataset_id} has no training job {job_id!r}", hint=suggest(job_id, known))
    return _job(records, record)


def end_job(records: RecordStore, job_id: str, status: str, note: str) -> TrainingJob:
    """Record the end of a job, once. Another end than the recorded one is a `ConflictError`."""
    if status not in RESULTS:
        raise BadInputError(f"status={status!r} is not known", hint=f"Known: {', '.join(RESULTS)}.")
    if len(note) > MAX_MESSAGE_LENGTH:
        raise BadInputError(f"the note has {len(note)} characters; the limit is {MAX_MESSAGE_LENGTH}")
    read_job(records, job_id)
    name = f"jobs/{job_id}/ended"
    if not records.put(name, JobResult(status, note, records.session.timestamp())):
        ended = records.get(name, JobResult)
        if ended is None or ended.status != status:
            raise ConflictError(f"job {job_id!r} has ended already: {ended.status if ended else 'unknown'}")
    return read_job(records, job_id)


def environment(session: Session, record: JobRecord, dataset_id: str) -> dict[str, str]:
    """Return the variables of a trainer: the address of the snapshot, and the store without credentials."""
    block = {
        "DATASET_ID": dataset_id,
        "SNAPSHOT_ID": record.snapshot_id,
        "JOB_ID": record.job_id,
        "TASK_TYPE": record.task_type,
        "MODEL_NAME": record.model_name,
        "ANNOTATIONS_PATH": f"datasets/{dataset_id}/snapshots/{record.snapshot_id}.json",
        "IMAGES_PATH": f"datasets/{dataset_id}/images/",
        "WARP_DATASET": f"{dataset_id}@{record.snapshot_id}",
    }
    return block | store_variables(session.writer.url, dataset_id, session.settings.s3.endpoint_url)


def store_variables(url: str, dataset_id: str, endpoint_url: str | None = None) -> dict[str, str]:
    """Return the variables that say where a store is. That of a service has its S3 gateway too."""
    block = {"WARP_STORE": url}
    if url.startswith("s3://"):
        block["BUCKET_NAME"] = url.removeprefix("s3://").partition("/")[0]
        if endpoint_url:
            block["S3_ENDPOINT"] = endpoint_url
    elif url.startswith(_SERVICE):
        block["BUCKET_NAME"] = dataset_id.partition("/")[0]
        block["S3_ENDPOINT"] = f"{url.removeprefix('warp+').rstrip('/')}/s3"
    return block


def _job(records: RecordStore, record: JobRecord) -> TrainingJob:
    ended = records.get(f"jobs/{record.job_id}/ended", JobResult)
    return TrainingJob(
        record.job_id,
        record.snapshot_id,
        record.version,
        record.task_type,
        record.model_name,
        ended.status if ended else "running",
        record.snapshot_status_at_start,
        read_state(records, record.version),
        record.author,
        record.time,
        environment(records.session, record, records.dataset_id),
    )
