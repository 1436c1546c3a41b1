"""Jobs over a selection of images: those that were named, or all rows of a version that match."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from warpdata.collections import Collection
from warpdata.errors import BadInputError, LimitExceededError
from warpdata.limits import MAX_CHANGED_IMAGES
from warpdata.server.index import record_change
from warpdata.server.jobs.run import JobRun
from warpdata.server.samples import SampleQuery, select_rows

__all__ = ["change_images", "selected_paths"]

_REPORT_IMAGES = 500


def change_images(run: JobRun) -> Mapping[str, Any]:
    """Tag, move or remove the images of a selection, with one commit. A repetition changes nothing more."""
    given = run.arguments
    paths = selected_paths(run)
    if not paths:
        raise BadInputError("no image matches", hint="Choose images of this version.")
    if len(paths) > MAX_CHANGED_IMAGES:
        raise LimitExceededError(f"{len(paths):,} images are more than the limit of {MAX_CHANGED_IMAGES:,}")
    collection = Collection(run.service.session_of(run.principal.name), run.dataset_id)
    message = given["message"] or _describe(given, len(paths))
    with collection.changes(message, key=f"job-{run.row.id}") as change:
        if given["remove"]:
            change.remove(paths)
        else:
            for done, (path, tags) in enumerate(_changed_tags(run, paths)):
                change.set(path, split=given["split"], tags=tags)
                if done % _REPORT_IMAGES == 0:
                    run.progress(done, len(paths))
    assert change.version is not None
    detail = {"images": len(paths), "message": message, "version": change.version}
    record_change(run.service, run.principal, run.dataset_id, "change-images", detail)
    run.count(len(paths), len(paths))
    return {"version": change.version, "images": len(paths)}


def selected_paths(run: JobRun) -> list[str]:
    """Return the paths of a selection: those that were named, or those of all rows that match in a version."""
    given = run.arguments
    if given["paths"] is not None:
        return list(dict.fromkeys(given["paths"]))
    _, dataset = run.service.open(run.dataset_id, given["version"])
    table = dataset.table("images")
    query = SampleQuery("images", given["filter"], class_name=given["class_name"])
    kept = select_rows(run.service, dataset, table, query)
    column = table.raw().select(["path"]).to_arrow(allow_large=True)["path"]
    paths: list[str] = column.take(kept.numbers).to_pylist()
    return paths


def _changed_tags(run: JobRun, paths: Sequence[str]) -> Iterator[tuple[str, list[str] | None]]:
    """Yield each path with its new tags; None if tags stay as they are."""
    given = run.arguments
    added, removed = list(given["add_tags"]), set(given["remove_tags"])
    if not added and not removed:
        yield from ((path, None) for path in paths)
        return
    _, head = run.service.open(run.dataset_id, None)
    rows = head.table("images").raw().select(["path", "tags"]).to_arrow(allow_large=True)
    known = dict(zip(rows["path"].to_pylist(), rows["tags"].to_pylist(), strict=True))
    for path in paths:
        kept = [tag for tag in known.get(path) or [] if tag not in removed]
        yield path, [*kept, *(tag for tag in added if tag not in kept)]


def _describe(given: Mapping[str, Any], count: int) -> str:
    if given["remove"]:
        return f"remove {count:,} images"
    parts = [f"tag {', '.join(given['add_tags'])}"] if given["add_tags"] else []
    parts += [f"remove tag {', '.join(given['remove_tags'])}"] if given["remove_tags"] else []
    parts += [f"move to {given['split']}"] if given["split"] else []
    return f"{'; '.join(parts)}: {count:,} images"[:1000]
