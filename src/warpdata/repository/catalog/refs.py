"""Creation of labels, branches and pins, with new names and with names that were removed before.

Implements "Labels and branches" of docs/specs/catalog.md.
"""

from __future__ import annotations

from warpdata.errors import AlreadyExistsError, ConflictError, ErrorKind, NotFoundError
from warpdata.repository.catalog.branches import (
    find_head,
    find_newest,
    read_head,
    read_label,
    read_label_entry,
    read_label_state,
    read_pin,
)
from warpdata.repository.catalog.catalog import Catalog, VersionRef
from warpdata.repository.catalog.layout import head_key, label_entry_key, label_key, pin_key
from warpdata.repository.catalog.names import check_ref_name
from warpdata.repository.catalog.records import Head, LabelEntry, Pin, VersionLabel, encode_record
from warpdata.repository.catalog.writes import ATTEMPTS, CheckLease, Pause, put_create_only, require_lease
from warpdata.storage import Writer

__all__ = ["create_branch", "create_label", "create_pin"]


def create_label(
    writer: Writer, target: VersionRef, name: str, time: str, pause: Pause, *, check_lease: CheckLease = None
) -> VersionLabel:
    """Name a version permanently. Repeating it for the same version has no effect; for another it is an error.

    The name of a removed label can be used again.
    """
    dataset_id = target.dataset_id
    check_ref_name(name, "label")
    if find_head(writer, dataset_id, name) is not None:
        raise AlreadyExistsError(f"{dataset_id} has a branch named {name!r}", hint="Choose another label.")
    Catalog(writer).check_not_removed(dataset_id)
    label = VersionLabel(name, _commit_of(writer, target), target.version, time)
    for attempt in range(ATTEMPTS):
        state = read_label_state(writer, dataset_id, name)
        if state is not None and state.removed is None:
            if state.label.version == target.version:
                return state.label
            raise AlreadyExistsError(
                f"label {name!r} of {dataset_id} already names version {state.label.version[:12]}",
                hint=f"Labels never move: choose another name, or `warp rm {dataset_id}@{name}` first.",
            )
        sequence = 1 if state is None else state.sequence + 1
        require_lease(check_lease)
        if _put_label(writer, dataset_id, label, sequence, pause):
            return label
        pause(attempt)
    raise ConflictError(f"other calls create and remove label {name!r} of {dataset_id}", hint="Try again later.")


def _put_label(writer: Writer, dataset_id: str, label: VersionLabel, sequence: int, pause: Pause) -> bool:
    """Create an entry in the log of a label. True: this call made it, even if it was removed since."""
    if sequence == 1:
        if put_create_only(writer, label_key(dataset_id, label.name), encode_record(label), pause):
            return True
        state = read_label_state(writer, dataset_id, label.name)
        if state is not None and state.sequence == 1:
            return state.label == label
        tombstone = read_label_entry(writer, dataset_id, label.name, 2)
        return tombstone is not None and tombstone.label == label
    entry = LabelEntry(label.name, sequence, label.commit, label.version, label.time)
    if put_create_only(writer, label_entry_key(dataset_id, label.name, sequence), encode_record(entry), pause):
        return True
    return read_label_entry(writer, dataset_id, label.name, sequence) == entry


def create_pin(
    writer: Writer, target: VersionRef, name: str, time: str, pause: Pause, *, check_lease: CheckLease = None
) -> Pin:
    """Keep a version until the pin is removed. Repeating it for the same version has no effect."""
    check_ref_name(name, "pin")
    pin = Pin(name, target.dataset_id, _commit_of(writer, target), target.version, time)
    require_lease(check_lease)
    if put_create_only(writer, pin_key(name), encode_record(pin), pause):
        return pin
    seen = read_pin(writer, name)
    if seen is None or (seen.dataset_id, seen.version) != (pin.dataset_id, pin.version):
        where = "was removed just now" if seen is None else f"keeps {seen.dataset_id}@{seen.version[:12]}"
        raise AlreadyExistsError(f"pin {name!r} {where}", hint="Choose another name, or remove the pin first.")
    return seen


def create_branch(
    writer: Writer, target: VersionRef, name: str, txn_id: str, pause: Pause, *, check_lease: CheckLease = None
) -> Head:
    """Start a branch at a version. An existing branch is an error, at whatever version.

    The name of a removed branch can be used again: its log continues.
    """
    dataset_id = target.dataset_id
    check_ref_name(name, "branch")
    if read_label(writer, dataset_id, name) is not None:
        raise AlreadyExistsError(f"{dataset_id} has a label named {name!r}", hint="Choose another branch name.")
    Catalog(writer).check_not_removed(dataset_id)
    newest = find_newest(writer, dataset_id, name)
    if newest is not None and newest.removed is None:
        raise AlreadyExistsError(f"{dataset_id} already has a branch {name!r}, at version {newest.version[:12]}")
    sequence = 1 if newest is None else newest.sequence + 1
    head = Head(sequence, _commit_of(writer, target), target.version, txn_id)
    require_lease(check_lease)
    made = put_create_only(writer, head_key(dataset_id, name, sequence), encode_record(head), pause)
    if not made and read_head(writer, dataset_id, name, sequence) != head:
        raise AlreadyExistsError(f"{dataset_id} already has a branch {name!r}")
    return head


def _commit_of(writer: Writer, target: VersionRef) -> str:
    """Return the commit of a version. If several commits have the version, return the newest."""
    if target.commit is not None:
        return target.commit
    for entry in Catalog(writer).history(target, limit=1):
        return entry.commit_id
    raise NotFoundError(f"{target.dataset_id} has no commit of version {target.version}", kind=ErrorKind.REF_NOT_FOUND)
