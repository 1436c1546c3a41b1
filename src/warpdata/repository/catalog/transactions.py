"""Commits: each appends one entry to the log of a branch, exactly once.

A commit relies only on create-if-absent. After "already exists", the entry is read back; it belongs to this
transaction if it has its id. The writer moves on from a sequence number only after it has seen another writer's entry
there, so a delayed request of its own cannot succeed any more. Implements "Commit" of docs/specs/publish.md.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from typing import TypeAlias

from warpdata.errors import ConflictError, DeniedError, StorageError
from warpdata.limits import MAX_COMMIT_ATTEMPTS
from warpdata.primitives.parallel import IO_POOL
from warpdata.repository.catalog.branches import find_newest, read_commit, walk_heads
from warpdata.repository.catalog.layout import commit_key, hint_key
from warpdata.repository.catalog.names import MAIN
from warpdata.repository.catalog.records import Commit, Head, Hint, HistoryEntry, encode_commit, encode_record
from warpdata.repository.catalog.removal import finish_removal, revive_refs
from warpdata.repository.catalog.writes import (
    CheckLease,
    NewEntry,
    Pause,
    Transaction,
    advance,
    create_entry,
    put_manifest,
    put_named_by_content,
)
from warpdata.repository.manifest import Manifest, version_of
from warpdata.storage import Reader, Writer

__all__ = [
    "RESTORE",
    "Committed",
    "Propose",
    "Proposed",
    "advance_to",
    "commit",
    "find_transaction",
    "list_transactions",
    "store_after",
    "store_version",
]

_MAX_COUNTERS = 256
RESTORE = "restore"
"""The operation of a commit that makes an earlier version the head. It may follow a tombstone."""


@dataclass(frozen=True, slots=True)
class Proposed:
    """A manifest to commit, and writes of blobs that it needs and the store may lack.

    The commit runs the writes at the same time as those of the manifest and the commit record, before the head. So a
    small commit waits for the disk, or for the network, twice.
    """

    manifest: Manifest
    writes: Sequence[Callable[[], object]] = ()
    id_counters: Mapping[str, int] = field(default_factory=dict)
    """The next free sample ids of tables. The commit records those that the manifest does not have."""


Propose: TypeAlias = Callable[[Head | None], "Manifest | Proposed | None"]
"""Takes the head to build on and returns the manifest to commit, or None if there is nothing to change.

