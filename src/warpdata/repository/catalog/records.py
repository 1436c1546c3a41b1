"""The records of history: commits, heads, labels and hints, and their bytes.

A commit is named by its hash. Heads, labels and hints contain a checksum, so that a reader detects a flipped bit.
Implements "Records" of docs/specs/catalog.md.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from datetime import datetime
from typing import TypeVar

import msgspec

from warpdata.errors import BadInputError, CorruptError, LimitExceededError, UnsupportedError
from warpdata.limits import MAX_AUTHOR_LENGTH, MAX_MESSAGE_LENGTH, MAX_RECORD_BYTES
from warpdata.primitives.hashing import is_digest, sha256_hex
from warpdata.primitives.strict_json import decode_json
from warpdata.repository.manifest import Json, canonical_json

__all__ = [
    "Commit",
    "Head",
    "Hint",
    "HistoryEntry",
    "Label",
    "check_commit_texts",
    "decode_commit",
    "decode_record",
    "encode_commit",
    "encode_record",
]


@dataclass(frozen=True, slots=True)
class Commit:
    """One step of history. `time` is RFC 3339 in UTC; `operation` is "replace" or "append"."""

    version: str
    parents: tuple[str, ...]
    txn_id: str
    operation: str
    author: str
    message: str
    time: str


@dataclass(frozen=True, slots=True)
class HistoryEntry:
    """A commit and its id."""

    commit_id: str
    commit: Commit


@dataclass(frozen=True, slots=True)
class Head:
    """Entry `sequence` in the log of a branch."""

    sequence: int
    commit: str
    version: str
    txn_id: str


@dataclass(frozen=True, slots=True)
class Label:
    name: str
    commit: str
    version: str
    time: str


@dataclass(frozen=True, slots=True)
class Hint:
    """A recent head of the main branch. It may be old, but never newer than the log."""

    branch: str
    sequence: int
    commit: str
    version: str


_Record = TypeVar("_Record", bound=Commit | Head | Label | Hint)


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


def encode_record(record: Head | Label | Hint) -> bytes:
    """Return the bytes of a pointer. Raise `BadInputError` if a reader would refuse them."""
    body: dict[str, Json] = {"format": 1, **_members(record)}
    data = canonical_json({**body, "checksum": sha256_hex(canonical_json(body))})
    _check_readable(record, data, checked=True)
    return data


def decode_record(data: bytes, kind: type[_Record], where: str) -> _Record:
    """Parse and check a pointer. Raise `CorruptError` with the key."""
    return _build(data, kind, where, checked=True)


def _build(data: bytes, kind: type[_Record], where: str, *, checked: bool = False) -> _Record:
    if len(data) > MAX_RECORD_BYTES:
        raise CorruptError(f"{where} has {len(data)} bytes; the limit is {MAX_RECORD_BYTES}")
    body = decode_json(data, where)
    try:
        if not isinstance(body, dict):
            raise CorruptError(f"{where} is not a record")
        _check_format(body.pop("format", None), where)
        if checked and body.pop("checksum", None) != sha256_hex(canonical_json({"format": 1, **body})):
            raise CorruptError(f"{where} does not match its checksum")
        record = msgspec.convert(body, kind)
    except (CorruptError, UnsupportedError):
        raise
    except (msgspec.MsgspecError, ValueError) as error:
        raise CorruptError(f"{where} cannot be read: {error}") from error
    _check_values(record, where)
    return record


def _check_values(record: Commit | Head | Label | Hint, where: str) -> None:
    """Check what a type cannot say. Readers and writers share these rules."""
    if not is_digest(record.version):
        raise CorruptError(f"{where} points to {record.version!r}, which is not a version")
    commits = record.parents if isinstance(record, Commit) else (record.commit,)
    for commit in commits:
        if not is_digest(commit):
            raise CorruptError(f"{where} points to {commit!r}, which is not a commit")
    if isinstance(record, Head | Hint) and record.sequence < 1:
        raise CorruptError(f"{where} has sequence {record.sequence}; the first is 1")
    if isinstance(record, Commit | Label) and not _is_time(record.time):
        raise CorruptError(f"{where} has the time {record.time!r}, which is not RFC 3339 with an offset")


def _is_time(text: str) -> bool:
    try:
        return datetime.fromisoformat(text).tzinfo is not None
    except ValueError:
        return False


def _members(record: Commit | Head | Label | Hint) -> dict[str, Json]:
    return {field.name: getattr(record, field.name) for field in fields(record)}


def _check_readable(record: Commit | Head | Label | Hint, data: bytes, *, checked: bool) -> None:
    """Decode the bytes before they are stored: a record that no reader accepts would break the history for good."""
    what = f"a {type(record).__name__.lower()}"
    try:
        found = _build(data, type(record), what, checked=checked)
    except CorruptError as error:
        raise BadInputError(f"{error.message}; it was not stored") from error
    if found != record:
        raise BadInputError(f"{what} would change when it is stored: {found} instead of {record}")


def _check_format(number: Json, where: str) -> None:
    if isinstance(number, int) and number > 1:
        raise UnsupportedError(f"{where} has format {number}; this warpdata reads 1", hint="Upgrade warpdata.")
    if number != 1:
        raise CorruptError(f"{where} is not a record of format 1")
