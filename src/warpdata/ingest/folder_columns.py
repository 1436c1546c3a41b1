"""What the folders of a file say about it: its split and its class. Pure."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["SPLITS", "folder_columns"]

SPLITS = frozenset({"train", "val", "valid", "validation", "dev", "test"})
_FEWEST_CLASSES = 2


def folder_columns(paths: Sequence[str]) -> dict[str, list[str | None]]:
    """`split` and `label`, one value a path, each only where the folders say it.

    `split` is the outermost folder, if that is a split for every file. `label` is the folder below it;
    with fewer than two such folders they tell nothing, and there is no column.
    """
    columns: dict[str, list[str | None]] = {}
    folders = [path.split("/")[:-1] for path in paths]
    if all(inside and inside[0].lower() in SPLITS for inside in folders):
        columns["split"] = [inside[0] for inside in folders]
        folders = [inside[1:] for inside in folders]
    labels = [inside[0] if inside else None for inside in folders]
    if len(set(labels) - {None}) >= _FEWEST_CLASSES:
        columns = {"label": labels, **columns}
    return columns
