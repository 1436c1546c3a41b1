"""Writes to the catalog: exactly-once commits, labels and branches.

A commit relies only on create-if-absent. After "already exists", the entry is read back; it belongs to this
transaction if it has its id. The writer moves on from a sequence number only after it has seen another writer's entry
there, so a delayed request of its own cannot succeed any more. Implements "Commit" of docs/specs/publish.md.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeAlias

from warpdata.errors import (
    AlreadyExistsError,
    CommitUnknownError,
    ConflictError,
    CorruptError,
    DeniedError,
    ErrorKind,
    NotFoundError,
    ObjectNotFoundError,
    StorageError,
    UnsupportedError,
    WarpError,
    WriteUnknownError,
)
from warpdata.limits import MAX_COMMIT_ATTEMPTS
from warpdata.repository.catalog.branches import find_head, read_commit, read_head, read_label, walk_heads
from warpdata.repository.catalog.catalog import Catalog, VersionRef
from warpdata.repository.catalog.layout import STORE_MARKER, commit_key, head_key, hint_key, label_key, manifest_key
from warpdata.repository.catalog.names import MAIN, check_ref_name
from warpdata.repository.catalog.records import Commit, Head, Hint, HistoryEntry, Label, encode_commit, encode_record
from warpdata.repository.manifest import Manifest, canonical_json, encode_manifest, parse_manifest, version_of
from warpdata.storage import Reader, Writer

__all__ = [
    "Committed",
    "Pause",
    "Propose",
    "Transaction",
    "commit",
    "create_branch",
    "create_label",
    "find_transaction",
    "mark_store",
    "put_create_only",
    "put_manifest",
    "put_named_by_content",
    "store_version",
]

Propose: TypeAlias = Callable[[Head | None], Manifest | None]
"""Takes the head to build on and returns the manifest to commit, or None if there is nothing to change.

