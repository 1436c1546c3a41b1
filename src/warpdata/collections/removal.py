"""Removal of contents from a version: rows, annotations and files, and new packed shards without them.

Used for branches and for successors of versions. Implements "Purge" of docs/specs/collections.md.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path

from warpdata.collections.changes import delete_rows
from warpdata.collections.tables import FILES
from warpdata.datasets import Dataset
from warpdata.edit import Edit
from warpdata.storage.cache import StagingDirectory

__all__ = ["remove_contents", "shards_of_paths"]


def remove_contents(edit: Edit, dataset: Dataset, paths: Sequence[str], blobs: Collection[str]) -> None:
    """Remove files from a version. Other files of the shards that will be erased move into new ones."""
    artifact = dataset.artifact(FILES)
    delete_rows(edit, paths)
    if artifact.entry.kind == "files":
        edit.remove_files(FILES, paths)
        return
    erased = {number for number, shard in enumerate(artifact.shards()) if shard.hash in blobs}
    gone = set(paths)
    moved = [member.path for member in artifact.members() if member.shard in erased and member.path not in gone]
    staging = StagingDirectory(dataset.session.settings.cache_dir)
    try:
        files: dict[str, Path] = {}
        for number, path in enumerate(moved):
            files[path] = staging.path / f"{number:08d}"
            files[path].write_bytes(artifact.read(path))
        edit.remove_files(FILES, [*paths, *moved])
        if files:
            edit.add_files(FILES, files)
        edit.save()  # while the staged files are there
    finally:
        staging.remove()


def shards_of_paths(dataset: Dataset, paths: Sequence[str]) -> set[str]:
    """Return the hashes of the blobs that hold some files of a version."""
    artifact = dataset.artifact(FILES)
    artifact.prepare(list(paths))
    return {artifact.shard_of(path).hash for path in paths if path in artifact}