A manifest without writes has all its blobs in the store. When another commit was first, the callback is called again
with the new head; it raises `ConflictError` if the change does not apply to that."""


@dataclass(frozen=True, slots=True)
class Committed:
    """The head of the branch. `changed` is False if the head was already at this version."""

    version: str
    commit: str
    sequence: int
    changed: bool


def commit(
    writer: Writer,
    txn: Transaction,
    propose: Propose,
    pause: Pause,
    *,
    check_lease: CheckLease = None,
    on_committed: Callable[[], None] | None = None,
) -> Committed:
    """Append one entry to the log of the branch, exactly once.

    After a tombstone of `main`, the dataset begins again without its history, or a restore continues it.
    `on_committed` is called while the hint is written.
    """
    for attempt in range(MAX_COMMIT_ATTEMPTS):
        newest = find_newest(writer, txn.dataset_id, txn.branch)
        base = newest if newest is None or newest.removed is None else None
        proposed = propose(base)
        if proposed is None:
            assert base is not None, "an empty branch has nothing to keep"
            return Committed(base.version, base.commit, base.sequence, changed=False)
        if newest is not None and newest.removed is not None:
            _leave_tombstone(writer, txn, newest, pause)
        records = _Records.of(txn, newest, proposed)
        head = records.head
        with NewEntry(writer, txn, head) as entry:
            IO_POOL.run_all([*records.writes(writer, txn, pause), entry.stage])
            is_head = create_entry(writer, txn, head, entry, pause, check_lease)
        if is_head:
            _finish(writer, txn, head, on_committed)
            return Committed(head.version, head.commit, head.sequence, changed=True)
        pause(attempt)
    raise ConflictError(
        f"{MAX_COMMIT_ATTEMPTS} other commits to {txn.dataset_id}@{txn.branch} were faster", hint="Try again later."
    )


def store_version(writer: Writer, txn: Transaction, propose: Propose, pause: Pause) -> Committed:
    """Store the manifest and the commit of a change without a log entry. The branch stays as it is.

    Readers find the version by its hash or by a label.
    """
    newest = find_newest(writer, txn.dataset_id, txn.branch)
    base = newest if newest is None or newest.removed is None else None
    proposed = propose(base)
    if proposed is None:
        assert base is not None, "an empty branch has nothing to keep"
        return Committed(base.version, base.commit, base.sequence, changed=False)
    stored = _store(writer, txn, _Records.of(txn, newest, proposed), pause)
    return Committed(stored.version, stored.commit, base.sequence if base else 0, changed=False)


def store_after(writer: Writer, txn: Transaction, base: Head, proposed: Manifest | Proposed, pause: Pause) -> Committed:
    """Store a manifest and its commit after a given one, which no branch need have. Nothing refers to them yet."""
    stored = _store(writer, txn, _Records.of(txn, base, proposed), pause)
    return Committed(stored.version, stored.commit, base.sequence, changed=stored.version != base.version)


def advance_to(
    writer: Writer,
    txn: Transaction,
    base: Head | None,
    target: HistoryEntry,
    pause: Pause,
    *,
    check_lease: CheckLease = None,
) -> bool:
    """Make a stored commit the head of a branch, after `base`. True: it is. False: another entry was first."""
    head = Head(base.sequence + 1 if base else 1, target.commit_id, target.commit.version, txn.txn_id)
    if not advance(writer, txn, head, pause, check_lease):
        return False
    _refresh_hint(writer, txn, head)
    return True


def list_transactions(reader: Reader, dataset_id: str, branch: str, after: int = 0) -> tuple[set[str], int]:
    """Return the ids of all transactions of a branch after a sequence, and the sequence of its head."""
    head = find_newest(reader, dataset_id, branch)
    if head is None:
        return set(), 0
    entries = walk_heads(reader, dataset_id, branch, head.sequence, after + 1)
    return {entry.txn_id for entry in entries}, head.sequence


def find_transaction(
    reader: Reader, dataset_id: str, branch: str, txn_id: str, *, after: int = 0
) -> HistoryEntry | None:
    """Return the commit of a transaction, or None if it is not on the branch after this sequence.

    Searches the newest entries first.
    """
    head = find_newest(reader, dataset_id, branch)
    if head is None:
        return None
    for entry in walk_heads(reader, dataset_id, branch, head.sequence, after + 1):
        if entry.txn_id == txn_id:
            return HistoryEntry(entry.commit, read_commit(reader, dataset_id, entry.commit))
    return None


def _leave_tombstone(writer: Writer, txn: Transaction, tombstone: Head, pause: Pause) -> None:
    """Settle the labels and other branches of a removed dataset before `main` gets a head again."""
    if txn.branch != MAIN:
        raise ConflictError(
            f"branch {txn.branch!r} of {txn.dataset_id} was removed",
            hint=f"Create it again: `warp branch {txn.dataset_id}@{tombstone.version} {txn.branch}`.",
        )
    settle = revive_refs if txn.operation == RESTORE else finish_removal
    settle(writer, txn.dataset_id, tombstone, pause)


@dataclass(frozen=True, slots=True)
class _Records:
    """What a commit stores, at the same time and in any order, before its head refers to it."""

    head: Head
    manifest: Manifest
    commit: bytes
    others: Sequence[Callable[[], object]]

    @staticmethod
    def of(txn: Transaction, base: Head | None, proposed: Manifest | Proposed) -> _Records:
        if isinstance(proposed, Manifest):
            proposed = Proposed(proposed)
        manifest = proposed.manifest
        version = version_of(manifest)
        has_parent = base is not None and (base.removed is None or txn.operation == RESTORE)
        parent = [base.commit] if base is not None and has_parent else []
        record = Commit(
            version=version,
            parents=(*parent, *([txn.merged] if txn.merged else [])),
            txn_id=txn.txn_id,
            operation=txn.operation,
            author=txn.author,
            message=txn.message,
            time=txn.time,
            id_counters=_unstated_counters(manifest, proposed.id_counters),
        )
        commit_id, data = encode_commit(record)
        head = Head(base.sequence + 1 if base else 1, commit_id, version, txn.txn_id)
        return _Records(head, manifest, data, proposed.writes)

    def writes(self, writer: Writer, txn: Transaction, pause: Pause) -> list[Callable[[], object]]:
        """Return the writes of all objects. Each is durable when its write returns."""
        key = commit_key(txn.dataset_id, self.head.commit)
        return [
            *self.others,
            lambda: put_manifest(writer, self.manifest, pause),
            lambda: put_named_by_content(writer, key, self.commit, pause),
        ]


def _store(writer: Writer, txn: Transaction, records: _Records, pause: Pause) -> Head:
    """Store the objects of a commit, and return the head that would name it."""
    IO_POOL.run_all(records.writes(writer, txn, pause))
    return records.head


def _unstated_counters(manifest: Manifest, counters: Mapping[str, int]) -> dict[str, int]:
    """Return the counters that a manifest does not state, of at most 256 tables: records are small."""
    tables = manifest.tables
    left = {
        name: counter
        for name, counter in sorted(counters.items())
        if counter > (tables[name].id_counter if name in tables else 0)
    }
    return dict(islice(left.items(), _MAX_COUNTERS))


def _finish(writer: Writer, txn: Transaction, head: Head, on_committed: Callable[[], None] | None) -> None:
    if on_committed is None:
        _refresh_hint(writer, txn, head)
        return
    # A local store neither waits nor syncs for these two, so a second thread would cost more than it saves.
    limit = 1 if writer.is_local(hint_key(txn.dataset_id)) else None
    IO_POOL.run_all([lambda: _refresh_hint(writer, txn, head), on_committed], limit=limit)


def _refresh_hint(writer: Writer, txn: Transaction, head: Head) -> None:
    """Update the hint. Failures are ignored: an old hint only costs readers a request."""
    if txn.branch == MAIN:
        hint = Hint(txn.branch, head.sequence, head.commit, head.version)
        with suppress(StorageError, DeniedError):
            writer.replace(hint_key(txn.dataset_id), encode_record(hint))
