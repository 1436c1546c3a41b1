"""Tombstones: removal of labels, branches and datasets, and their return.

Nothing is deleted. A removal appends an entry to the log of the branch or label that says so. A later entry may bring
the name back or use it again. A dataset is removed by a tombstone in the log of `main`; its other branches and its
labels follow, with tombstones of the same transaction. Implements "Removal" of docs/specs/catalog.md.
"""

from __future__ import annotations

from dataclasses import replace

from warpdata.errors import ConflictError
from warpdata.primitives.parallel import IO_POOL
from warpdata.repository.catalog.branches import (
    LabelState,
    find_newest,
    list_branches,
    read_head,
    read_label_entry,
    read_label_state,
)
from warpdata.repository.catalog.layout import (
    heads_prefix,
    label_entry_key,
    label_key,
    labels_prefix,
    removed_key,
)
from warpdata.repository.catalog.names import MAIN
from warpdata.repository.catalog.records import Head, LabelEntry, LabelMarker, Removal, encode_record
from warpdata.repository.catalog.writes import ATTEMPTS, Pause, Transaction, advance, put_create_only, replace_constant
from warpdata.repository.manifest import canonical_json
from warpdata.storage import Reader, Writer

__all__ = [
    "finish_removal",
    "list_label_names",
    "remove_branch",
    "remove_label",
    "revive_refs",
]

_PARALLEL_WRITES = 16


def remove_branch(writer: Writer, txn: Transaction, head: Head, pause: Pause, renamed_to: str | None = None) -> Head:
    """Append a tombstone after `head`. For `main`, this removes the dataset: call `finish_removal` then.

    Raise `ConflictError` if the branch has moved. A branch that another call has removed is no error.
    """
    marker = canonical_json({"branch": txn.branch, "format": 1})
    put_create_only(writer, removed_key(txn.dataset_id, txn.branch), marker, pause)
    removal = Removal(txn.time, txn.author, renamed_to)
    tombstone = Head(head.sequence + 1, head.commit, head.version, txn.txn_id, removal)
    if advance(writer, txn, tombstone, pause):
        return tombstone
    seen = read_head(writer, txn.dataset_id, txn.branch, tombstone.sequence)
    if seen is not None and seen.removed is not None:
        return seen
    raise ConflictError(
        f"{txn.dataset_id}@{txn.branch} has a newer commit than version {head.version[:12]}, so it was not removed",
        hint="Look at the new head, then remove it again.",
    )


def remove_label(
    writer: Writer, dataset_id: str, state: LabelState, removal: Removal, txn_id: str, pause: Pause
) -> LabelEntry:
    """Append a tombstone to the log of a label. Return it, or that of another call that removed the same label.

    The first label of a name is removed once a marker has replaced it, because readers of format 1 read only that.
    """
    label, sequence = state.label, state.sequence + 1
    entry = LabelEntry(label.name, sequence, label.commit, label.version, label.time, txn_id, removal)
    key = label_entry_key(dataset_id, label.name, sequence)
    if not put_create_only(writer, key, encode_record(entry), pause):
        seen = read_label_entry(writer, dataset_id, label.name, sequence)
        assert seen is not None, "log entries are never removed"
        entry = seen
    if state.sequence == 1:
        marker = encode_record(LabelMarker(label.name))
        replace_constant(writer, label_key(dataset_id, label.name), marker, pause)
    return entry


def finish_removal(writer: Writer, dataset_id: str, tombstone: Head, pause: Pause) -> None:
    """Remove the labels and the other branches of a removed dataset. Safe to repeat after an interruption."""
    assert tombstone.removed is not None
    removal = tombstone.removed

    def is_current() -> bool:
        """Check that the dataset has not come back meanwhile."""
        return read_head(writer, dataset_id, MAIN, tombstone.sequence + 1) is None

    def finish_label(name: str) -> None:
        state = read_label_state(writer, dataset_id, name)
        if state is not None and state.removed is None and is_current():
            remove_label(writer, dataset_id, state, removal, tombstone.txn_id, pause)

    def finish_branch(name: str) -> None:
        txn = Transaction(dataset_id, name, tombstone.txn_id, "remove", removal.author, "", removal.time)
        for attempt in range(ATTEMPTS):
            head = find_newest(writer, dataset_id, name)
            if head is None or head.removed is not None or not is_current():
                return
            try:
                remove_branch(writer, txn, head, pause, removal.renamed_to)
            except ConflictError:
                if attempt == ATTEMPTS - 1:
                    raise
                pause(attempt)

    others = [name for name in list_branches(writer, dataset_id) if name != MAIN]
    IO_POOL.map_all(finish_label, list_label_names(writer, dataset_id), limit=_PARALLEL_WRITES)
    IO_POOL.map_all(finish_branch, others, limit=_PARALLEL_WRITES)


def revive_refs(writer: Writer, dataset_id: str, tombstone: Head, pause: Pause) -> None:
    """Bring back the labels and branches that went with a dataset, before `main` itself. Safe to repeat."""

    def revive_label(name: str) -> None:
        state = read_label_state(writer, dataset_id, name)
        if state is not None and state.removed is not None and state.txn_id == tombstone.txn_id:
            label, sequence = state.label, state.sequence + 1
            entry = LabelEntry(name, sequence, label.commit, label.version, label.time, tombstone.txn_id)
            put_create_only(writer, label_entry_key(dataset_id, name, sequence), encode_record(entry), pause)

    def revive_branch(name: str) -> None:
        gone = find_newest(writer, dataset_id, name)
        if gone is not None and gone.removed is not None and gone.txn_id == tombstone.txn_id:
            txn = Transaction(dataset_id, name, tombstone.txn_id, "restore", "", "", gone.removed.time)
            advance(writer, txn, replace(gone, sequence=gone.sequence + 1, removed=None), pause)

    branches = [name for name in writer.list_folders(heads_prefix(dataset_id)) if name != MAIN]
    IO_POOL.map_all(revive_label, list_label_names(writer, dataset_id), limit=_PARALLEL_WRITES)
    IO_POOL.map_all(revive_branch, branches, limit=_PARALLEL_WRITES)


def list_label_names(reader: Reader, dataset_id: str) -> list[str]:
    """Return the names of labels, including removed ones."""
    prefix = f"{labels_prefix(dataset_id)}/"
    keys = (info.key.removeprefix(prefix) for info in reader.list_objects(prefix.rstrip("/")))
    return [key.removesuffix(".json") for key in keys if key.endswith(".json") and "/" not in key]
