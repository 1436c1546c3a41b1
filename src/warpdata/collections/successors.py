"""Successors: versions without the files that an older one has lost, each a commit with a label of its own.

Purges and repairs make them. Every step is idempotent: keys of the edits follow from the cause. Implements
"Purge" and "Repair" of docs/specs/collections.md.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from warpdata.collections.impact import AffectedVersion
from warpdata.collections.records import RecordStore, RepairRecord
from warpdata.collections.removal import remove_contents
from warpdata.collections.states import read_state
from warpdata.datasets import Dataset, open_dataset
from warpdata.edit import Edit, EditOptions, transaction_of
from warpdata.repository.catalog import MAIN, Address, read_commit, read_label
from warpdata.repository.gc import remove_lease

__all__ = ["Cause", "SuccessorMaker", "labels_by_version"]

_SUCCESSOR = re.compile(r"(.+)-r[0-9]+")
_LABEL_LENGTH = 112


@dataclass(frozen=True, slots=True)
class Cause:
    """The reason of a repair: its id in records, author and time, and the blobs that are gone.

    `key` begins the keys of its edits.
    """

    cause_id: str
    author: str
    time: str
    blobs: tuple[str, ...]
    key: str


def labels_by_version(affected: Sequence[AffectedVersion]) -> dict[str, str]:
    """Return one label for each version. Versions that a user named come before those of training jobs."""
    named: dict[str, str] = {}
    for one in sorted(affected, key=lambda one: (one.snapshot_type, one.label)):
        named.setdefault(one.version, one.label)
    return named


class SuccessorMaker:
    """Makes the successors of one cause. `explanation` ends the message of each commit."""

    def __init__(self, records: RecordStore, cause: Cause, explanation: str) -> None:
        self._records = records
        self._cause = cause
        self._explanation = explanation
        self._session = records.session
        self._id = records.dataset_id

    def repair(self, version: str, label: str, broken: Collection[str]) -> RepairRecord:
        """Make the successor of a version. If an earlier repair made one, that is the version to continue from.

        `broken` has the versions that lost files by this cause.
        """
        cause, name = self._cause, f"repairs/{version}/{self._cause.cause_id}"
        known = self._records.get(name, RepairRecord)
        if known is not None:
            return known
        earlier = self._earlier_repair(version)
        if earlier is None:
            successor, repaired_by, removed = self._make(version, label)
        elif earlier.repaired_by in broken:
            following = self.repair(earlier.repaired_by, earlier.label, broken)
            successor, repaired_by = following.label, following.repaired_by
            removed = tuple(sorted({*earlier.removed, *following.removed}))
        else:
            successor, repaired_by, removed = earlier.label, earlier.repaired_by, earlier.removed
        made = RepairRecord(version, cause.cause_id, successor, repaired_by, removed, cause.time)
        self._records.put(name, made)
        return made

    def _earlier_repair(self, version: str) -> RepairRecord | None:
        """Return the repair of the newest cause before this one, if the version has a successor already."""
        names = self._records.names(f"repairs/{version}")
        found = [record for name in names if (record := self._records.get(name, RepairRecord)) is not None]
        return max(found, key=lambda record: (record.time, record.label), default=None)

    def _make(self, version: str, label: str) -> tuple[str, str, tuple[str, ...]]:
        """Commit the version without the files that it has lost. Return label, version and the files."""
        cause, writer = self._cause, self._session.writer
        lost = read_state(self._records, version).missing_images
        key = f"{cause.key} {version}"
        txn_id = transaction_of(self._id, key)
        successor, is_made = self._successor_label(label, txn_id)
        if not is_made:
            ref = label if read_label(writer, self._id, label) is not None else version
            dataset = open_dataset(self._session, Address(self._id, ref))
            if dataset.version_ref.commit is None:
                dataset = _with_commit(dataset)
            message = f"{label} {self._explanation}"
            options = EditOptions(message, cause.author, MAIN, key, label=successor, time=cause.time)
            with Edit(dataset.context, options, lambda *_: None) as edit:
                remove_contents(edit, dataset, lost, cause.blobs)
        remove_lease(writer, txn_id, self._session.pause)
        made = read_label(writer, self._id, successor)
        assert made is not None, "the edit created its label"
        return successor, made.version, lost

    def _successor_label(self, label: str, txn_id: str) -> tuple[str, bool]:
        """Return the label of a successor, such as `v1-r1`, and whether an earlier run has made it."""
        writer = self._session.writer
        matched = _SUCCESSOR.fullmatch(label)
        is_successor = matched is not None and read_label(writer, self._id, matched[1]) is not None
        base = (matched[1] if matched is not None and is_successor else label)[:_LABEL_LENGTH]
        number = 1
        while True:
            name = f"{base}-r{number}"
            found = read_label(writer, self._id, name)
            if found is None:
                return name, False
            if read_commit(writer, self._id, found.commit).txn_id == txn_id:
                return name, True
            number += 1


def _with_commit(dataset: Dataset) -> Dataset:
    """Open a bare version by its newest commit."""
    entry = next(iter(dataset.session.catalog.history(dataset.version_ref, limit=1)))
    ref = type(dataset.version_ref)(dataset.id, dataset.version, entry.commit_id)
    return Dataset(dataset.session, ref, dataset.manifest)
