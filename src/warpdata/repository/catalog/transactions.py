"""The exactly-once commit: how a version becomes the head of a branch.

Only create-if-absent is relied on. An answer of "already there" is never taken at its word: the
entry is read back, and it is ours if it carries our transaction id. We move on from a sequence
number only after somebody else's entry has been seen there, so a request of ours that is still
under way can no longer land. Implements "Commit" of docs/specs/publish.md.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeAlias

from warpdata.errors import (
    CommitUnknownError,
    ConflictError,
    CorruptError,
    DeniedError,
    ObjectNotFoundError,
    StorageError,
    UnsupportedFormatError,
    WarpError,
    WriteUnknownError,
)
from warpdata.limits import MAX_COMMIT_ATTEMPTS
from warpdata.repository.catalog.branches import find_head, read_commit, read_head, walk_heads
from warpdata.repository.catalog.layout import STORE_MARKER, commit_key, head_key, hint_key, manifest_key
from warpdata.repository.catalog.names import MAIN
from warpdata.repository.catalog.records import Commit, Head, Hint, HistoryEntry, encode_commit, encode_record
from warpdata.repository.manifest import Manifest, canonical_json, encode_manifest, parse_manifest, version_of
from warpdata.storage import Reader, Writer

__all__ = [
    "Committed",
    "Pause",
    "Propose",
    "Transaction",
    "commit",
    "find_transaction",
    "mark_store",
    "put_create_only",
    "put_manifest",
]

Propose: TypeAlias = Callable[[Head | None], Manifest | None]
"""Given the head to build on, the manifest to commit, with everything it refers to already stored;
None when there is nothing to change. Called again with the new head when another commit was first;
raises `ConflictError` where the change no longer fits."""

Pause: TypeAlias = Callable[[int], None]
"""Waits before try number n, with jitter; handed in so that nothing here owns a clock."""

_TRIES = 6


@dataclass(frozen=True, slots=True)
class Transaction:
    """Who wants to commit what kind of change. `txn_id` must be fresh."""

    dataset_id: str
    branch: str
    txn_id: str
    operation: str
    author: str
    message: str
    time: str


@dataclass(frozen=True, slots=True)
class Committed:
    """Where the branch stands now. `changed` is False when there was nothing to do."""

    version: str
    commit: str
    sequence: int
    changed: bool


def commit(writer: Writer, txn: Transaction, propose: Propose, pause: Pause) -> Committed:
    """Append one entry to the branch log, exactly once, or say why not."""
    for attempt in range(MAX_COMMIT_ATTEMPTS):
        base = find_head(writer, txn.dataset_id, txn.branch)
        manifest = propose(base)
        if manifest is None:
            assert base is not None, "an empty branch has nothing to keep"
            return Committed(base.version, base.commit, base.sequence, changed=False)
        head = _write_records(writer, txn, base, manifest, pause)
        if _advance(writer, txn, head, pause):
            _refresh_hint(writer, txn, head)
            return Committed(head.version, head.commit, head.sequence, changed=True)
        pause(attempt)
    raise ConflictError(
        f"{MAX_COMMIT_ATTEMPTS} other commits to {txn.dataset_id}@{txn.branch} were faster", hint="Try again later."
    )


def find_transaction(reader: Reader, dataset_id: str, branch: str, txn_id: str) -> HistoryEntry | None:
    """The commit made by a transaction, if it landed on the branch; newest entries are searched first."""
    head = find_head(reader, dataset_id, branch)
    if head is None:
        return None
    for entry in walk_heads(reader, dataset_id, branch, head.sequence):
        if entry.txn_id == txn_id:
            return HistoryEntry(entry.commit, read_commit(reader, dataset_id, entry.commit))
    return None


def mark_store(writer: Writer, pause: Pause) -> None:
    """Make the root a store, or check that it is one this code may write to."""
    marker = canonical_json({"format": 1})
    if put_create_only(writer, STORE_MARKER, marker, pause):
        return
    if writer.read(STORE_MARKER).data != marker:
        raise UnsupportedFormatError(f"{writer.url} is a store of another format", hint="Upgrade warpdata.")


def put_manifest(writer: Writer, manifest: Manifest, pause: Pause) -> str:
    """Store a manifest, or mend the stored one if it is damaged; its version."""
    version, encoded = version_of(manifest), encode_manifest(manifest)
    parse_manifest(encoded, version)  # never store what could not be read back
    key = manifest_key(manifest.dataset_id, version)
    if not put_create_only(writer, key, encoded, pause):
        try:
            parse_manifest(writer.read(key).data, version)
        except (CorruptError, ObjectNotFoundError):
            writer.replace(key, encoded)  # the key names the content, so this can only repair
    return version


def put_create_only(writer: Writer, key: str, data: bytes, pause: Pause) -> bool:
    """Create an object whose content its key decides, so that a lost reply is answered by asking again."""
    for attempt in range(_TRIES):
        try:
            return writer.create(key, data)
        except WriteUnknownError:
            if attempt == _TRIES - 1:
                raise
            pause(attempt)
    raise AssertionError("unreachable")


def _write_records(writer: Writer, txn: Transaction, base: Head | None, manifest: Manifest, pause: Pause) -> Head:
    """Store the manifest and the commit; neither is visible to readers yet."""
    version = put_manifest(writer, manifest, pause)
    record = Commit(
        version=version,
        parents=(base.commit,) if base else (),
        txn_id=txn.txn_id,
        operation=txn.operation,
        author=txn.author,
        message=txn.message,
        time=txn.time,
    )
    commit_id, data = encode_commit(record)
    put_create_only(writer, commit_key(txn.dataset_id, commit_id), data, pause)
    return Head(base.sequence + 1 if base else 1, commit_id, version, txn.txn_id)


def _advance(writer: Writer, txn: Transaction, head: Head, pause: Pause) -> bool:
    """Create the log entry. True: it is ours. False: it is somebody else's, and ours can not appear."""
    key = head_key(txn.dataset_id, txn.branch, head.sequence)
    data = encode_record(head)
    may_have_landed = False
    for attempt in range(_TRIES):
        try:
            if writer.create(key, data):
                return True
            may_have_landed = True
            seen = read_head(writer, txn.dataset_id, txn.branch, head.sequence)
        except WriteUnknownError:
            may_have_landed = True
            seen = _read_back(writer, txn, head.sequence)
        except WarpError as error:
            if may_have_landed:
                raise _unknown(txn) from error
            raise
        if seen is not None:
            return seen.txn_id == txn.txn_id
        pause(attempt)
    raise _unknown(txn)


def _read_back(writer: Writer, txn: Transaction, sequence: int) -> Head | None:
    try:
        return read_head(writer, txn.dataset_id, txn.branch, sequence)
    except WarpError as error:
        raise _unknown(txn) from error


def _refresh_hint(writer: Writer, txn: Transaction, head: Head) -> None:
    """Best effort: a stale hint costs readers a request, nothing else."""
    if txn.branch == MAIN:
        hint = Hint(txn.branch, head.sequence, head.commit, head.version)
        with suppress(StorageError, DeniedError):
            writer.replace(hint_key(txn.dataset_id), encode_record(hint))


def _unknown(txn: Transaction) -> CommitUnknownError:
    return CommitUnknownError(
        f"the store did not say whether transaction {txn.txn_id} on {txn.dataset_id}@{txn.branch} landed",
        txn_id=txn.txn_id,
        hint=f"Ask later: `warp find-commit {txn.dataset_id} {txn.txn_id} --branch {txn.branch}`.",
    )
