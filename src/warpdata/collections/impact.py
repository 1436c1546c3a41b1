"""Impact of a purge: the versions and training jobs that have a file, and a token that names this state.

Implements "Impact" of docs/specs/collections.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice

from warpdata.collections.reverse_index import FileVersions, ReverseIndex
from warpdata.collections.tables import FILES, IMAGES, quoted_lists, read_columns
from warpdata.collections.training import JOB_PREFIX
from warpdata.datasets import Dataset
from warpdata.errors import BadInputError, ErrorKind, LimitExceededError, ObjectNotFoundError
from warpdata.formats.labels import check_image_path
from warpdata.limits import MAX_PURGED_PATHS
from warpdata.primitives.hashing import sha256_hex
from warpdata.primitives.suggest import suggest

__all__ = ["ACTIONS", "AffectedVersion", "Impact", "assess_impact", "check_action"]

_SEARCHED_PATHS = 2000
ACTIONS = ("mark_broken", "auto_repair", "cancel")


@dataclass(frozen=True, slots=True)
class AffectedVersion:
    """A version with a name that has the file. `snapshot_type` is "manual" or "training"."""

    label: str
    version: str
    snapshot_type: str

    @staticmethod
    def of(label: str, version: str) -> AffectedVersion:
        """Return the version with the type that follows from its label."""
        return AffectedVersion(label, version, "training" if label.startswith(JOB_PREFIX) else "manual")


@dataclass(frozen=True, slots=True)
class Impact:
    """What a purge of a path would take away. `token` names this state: a purge with an older one is a conflict."""

    path: str
    hashes: tuple[str, ...]
    """The contents that the path has had. All of them go."""
    paths: tuple[str, ...]
    """Every path that has one of these contents, in any version."""
    in_head: bool
    affected_versions: tuple[AffectedVersion, ...]
    affected_jobs: tuple[str, ...]
    size_bytes: int
    """The bytes of the files of HEAD that go; 0 if HEAD has none of them."""
    is_packed: bool
    """Files share packed shards, which will be written again without this one."""
    options: tuple[str, ...]
    token: str

    @property
    def status(self) -> str:
        """The answer of the platform: "confirmation_required" if versions are affected, else "no_impact"."""
        return "confirmation_required" if self.affected_versions else "no_impact"


def assess_impact(head: Dataset, index: ReverseIndex, path: str) -> Impact:
    """Look up a path. Raise `ObjectNotFoundError` if no version has it. Reads the index, after it follows the store."""
    check_image_path(path)
    index.refresh()
    hashes = index.hashes_of(path)
    if not hashes:
        near = suggest(path, [member.path for member in islice(head.artifact(FILES).members(), _SEARCHED_PATHS)])
        raise ObjectNotFoundError(
            f"{head.id} has had no file {path!r} in any version", hint=near, kind=ErrorKind.MEMBER_NOT_FOUND
        )
    found = index.find(hashes)
    if len(found.paths) > MAX_PURGED_PATHS:
        raise LimitExceededError(
            f"{len(found.paths):,} paths have the content of {path!r}; one purge takes at most {MAX_PURGED_PATHS}"
        )
    affected = tuple(AffectedVersion.of(label, version) for label, version in found.labels)
    jobs = tuple(one.label.removeprefix(JOB_PREFIX) for one in affected if one.snapshot_type == "training")
    in_head = head.version in found.versions
    return Impact(
        path,
        hashes,
        found.paths,
        in_head,
        affected,
        jobs,
        _head_bytes(head, found) if in_head else 0,
        bool(found.kinds - {"files"}),
        ACTIONS,
        _token(head, found),
    )


def check_action(action: str) -> str:
    """Return the action. `BadInputError` for one that is not known."""
    if action not in ACTIONS:
        raise BadInputError(f"action={action!r} is not known", hint=f"Known: {', '.join(ACTIONS)}.")
    return action


def _head_bytes(head: Dataset, found: FileVersions) -> int:
    sizes = [
        size or 0
        for where in quoted_lists("path", found.paths)
        for size in read_columns(head, IMAGES, ["size_bytes"], where)["size_bytes"].to_pylist()
    ]
    return sum(sizes)


def _token(head: Dataset, found: FileVersions) -> str:
    """Return the hash of everything that a purge of these files depends on. No value has a line end."""
    lines = [head.id, head.version, *found.hashes, "", *found.paths, "", *sorted(found.versions), ""]
    lines += [f"{label} {version}" for label, version in found.labels]
    return sha256_hex("\n".join(lines).encode())
