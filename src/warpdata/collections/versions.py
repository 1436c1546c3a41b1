"""Versions of a collection: labels, with the type of snapshot and the state of each.

Implements "Versions" of docs/specs/collections.md.
"""

from __future__ import annotations

from dataclasses import dataclass

from warpdata.collections.records import RecordStore
from warpdata.collections.states import VALID, VersionState, read_state
from warpdata.collections.training import JOB_PREFIX
from warpdata.errors import BadInputError, ErrorKind
from warpdata.primitives.parallel import IO_POOL

__all__ = ["HEAD", "CollectionVersion", "check_version_name", "list_versions"]

HEAD = "HEAD"
"""The name of the newest state, in every method that takes a version."""
_NAME_LENGTH = 112


@dataclass(frozen=True, slots=True)
class CollectionVersion:
    """A version with a name. `snapshot_type` is "manual" or "training"."""

    name: str
    version: str
    time: str
    snapshot_type: str
    state: VersionState


def check_version_name(name: str) -> str:
    """Return the name. `BadInputError` for names that have another meaning, or leave no room for a successor."""
    if name == HEAD or name.startswith(JOB_PREFIX) or len(name) > _NAME_LENGTH:
        raise BadInputError(
            f"a version cannot be called {name[:128]!r}",
            hint=f"{HEAD!r} and names that begin with {JOB_PREFIX!r} have a meaning; "
            f"a name has at most {_NAME_LENGTH} characters.",
            kind=ErrorKind.INVALID_NAME,
        )
    return name


def list_versions(records: RecordStore) -> list[CollectionVersion]:
    """Return all versions with a name, oldest first."""
    marked = {name.split("/")[1] for name in records.names("states")}
    labels = records.session.catalog.labels(records.dataset_id)

    def state(version: str) -> VersionState:
        return read_state(records, version) if version in marked else VersionState(VALID, version)

    states = IO_POOL.map_all(lambda label: state(label.version), labels)
    found = [
        CollectionVersion(label.name, label.version, label.time, _type_of(label.name), one)
        for label, one in zip(labels, states, strict=True)
    ]
    return sorted(found, key=lambda version: (version.time, version.name))


def _type_of(name: str) -> str:
    return "training" if name.startswith(JOB_PREFIX) else "manual"
