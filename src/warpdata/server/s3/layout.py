"""Keys of objects, and what they name: a file of a version, in either of two layouts.

`NAME/REF/PATH` has every dataset of the workspace. `datasets/NAME/…` has collections as platforms expect them, with
the images of HEAD and a document for each version. Implements "Layout" of docs/specs/gateway.md.
"""

from __future__ import annotations

from dataclasses import dataclass

from warpdata.collections import HEAD
from warpdata.repository.catalog import is_dataset_id

__all__ = ["INBOX", "PLATFORM_ROOT", "SNAPSHOT", "FileKey", "parse_key"]

PLATFORM_ROOT = "datasets"
"""The first part of keys of the second layout. A dataset of this name is found by the second layout alone."""
INBOX = "inbox"
SNAPSHOT = "snapshot.json"
_DOCUMENTS = ("meta.json", "annotations.json")


@dataclass(frozen=True, slots=True)
class FileKey:
    """A file of a version: the dataset, the ref as it is written, and the path below it."""

    dataset_id: str
    ref: str
    path: str


def parse_key(workspace: str, key: str) -> FileKey | None:
    """Return what a key names; None for a key that names nothing in either layout."""
    name, _, rest = key.partition("/")
    if name == PLATFORM_ROOT:
        return _parse_platform(workspace, rest)
    ref, slash, path = rest.partition("/")
    dataset_id = f"{workspace}/{name}"
    if not slash or not ref or not path or not is_dataset_id(dataset_id):
        return None
    return FileKey(dataset_id, ref, path)


def _parse_platform(workspace: str, rest: str) -> FileKey | None:
    """Parse what follows `datasets/`: the name of a dataset, or its whole id, then a file of the platform."""
    name, _, path = rest.partition("/")
    found = _platform_file(f"{workspace}/{name}", path)
    if found is None and name == workspace:
        name, _, path = path.partition("/")
        found = _platform_file(f"{workspace}/{name}", path)
    return found


def _platform_file(dataset_id: str, path: str) -> FileKey | None:
    if not is_dataset_id(dataset_id):
        return None
    if path in _DOCUMENTS or (path.startswith("images/") and path != "images/"):
        return FileKey(dataset_id, HEAD, path)
    folder, _, name = path.partition("/")
    snapshot = name.removesuffix(".json")
    if folder == "snapshots" and snapshot and name != snapshot and "/" not in name:
        return FileKey(dataset_id, snapshot, SNAPSHOT)
    return None
