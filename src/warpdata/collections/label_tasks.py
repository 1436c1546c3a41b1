"""Tasks of a labelling tool that follow a collection: which to create and which to delete when a version changes.

A task is about the bytes of an image, so a moved or copied file keeps its task, and a replaced one gets another.
Implements "Tasks" of docs/specs/label-inbox.md.
"""

from __future__ import annotations

from dataclasses import dataclass

from warpdata.collections.tables import IMAGES, read_columns
from warpdata.datasets import Dataset

__all__ = ["TaskChanges", "task_changes"]


@dataclass(frozen=True, slots=True)
class TaskChanges:
    """The difference in tasks between two versions, as pairs of the hash of an image and one of its paths."""

    created: tuple[tuple[str, str], ...]
    deleted: tuple[tuple[str, str], ...]
    kept: int


def task_changes(older: Dataset | None, newer: Dataset, where: str | None = None) -> TaskChanges:
    """Return the tasks to create and to delete. `older` is None before the first; `where` is a filter of images.

    An image that leaves the filter loses its task.
    """
    before = {} if older is None else _tasks(older, where)
    after = _tasks(newer, where)
    created = tuple((digest, path) for digest, path in after.items() if digest not in before)
    deleted = tuple((digest, path) for digest, path in before.items() if digest not in after)
    return TaskChanges(created, deleted, len(after) - len(created))


def _tasks(dataset: Dataset, where: str | None) -> dict[str, str]:
    """Return the first path of each content, in the order of paths."""
    rows = read_columns(dataset, IMAGES, ["path", "hash"], where)
    listed = sorted(zip(rows["path"].to_pylist(), rows["hash"].to_pylist(), strict=True), reverse=True)
    return {digest: path for path, digest in listed}
