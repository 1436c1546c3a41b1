"""Jobs that compute analyses of a version: a map of vectors, and checks of labels."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from warpdata.primitives.progress import ProgressEvent
from warpdata.server.analyses import find_map, find_quality, keep_map, keep_quality, make_quality
from warpdata.server.jobs.run import JobRun

__all__ = ["check_labels", "compute_map"]


def compute_map(run: JobRun) -> Mapping[str, Any]:
    """Compute the map of a column of vectors, unless it is there."""
    given = run.arguments
    _, dataset = run.service.open(run.dataset_id, given["version"])
    found = find_map(run.service, dataset, given["table"], given["column"])
    if found is None:

        def on_progress(event: ProgressEvent) -> None:
            run.progress(event.done_bytes, event.total_bytes)

        found = dataset.project(given["table"], given["column"], progress=on_progress)
        keep_map(run.service, dataset, given["table"], found)
    run.count(len(found.rows), len(found.rows))
    return {"version": dataset.version, "column": found.column, "points": len(found.rows)}


def check_labels(run: JobRun) -> Mapping[str, Any]:
    """Check the labels of a version, with `near_bits` also by reading all images, unless that is done."""
    near_bits = run.arguments["near_bits"]
    _, dataset = run.service.open(run.dataset_id, run.arguments["version"])
    found = find_quality(run.service, dataset, near_bits)
    if found is None:

        def on_progress(event: ProgressEvent) -> None:
            run.progress(event.done_files, event.total_files)

        found = make_quality(dataset, near_bits, on_progress)
        keep_quality(run.service, dataset, near_bits, found)
    run.count(found.images, found.images)
    return {"version": dataset.version, "findings": found.counts, "unread": found.unread}
