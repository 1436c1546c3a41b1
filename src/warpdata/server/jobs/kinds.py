"""The kinds of jobs. Each is a function of a run, which has its arguments, takes progress, and may be cancelled."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from warpdata.maintenance import verify
from warpdata.primitives.progress import ProgressEvent
from warpdata.server.index import synchronize
from warpdata.server.jobs.analysis_kinds import check_labels, compute_map
from warpdata.server.jobs.care_kinds import collect_garbage, scrub_store
from warpdata.server.jobs.collection_kinds import check_collection_integrity, purge_image, repair_collection
from warpdata.server.jobs.data_kinds import export_version, import_dataset
from warpdata.server.jobs.run import JobKind, JobRun
from warpdata.server.jobs.selections import change_images
from warpdata.server.jobs.sql_kind import publish_query
from warpdata.server.labelling import send_batch, sync_labels

__all__ = ["KINDS"]

_MAX_PROBLEMS = 100


def _synchronize(run: JobRun) -> Mapping[str, Any]:
    """Bring the index to the state of the store. Continues behind the last dataset that was done."""

    def on_dataset(dataset_id: str, done: int, total: int) -> None:
        run.progress(done, total)
        if done % 50 == 0:
            run.save({"after": dataset_id})

    return asdict(synchronize(run.service, after=run.checkpoint.get("after", ""), on_dataset=on_dataset))


def _verify(run: JobRun) -> Mapping[str, Any]:
    """Read and hash every blob of a version."""
    _, dataset = run.service.open(run.dataset_id, run.arguments.get("version"))

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


KINDS: dict[str, JobKind] = {
    "change-images": change_images,
    "export": export_version,
    "gc": collect_garbage,
    "import": import_dataset,
    "integrity": check_collection_integrity,
    "label-batch": send_batch,
    "labels": sync_labels,
    "map": compute_map,
    "purge": purge_image,
    "quality": check_labels,
    "repair": repair_collection,
    "scrub": scrub_store,
    "sql-publish": publish_query,
    "synchronize": _synchronize,
    "verify": _verify,
}
"""The function of each kind."""
