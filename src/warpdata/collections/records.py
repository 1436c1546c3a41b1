"""Records that a collection keeps beside its history: training jobs, states of versions, intents and receipts.

Each is created once and never changed. Implements "Records" of docs/specs/collections.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec

from warpdata.errors import CorruptError
from warpdata.repository.catalog import list_collection_records, put_collection_record, read_collection_record
from warpdata.session import Session

__all__ = ["BrokenRecord", "ErasedRecord", "JobRecord", "JobResult", "PurgeIntent", "RecordStore", "RepairRecord"]

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class JobRecord:
    """A training job: what it trains, and the version that it has pinned."""

    job_id: str
    snapshot_id: str
    version: str
    commit: str
    task_type: str
    model_name: str
    snapshot_status_at_start: str
    author: str
    time: str


@dataclass(frozen=True, slots=True)
class JobResult:
    """The end of a training job. `status` is "completed", "failed" or "cancelled"."""

    status: str
    note: str
    time: str


@dataclass(frozen=True, slots=True)
class BrokenRecord:
    """Files that a version has lost. `cause` is the id of a purge, or "check" if a check found them missing."""

    version: str
    cause: str
    missing: tuple[str, ...]
    missing_count: int
    time: str


@dataclass(frozen=True, slots=True)
class RepairRecord:
    """The successor of a version after a purge: the same content without the files that were lost."""

    version: str
    cause: str
    label: str
    repaired_by: str
    removed: tuple[str, ...]
    time: str


@dataclass(frozen=True, slots=True)
class PurgeIntent:
    """A purge that was decided. Everything after it follows from this record, so it can be resumed."""

    purge_id: str
    path: str
    hashes: tuple[str, ...]
    blobs: tuple[str, ...]
    """The stored blobs that hold the bytes: those of the files, or the shards that they are packed in."""
    action: str
    token: str
    head: str
    reason: str
    author: str
    time: str
    is_packed: bool


@dataclass(frozen=True, slots=True)
class ErasedRecord:
    """A blob that a purge erases. A repair of stored bytes does not bring it back."""

    purge_id: str
    time: str


@dataclass(frozen=True)
class RecordStore:
    """Reads and creates the records of one collection. Reads go to the store, not to the cache."""

    session: Session
    dataset_id: str

    def put(self, name: str, record: Any) -> bool:
        """Create a record. False: there is one of this name."""
        members = msgspec.to_builtins(record)
        return put_collection_record(self.session.writer, self.dataset_id, name, members, self.session.pause)

    def get(self, name: str, kind: type[_T]) -> _T | None:
        """Return a record, or None."""
        members = read_collection_record(self.session.writer, self.dataset_id, name)
        if members is None:
            return None
        try:
            return msgspec.convert(members, kind)
        except msgspec.ValidationError as error:
            raise CorruptError(f"the record {name} of {self.dataset_id} cannot be read: {error}") from error

    def names(self, folder: str) -> list[str]:
        """Return the names of the records in a directory, sorted."""
        return list_collection_records(self.session.writer, self.dataset_id, folder)