All blobs of the manifest must be stored. When another commit was first, the callback is called again with the new
head; it raises `ConflictError` if the change does not apply to that."""

Pause: TypeAlias = Callable[[int], None]
"""Waits before attempt number n, with jitter."""

_ATTEMPTS = 6


@dataclass(frozen=True, slots=True)
class Transaction:
    """The author and kind of a change. `txn_id` must be unique."""

    dataset_id: str
    branch: str
    txn_id: str
    operation: str
    author: str
    message: str
    time: str


@dataclass(frozen=True, slots=True)
class Committed:
    """The head of the branch. `changed` is False if the head was already at this version."""

    version: str
    commit: str
    sequence: int
    changed: bool


def commit(writer: Writer, txn: Transaction, propose: Propose, pause: Pause) -> Committed:
    """Append one entry to the log of the branch, exactly once."""
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


def store_version(writer: Writer, txn: Transaction, propose: Propose, pause: Pause) -> Committed:
    """Store the manifest and the commit of a change without a log entry. The branch stays as it is.

    Readers find the version by its hash or by a label.
    """
    base = find_head(writer, txn.dataset_id, txn.branch)
    manifest = propose(base)
    if manifest is None:
        assert base is not None, "an empty branch has nothing to keep"
        return Committed(base.version, base.commit, base.sequence, changed=False)
    stored = _write_records(writer, txn, base, manifest, pause)
    return Committed(stored.version, stored.commit, base.sequence if base else 0, changed=False)


def find_transaction(reader: Reader, dataset_id: str, branch: str, txn_id: str) -> HistoryEntry | None:
    """Return the commit of a transaction, or None if it is not on the branch. Searches the newest entries first."""
    head = find_head(reader, dataset_id, branch)
    if head is None:
        return None
    for entry in walk_heads(reader, dataset_id, branch, head.sequence):
        if entry.txn_id == txn_id:
            return HistoryEntry(entry.commit, read_commit(reader, dataset_id, entry.commit))
    return None


def create_label(writer: Writer, target: VersionRef, name: str, time: str, pause: Pause) -> Label:
    """Name a version permanently. Repeating it for the same version has no effect; for another it is an error."""
    check_ref_name(name, "label")
    if read_head(writer, target.dataset_id, name, 1) is not None:
        raise AlreadyExistsError(f"{target.dataset_id} has a branch named {name!r}", hint="Choose another label.")
    label = Label(name, _commit_of(writer, target), target.version, time)
    key = label_key(target.dataset_id, name)
    if put_create_only(writer, key, encode_record(label), pause):
        return label
    seen = read_label(writer, target.dataset_id, name)
    assert seen is not None, "labels are never removed"
    if seen.version != target.version:
        raise AlreadyExistsError(
            f"label {name!r} of {target.dataset_id} already names version {seen.version[:12]}",
            hint="Labels never move: choose another name.",
        )
    return seen


def create_branch(writer: Writer, target: VersionRef, name: str, txn_id: str, pause: Pause) -> Head:
    """Start a branch at a version. An existing branch is an error, at whatever version."""
    check_ref_name(name, "branch")
    catalog = Catalog(writer)
    if catalog.label(target.dataset_id, name) is not None:
        raise AlreadyExistsError(f"{target.dataset_id} has a label named {name!r}", hint="Choose another branch name.")
    head = Head(1, _commit_of(writer, target), target.version, txn_id)
    made = put_create_only(writer, head_key(target.dataset_id, name, 1), encode_record(head), pause)
    if not made and read_head(writer, target.dataset_id, name, 1) != head:
        newest = find_head(writer, target.dataset_id, name)
        where = f", at version {newest.version[:12]}" if newest else ""
        raise AlreadyExistsError(f"{target.dataset_id} already has a branch {name!r}{where}")
    return head


def mark_store(writer: Writer, pause: Pause) -> None:
    """Write the store marker, or check that an existing one has a supported format."""
    marker = canonical_json({"format": 1})
    if put_create_only(writer, STORE_MARKER, marker, pause):
        return
    if writer.read(STORE_MARKER).data != marker:
        raise UnsupportedError(f"{writer.url} is a store of an unsupported format", hint="Upgrade warpdata.")


def put_manifest(writer: Writer, manifest: Manifest, pause: Pause) -> str:
    """Store a manifest, or repair the stored one if it is corrupt. Return its version."""
    version, encoded = version_of(manifest), encode_manifest(manifest)
    key = manifest_key(manifest.dataset_id, version)
    if not put_create_only(writer, key, encoded, pause):
        try:
            parse_manifest(writer.read(key).data, version)
        except (CorruptError, ObjectNotFoundError):
            writer.replace(key, encoded)  # the key is the hash of the content, so this can only repair
    return version


def put_create_only(writer: Writer, key: str, data: bytes, pause: Pause) -> bool:
    """Create an object, and repeat the request after a lost reply. Return False if the key exists.

    The content must depend only on the key, so that a repeated request is harmless.
    """
    for attempt in range(_ATTEMPTS):
        try:
            return writer.create(key, data)
        except WriteUnknownError:
            if attempt == _ATTEMPTS - 1:
                raise
            pause(attempt)
    raise AssertionError("unreachable")


def put_named_by_content(writer: Writer, key: str, data: bytes, pause: Pause) -> None:
    """Create an object whose key is a hash of its content, or replace a corrupt one under that key."""
    if put_create_only(writer, key, data, pause):
        return
    try:
        is_intact = writer.read(key).data == data
    except ObjectNotFoundError:
        is_intact = False
    if not is_intact:
        writer.replace(key, data)


def _write_records(writer: Writer, txn: Transaction, base: Head | None, manifest: Manifest, pause: Pause) -> Head:
    """Store the manifest and the commit. Readers do not see them before the head."""
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
    put_named_by_content(writer, commit_key(txn.dataset_id, commit_id), data, pause)
    return Head(base.sequence + 1 if base else 1, commit_id, version, txn.txn_id)


def _advance(writer: Writer, txn: Transaction, head: Head, pause: Pause) -> bool:
    """Create the log entry. True: it is this transaction's. False: another writer's, and this one cannot appear."""
    key = head_key(txn.dataset_id, txn.branch, head.sequence)
    data = encode_record(head)
    may_have_landed = False
    for attempt in range(_ATTEMPTS):
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
    """Update the hint. Failures are ignored: an old hint only costs readers a request."""
    if txn.branch == MAIN:
        hint = Hint(txn.branch, head.sequence, head.commit, head.version)
        with suppress(StorageError, DeniedError):
            writer.replace(hint_key(txn.dataset_id), encode_record(hint))


def _unknown(txn: Transaction) -> CommitUnknownError:
    return CommitUnknownError(
        f"the outcome of transaction {txn.txn_id} on {txn.dataset_id}@{txn.branch} is unknown: the store did not reply",
        txn_id=txn.txn_id,
        hint=f"Ask later: `warp find-commit {txn.dataset_id} {txn.txn_id} --branch {txn.branch}`.",
    )


def _commit_of(writer: Writer, target: VersionRef) -> str:
    """Return the commit of a version. If several commits have the version, return the newest."""
    if target.commit is not None:
        return target.commit
    for entry in Catalog(writer).history(target, limit=1):
        return entry.commit_id
    raise NotFoundError(f"{target.dataset_id} has no commit of version {target.version}", kind=ErrorKind.REF_NOT_FOUND)
