"""Jobs of collections: purge, repair and the check of integrity.

The domain does each step idempotently, so a job that was killed or stopped repeats them and continues where it was.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from warpdata.collections import PURGE_STEPS, Collection, PurgeOptions, PurgeRequest
from warpdata.primitives.progress import ProgressEvent
from warpdata.server.index import record_change
from warpdata.server.jobs.run import JobRun

__all__ = ["check_collection_integrity", "purge_image", "repair_collection"]

_STEP = 1000
"""A step of a purge in the numbers of its progress."""
_MAX_PROBLEMS = 100


def purge_image(run: JobRun) -> Mapping[str, Any]:
    """Erase a file from all versions. The receipt is in the store; the result says which one."""
    given = run.arguments
    request = PurgeRequest(given["path"], given["action"], given["token"], given["reason"], given["author"])
    begun: set[str] = set()

    def on_step(step: str, done: int, total: int) -> None:
        if step not in begun:
            begun.add(step)
            run.log(f"step {step}")
        at = PURGE_STEPS.index(step) * _STEP + _STEP * done // max(total, 1)
        run.progress(at, len(PURGE_STEPS) * _STEP)

    receipt = _collection(run).run_purge(request, PurgeOptions(None, lambda _: run.check(), on_step))
    detail = {"path": receipt.path, "action": receipt.action, "purge": receipt.purge_id, "reason": receipt.reason}
    record_change(run.service, run.principal, run.dataset_id, "purge-image", detail)
    run.count(len(PURGE_STEPS) * _STEP, len(PURGE_STEPS) * _STEP)
    return {
        "purge_id": receipt.purge_id,
        "is_clean": receipt.is_clean,
        "erased_bytes": receipt.erased_bytes,
        "broken_count": receipt.broken_count,
        "successor_count": receipt.successor_count,
    }


def repair_collection(run: JobRun) -> Mapping[str, Any]:
    """Make successors of broken versions, and remove lost files from HEAD."""
    report = _collection(run).repair(run.arguments.get("refs"), on_step=run.progress)
    detail = {"successors": dict(list(report.successors.items())[:_MAX_PROBLEMS]), "head": report.head}
    record_change(run.service, run.principal, run.dataset_id, "repair", detail)
    return {"successors": dict(report.successors), "head": report.head}


def check_collection_integrity(run: JobRun) -> Mapping[str, Any]:
    """Look for the files of versions in the store, and mark the versions that have lost some."""

    def on_progress(event: ProgressEvent) -> None:
        run.progress(event.done_files, event.total_files)

    refs, is_deep = run.arguments.get("refs"), bool(run.arguments.get("deep"))
    report = _collection(run).check_integrity(refs, deep=is_deep, progress=on_progress)
    for problem in report.problems[:_MAX_PROBLEMS]:
        run.log(problem)
    return {
        "states": dict(Counter(state.status for state in report.states.values())),
        "checked_blobs": report.checked_blobs,
        "checked_bytes": report.checked_bytes,
        "problems": len(report.problems),
        "problem_list": list(report.problems[:_MAX_PROBLEMS]),
    }


def _collection(run: JobRun) -> Collection:
    return Collection(run.service.session_of(run.principal.name), run.dataset_id)
