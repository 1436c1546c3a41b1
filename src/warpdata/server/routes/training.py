"""Training jobs: each pins HEAD as a version, and gives the environment of its trainer."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Path, Query, Response
from pydantic import StringConstraints

from warpdata.collections import TrainingJob, store_variables
from warpdata.limits import MAX_TRAINING_TEXT_LENGTH
from warpdata.server.caller import BaseUrl, Caller, Once, ServiceOf
from warpdata.server.index import record_change
from warpdata.server.routes.collections import open_collection
from warpdata.server.routes.datasets import Readable
from warpdata.server.routes.parameters import Answer, Body, Sentence, page_behind
from warpdata.server.routes.refs import Writable

__all__ = ["router"]

router = APIRouter(prefix="/datasets/{workspace}/{name}/training-jobs", tags=["training jobs"])
_JOB_ID = r"^[A-Za-z0-9][A-Za-z0-9._-]*$"
TrainingJobId = Annotated[str, Path(pattern=_JOB_ID, max_length=64)]
_Text = Annotated[str, StringConstraints(min_length=1, max_length=MAX_TRAINING_TEXT_LENGTH)]


class NewTrainingJobBody(Body):
    """What is trained. `task_type` belongs to the job, because the same images serve many tasks."""

    task_type: _Text
    model_name: _Text
    job_id: Annotated[str, StringConstraints(pattern=_JOB_ID, max_length=64)] | None = None


class EndBody(Body):
    """How a training job ended."""

    status: Literal["completed", "failed", "cancelled"] = "completed"
    note: Sentence = ""


class TrainingJobView(Answer):
    """A training job. `environment` is the block of variables that its trainer starts with, without credentials.

    Its addresses are those of the service: `WARP_STORE` for `wd.connect`, `S3_ENDPOINT` and `BUCKET_NAME` for S3.
    """

    job_id: str
    snapshot_id: str
    version: str
    task_type: str
    model_name: str
    status: str
    snapshot_status_at_start: str
    snapshot_status: str
    repaired_by: str | None
    author: str
    time: str
    environment: dict[str, str]


class TrainingJobList(Answer):
    """Training jobs, oldest first."""

    training_jobs: list[TrainingJobView]
    next_cursor: str | None


@router.post("", summary="Start a training job", status_code=201, response_model=TrainingJobView)
def create_training_job(
    *, service: ServiceOf, caller: Caller, dataset_id: Writable, base: BaseUrl, body: NewTrainingJobBody, once: Once
) -> Response:
    """Pin HEAD as the version `training-job-<id>`, and record the job. Repeating it with the same id returns it."""

    def work() -> TrainingJobView:
        collection = open_collection(service, dataset_id, caller.name)
        job = collection.start_training(body.task_type, body.model_name, job_id=body.job_id)
        detail = {"training_job": job.job_id, "version": job.version}
        record_change(service, caller, dataset_id, "start-training", detail)
        return _view(job, dataset_id, base)

    return once.answer(work)


@router.get("", summary="List training jobs")
def list_training_jobs(
    service: ServiceOf,
    dataset_id: Readable,
    base: BaseUrl,
    cursor: Annotated[str | None, Query(max_length=64, description="The `next_cursor` before.")] = None,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
) -> TrainingJobList:
    """List the training jobs of a collection, oldest first."""
    found = open_collection(service, dataset_id).jobs()
    page, following = page_behind([(one.job_id, one) for one in found], cursor, limit)
    return TrainingJobList(training_jobs=[_view(one, dataset_id, base) for one in page], next_cursor=following)


@router.get("/{training_job_id}", summary="Show a training job")
def get_training_job(
    service: ServiceOf, dataset_id: Readable, base: BaseUrl, training_job_id: TrainingJobId
) -> TrainingJobView:
    """Show a training job, with the state that its version has now."""
    return _view(open_collection(service, dataset_id).job(training_job_id), dataset_id, base)


@router.post("/{training_job_id}/end", summary="End a training job", response_model=TrainingJobView)
def end_training_job(
    *,
    service: ServiceOf,
    caller: Caller,
    dataset_id: Writable,
    base: BaseUrl,
    training_job_id: TrainingJobId,
    body: EndBody,
    once: Once,
) -> Response:
    """Record how a training job ended. Another end than the recorded one is a conflict."""

    def work() -> TrainingJobView:
        job = open_collection(service, dataset_id, caller.name).end_training(
            training_job_id, body.status, note=body.note
        )
        detail = {"training_job": job.job_id, "status": job.status}
        record_change(service, caller, dataset_id, "end-training", detail)
        return _view(job, dataset_id, base)

    return once.answer(work, status=200)


def _view(job: TrainingJob, dataset_id: str, base: str) -> TrainingJobView:
    """Return a job as it is shown. Its trainer reads from the service, wherever the store is."""
    block = {name: value for name, value in job.environment.items() if name not in ("BUCKET_NAME", "S3_ENDPOINT")}
    return TrainingJobView(
        job_id=job.job_id,
        snapshot_id=job.snapshot_id,
        version=job.version,
        task_type=job.task_type,
        model_name=job.model_name,
        status=job.status,
        snapshot_status_at_start=job.snapshot_status_at_start,
        snapshot_status=job.snapshot.status,
        repaired_by=job.snapshot.repaired_by,
        author=job.author,
        time=job.time,
        environment=block | store_variables(f"warp+{base}", dataset_id),
    )
