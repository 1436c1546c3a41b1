"""The records of history: commits, heads, labels and hints, and their bytes.

A commit is named by its hash. Heads, labels and hints contain a checksum, so that a reader detects a flipped bit.
Implements "Records" of docs/specs/catalog.md.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TypeVar

import msgspec

from warpdata.errors import CorruptError, UnsupportedError
from warpdata.limits import MAX_RECORD_BYTES
from warpdata.primitives.hashing import is_digest, sha256_hex
from warpdata.primitives.strict_json import decode_json
from warpdata.repository.manifest import Json, canonical_json

__all__ = [
    "Commit",
    "Head",
    "Hint",
    "HistoryEntry",
    "Label",
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


_Record = TypeVar("_Record", Commit, Head, Label, Hint)


def encode_commit(commit: Commit) -> tuple[str, bytes]:
    """Return the id of a commit, and its bytes."""
    data = canonical_json({"format": 1, **asdict(commit)})
    return sha256_hex(data), data


def decode_commit(data: bytes, commit_id: str) -> Commit:
    if sha256_hex(data) != commit_id:
        raise CorruptError(f"commit {commit_id} does not match its hash")
    return _build(data, Commit, f"commit {commit_id}")


def encode_record(record: Head | Label | Hint) -> bytes:
    body: dict[str, Json] = {"format": 1, **asdict(record)}
    return canonical_json({**body, "checksum": sha256_hex(canonical_json(body))})


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
    if not is_digest(record.version):
        raise CorruptError(f"{where} points to {record.version!r}, which is not a version")
    return record


def _check_format(number: Json, where: str) -> None:
    if isinstance(number, int) and number > 1:
        raise UnsupportedError(f"{where} has format {number}; this warpdata reads 1", hint="Upgrade warpdata.")
    if number != 1:
        raise CorruptError(f"{where} is not a record of format 1")
