"""The records of history: commits, heads, labels and hints, and their bytes.

A commit is named by its hash. Heads, labels and hints contain a checksum, so that a reader detects a flipped bit.
Implements "Records" of docs/specs/catalog.md.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from datetime import datetime
from typing import Any, TypeAlias, TypeVar, cast

import msgspec

from warpdata.errors import BadInputError, CorruptError, LimitExceededError, UnsupportedError, WarpError
from warpdata.limits import MAX_AUTHOR_LENGTH, MAX_MESSAGE_LENGTH, MAX_RECORD_BYTES
from warpdata.primitives.hashing import is_digest, sha256_hex
from warpdata.primitives.strict_json import decode_json
from warpdata.repository.manifest import Json, canonical_json

__all__ = [
    "Commit",
    "Head",
    "Hint",
    "HistoryEntry",
    "LabelEntry",
    "LabelMarker",
    "Pin",
    "Removal",
    "Tombstone",
    "VersionLabel",
    "check_commit_texts",
    "decode_commit",
    "decode_record",
    "encode_commit",
    "encode_record",
    "format_of",
    "matches_checksum",
]


@dataclass(frozen=True, slots=True)
class Commit:
    """One step of history. `time` is RFC 3339 in UTC.

    `operation` is "replace", "append", "restore" or "copy". Readers accept other words. `id_counters` has the next free
    sample ids of tables that the version lacks, or for which it states a smaller one. Not to be changed.
    """

    version: str
    parents: tuple[str, ...]
    txn_id: str
    operation: str
    author: str
    message: str
    time: str
    id_counters: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class HistoryEntry:
    """A commit and its id."""

    commit_id: str
    commit: Commit


@dataclass(frozen=True, slots=True)
class Removal:
    """The reason why a log entry is a tombstone. `renamed_to` is the new name of a renamed dataset."""

    time: str
    author: str
    renamed_to: str | None = None


@dataclass(frozen=True, slots=True)
class Head:
    """Entry `sequence` in the log of a branch. With `removed`, a tombstone: commit and version are the last ones."""

    sequence: int
    commit: str
    version: str
    txn_id: str
    removed: Removal | None = None


@dataclass(frozen=True, slots=True)
class VersionLabel:
    name: str
    commit: str
    version: str
    time: str


@dataclass(frozen=True, slots=True)
class LabelEntry:
    """Entry `sequence` in the log of a label, from 2 on. With `removed`, a tombstone of the label before it."""

    name: str
    sequence: int
    commit: str
    version: str
    time: str
    txn_id: str = ""
    removed: Removal | None = None

    @property
    def label(self) -> VersionLabel:
        return VersionLabel(self.name, self.commit, self.version, self.time)


@dataclass(frozen=True, slots=True)
class LabelMarker:
    """Takes the place of the first entry of a label that was removed. Later entries decide."""

    name: str


@dataclass(frozen=True, slots=True)
class Hint:
    """A recent head of the main branch. It may be old, but never newer than the log."""

    branch: str
    sequence: int
    commit: str
    version: str


@dataclass(frozen=True, slots=True)
class Pin:
    """A version that garbage collection must keep. Its name is unique in the store."""

    name: str
    dataset_id: str
    commit: str
    version: str
    time: str


@dataclass(frozen=True, slots=True)
class Tombstone:
    """A version that was collected, and the retention rule that did not keep it."""

    version: str
    time: str
    rule: str


_MAX_COUNTER = 2**53 - 1
AnyRecord: TypeAlias = Commit | Head | VersionLabel | LabelEntry | LabelMarker | Hint | Pin | Tombstone
_Record = TypeVar("_Record", bound=AnyRecord)
_FORMATS: dict[type, tuple[int, ...]] = {Head: (1, 2), LabelEntry: (2,), LabelMarker: (2,)}
"""Formats that differ from 1. A head of format 2 is a tombstone, which readers of format 1 refuse."""


def check_commit_texts(author: str, message: str) -> None:
    """Raise `BadInputError` unless a commit can hold these texts. Cheap, so callers check before they upload."""
    for what, text, limit in (("author", author, MAX_AUTHOR_LENGTH), ("message", message, MAX_MESSAGE_LENGTH)):
        if not isinstance(text, str):
            raise BadInputError(f"the {what} must be text, not {type(text).__name__}")
        if len(text) > limit:
            raise LimitExceededError(f"the {what} has {len(text)} characters; the limit is {limit}")
        canonical_json(text)  # refuses unpaired surrogates


def encode_commit(commit: Commit) -> tuple[str, bytes]:
    """Return the id of a commit, and its bytes. Raise `BadInputError` if a reader would refuse them."""
    check_commit_texts(commit.author, commit.message)
    data = canonical_json({"format": 1, **_members(commit)})
    _check_readable(commit, data, checked=False)
    return sha256_hex(data), data


def decode_commit(data: bytes, commit_id: str) -> Commit:
    if sha256_hex(data) != commit_id:
        raise CorruptError(f"commit {commit_id} does not match its hash")
    return _build(data, Commit, f"commit {commit_id}")


def encode_record(record: Head | VersionLabel | LabelEntry | LabelMarker | Hint | Pin | Tombstone) -> bytes:
    """Return the bytes of a pointer. Raise `BadInputError` if a reader would refuse them."""
    number = 1 if isinstance(record, Head) and record.removed is None else max(_formats(type(record)))
    body: dict[str, Json] = {"format": number, **_members(record)}
    data = canonical_json({**body, "checksum": sha256_hex(canonical_json(body))})
    _check_readable(record, data, checked=True)
    return data


def decode_record(data: bytes, kind: type[_Record], where: str) -> _Record:
    """Parse and check a pointer. Raise `CorruptError` with the key."""
    return _build(data, kind, where, checked=True)


def matches_checksum(data: bytes) -> bool:
    """Return whether the bytes are a record, of any kind and format, that matches the checksum in it."""
    try:
        body = decode_json(data, "a record")
        if not isinstance(body, dict):
            return False
        checksum = body.pop("checksum", None)
        return bool(checksum == sha256_hex(canonical_json(body)))
    except (WarpError, ValueError):
        return False


def format_of(data: bytes, where: str) -> Json:
    """Return the format number of a record that is not checked yet."""
    body = decode_json(data, where) if len(data) <= MAX_RECORD_BYTES else None
    return body.get("format") if isinstance(body, dict) else None


def _build(data: bytes, kind: type[_Record], where: str, *, checked: bool = False) -> _Record:
    if len(data) > MAX_RECORD_BYTES:
        raise CorruptError(f"{where} has {len(data)} bytes; the limit is {MAX_RECORD_BYTES}")
    body = decode_json(data, where)
    try:
        if not isinstance(body, dict):
            raise CorruptError(f"{where} is not a record")
        number = _check_format(body.pop("format", None), _formats(kind), where)
        if checked and body.pop("checksum", None) != sha256_hex(canonical_json({"format": number, **body})):
            raise CorruptError(f"{where} does not match its checksum")
        if kind is Head and number == 1:
            body.pop("removed", None)  # an unknown member of format 1
        record = msgspec.convert(body, kind)
        if isinstance(record, Head) and (record.removed is not None) != (number == 2):
            raise CorruptError(f"{where} has format {number}, but is no tombstone")
    except (CorruptError, UnsupportedError):
        raise
    except (msgspec.MsgspecError, ValueError) as error:
        raise CorruptError(f"{where} cannot be read: {error}") from error
    _check_values(record, where)
    return record


def _check_values(record: AnyRecord, where: str) -> None:
    """Check what a type cannot say. Readers and writers share these rules."""
    if isinstance(record, LabelMarker):
        return
    if not is_digest(record.version):
        raise CorruptError(f"{where} points to {record.version!r}, which is not a version")
    commits: tuple[str, ...] = ()
    if isinstance(record, Commit):
        commits = record.parents
        _check_counters(record.id_counters, where)
    elif not isinstance(record, Tombstone):
        commits = (record.commit,)
    for commit in commits:
        if not is_digest(commit):
            raise CorruptError(f"{where} points to {commit!r}, which is not a commit")
    first = 2 if isinstance(record, LabelEntry) else 1
    if isinstance(record, Head | Hint | LabelEntry) and record.sequence < first:
        raise CorruptError(f"{where} has sequence {record.sequence}; the first is {first}")
    times = [record.time] if isinstance(record, Commit | VersionLabel | LabelEntry | Pin | Tombstone) else []
    if isinstance(record, Head | LabelEntry) and record.removed is not None:
        times.append(record.removed.time)
    for time in times:
        if not _is_time(time):
            raise CorruptError(f"{where} has the time {time!r}, which is not RFC 3339 with an offset")


def _check_counters(counters: dict[str, int], where: str) -> None:
    for table, counter in counters.items():
        if not 0 <= counter <= _MAX_COUNTER:
            raise CorruptError(f"{where} has the counter {counter} of table {table!r}")


def _is_time(text: str) -> bool:
    try:
        return datetime.fromisoformat(text).tzinfo is not None
    except ValueError:
        return False


def _members(record: AnyRecord) -> dict[str, Json]:
    members: dict[str, Any] = {each.name: getattr(record, each.name) for each in fields(record)}
    if not members.get("id_counters", True):
        del members["id_counters"]
    removed = members.pop("removed", None)
    return members if removed is None else {**members, "removed": msgspec.to_builtins(removed)}


def _check_readable(record: AnyRecord, data: bytes, *, checked: bool) -> None:
    """Decode the bytes before they are stored: a record that no reader accepts would break the history for good."""
    what = f"a {type(record).__name__.lower()}"
    try:
        found = _build(data, type(record), what, checked=checked)
    except CorruptError as error:
        raise BadInputError(f"{error.message}; it was not stored") from error
    if found != record:
        raise BadInputError(f"{what} would change when it is stored: {found} instead of {record}")


def _formats(kind: type) -> tuple[int, ...]:
    return _FORMATS.get(kind, (1,))


def _check_format(number: Json, known: tuple[int, ...], where: str) -> int:
    if isinstance(number, int) and number > max(known):
        raise UnsupportedError(
            f"{where} has format {number}; this warpdata reads {max(known)}", hint="Upgrade warpdata."
        )
    if number not in known or isinstance(number, bool):
        raise CorruptError(f"{where} is not a record of format {max(known)}")
    return cast("int", number)
