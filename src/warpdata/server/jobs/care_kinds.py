"""Jobs that care for the whole store: scrub, and garbage collection with its preview."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from warpdata.collections import Collection, is_collection
from warpdata.datasets import open_dataset
from warpdata.errors import NotFoundError, WarpError
from warpdata.maintenance import gc, scrub
from warpdata.primitives.progress import ProgressEvent
from warpdata.repository.catalog import Address
from warpdata.server.jobs.run import JobRun
from warpdata.session import Session, connect

__all__ = ["collect_garbage", "scrub_store"]

_MAX_PROBLEMS = 100
_GROUPS = 1000


def scrub_store(run: JobRun) -> Mapping[str, Any]:
    """Read every blob, restore what is damaged, and only then mark versions of collections that have lost files.

    Continues behind the last dataset that was done.
    """
    session = run.service.session
    mirrors = [connect(url, session.settings) for url in run.service.options.mirrors]
    listed = [run.dataset_id] if run.row.workspace else session.catalog.list_datasets().dataset_ids
    counts = dict.fromkeys(("datasets", "blobs", "size_bytes", "repaired", "problems"), 0)
    counts |= run.checkpoint.get("counts", {})
    after = str(run.checkpoint.get("after", ""))
    for at, dataset_id in enumerate(listed):
        if dataset_id > after:
            _scrub_dataset(run, dataset_id, mirrors, counts)
            run.progress(at + 1, len(listed))
            run.save({"after": dataset_id, "counts": counts})
    run.count(len(listed), len(listed))
    return counts


def _scrub_dataset(run: JobRun, dataset_id: str, mirrors: list[Session], counts: dict[str, int]) -> None:
    try:
        done = scrub(dataset_id, store=run.service.session, mirrors=mirrors, progress=lambda _: run.check())
    except NotFoundError:
        return  # it was removed meanwhile
    counts["datasets"] += 1
    counts["blobs"] += done.blobs
    counts["size_bytes"] += done.size_bytes
    counts["repaired"] += len(done.repaired)
    for digest in done.repaired[:_MAX_PROBLEMS]:
        run.log(f"{dataset_id}: restored {digest}")
    if not done.problems:
        return
    counts["problems"] += len(done.problems)
    for problem in done.problems[:_MAX_PROBLEMS]:
        run.log(problem)
    try:
        if is_collection(open_dataset(run.service.session, Address(dataset_id))):
            collection = Collection(run.service.session_of(run.principal.name), dataset_id)
            collection.check_integrity(deep=True, progress=lambda _: run.check())
    except WarpError as error:
        run.log(f"{dataset_id}: {error.message}")


def collect_garbage(run: JobRun) -> Mapping[str, Any]:
    """Find the garbage of the store, and without `dry_run` delete it."""
    given = run.arguments

    def on_progress(event: ProgressEvent) -> None:
        run.progress(event.done_files, event.total_files)

    report = gc(
        run.service.session, keep=given["keep"], dry_run=given["dry_run"], wait_s=given["wait_s"], progress=on_progress
    ).report
    groups = [
        {
            "dataset": one.group.dataset_id,
            "reason": one.group.reason,
            "kind": one.kind,
            "count": one.count,
            "size_bytes": one.size_bytes,
        }
        for one in report.garbage[:_GROUPS]
    ]
    return {
        "dry_run": report.dry_run,
        "keep": report.rule,
        "garbage": groups,
        "garbage_count": sum(one.count for one in report.garbage),
        "garbage_bytes": report.size_bytes,
        "kept_versions": report.kept_versions,
        "live_bytes": report.live_bytes,
        "deleted_count": report.deleted_count,
        "deleted_bytes": report.deleted_bytes,
        "ready_at": report.ready_at.isoformat() if report.ready_at else None,
    }
