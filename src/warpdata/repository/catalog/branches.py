"""Readers of pointers: branches, which are create-only logs, commits and labels. Writes nothing.

Implements "Finding a head" of docs/specs/catalog.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

from warpdata.errors import CorruptError, NotCachedError, ObjectNotFoundError, UnsupportedError
from warpdata.limits import MAX_HINT_LAG_PROBES
from warpdata.repository.catalog.layout import (
    commit_key,
    head_key,
    head_prefix,
    heads_prefix,
    hint_key,
    label_entry_key,
    label_key,
    label_log_prefix,
    pin_key,
    removed_prefix,
    sequence_of,
    tombstone_key,
)
from warpdata.repository.catalog.names import MAIN, is_dataset_id
from warpdata.repository.catalog.records import (
    Commit,
    Head,
    Hint,
    LabelEntry,
    LabelMarker,
    Pin,
    Removal,
    Tombstone,
    VersionLabel,
    decode_commit,
    decode_record,
    format_of,
)
from warpdata.storage import Reader

__all__ = [
    "LabelState",
    "OnHint",
    "find_head",
    "find_newest",
    "list_branches",
    "read_commit",
    "read_head",
    "read_label",
    "read_label_entry",
    "read_label_state",
    "read_pin",
    "read_tombstone",
    "walk_heads",
]

_Entry = TypeVar("_Entry", Head, LabelEntry)

OnHint: TypeAlias = Callable[[str], None]
"""Takes the version of the hint, before a newer head is looked for."""


def find_head(reader: Reader, dataset_id: str, branch: str, on_hint: OnHint | None = None) -> Head | None:
    """Return the newest entry of a branch; None if there is no branch, or if it was removed."""
    newest = find_newest(reader, dataset_id, branch, on_hint)
    return None if newest is None or newest.removed is not None else newest


def find_newest(reader: Reader, dataset_id: str, branch: str, on_hint: OnHint | None = None) -> Head | None:
    """Return the newest entry of a branch, which may be a tombstone, or None.

    The main branch usually costs two small reads: the hint, and the absence of an entry after it. A missing, corrupt
    or old hint costs a listing, never correctness.
    """
    hint = _read_hint(reader, dataset_id) if branch == MAIN else None
    if hint is None:
        return _newest_listed(reader, dataset_id, branch)
    if on_hint is not None:
        on_hint(hint.version)
    newest = Head(hint.sequence, hint.commit, hint.version, txn_id="")
    for sequence in range(hint.sequence + 1, hint.sequence + 1 + MAX_HINT_LAG_PROBES):
        following = read_head(reader, dataset_id, branch, sequence)
        if following is None:
            return newest
        newest = following
    return _newest_listed(reader, dataset_id, branch)


def read_head(reader: Reader, dataset_id: str, branch: str, sequence: int) -> Head | None:
    """Return one log entry, or None."""
    try:
        return _load_head(reader, dataset_id, branch, sequence)
    except ObjectNotFoundError:
        return None


def _load_head(reader: Reader, dataset_id: str, branch: str, sequence: int) -> Head:
    key = head_key(dataset_id, branch, sequence)
    head = decode_record(reader.read(key).data, Head, key)
    if head.sequence != sequence:
        raise CorruptError(f"{key} contains entry {head.sequence}")
    return head


def walk_heads(reader: Reader, dataset_id: str, branch: str, newest: int, oldest: int = 1) -> Iterator[Head]:
    """Yield log entries from `newest` down to `oldest`."""
    for sequence in range(newest, oldest - 1, -1):
        try:
            yield _load_head(reader, dataset_id, branch, sequence)
        except NotCachedError:
            raise
        except ObjectNotFoundError as error:
            raise CorruptError(
                f"entry {sequence} in the log of branch {branch!r} of {dataset_id} is missing"
            ) from error


def read_commit(reader: Reader, dataset_id: str, commit_id: str) -> Commit:
    """Read a commit and check its hash."""
    return decode_commit(reader.read(commit_key(dataset_id, commit_id)).data, commit_id)


@dataclass(frozen=True, slots=True)
class LabelState:
    """The newest entry of a label. With `removed`, the label that was there before."""

    label: VersionLabel
    sequence: int = 1
    txn_id: str = ""
    removed: Removal | None = None


def read_label(reader: Reader, dataset_id: str, name: str) -> VersionLabel | None:
    """Return a label; None if there is none, or if it was removed."""
    state = read_label_state(reader, dataset_id, name)
    return None if state is None or state.removed is not None else state.label


def read_label_state(reader: Reader, dataset_id: str, name: str) -> LabelState | None:
    """Return the newest entry of a label, which may be a tombstone. A label that was never removed costs one read."""
    key = label_key(dataset_id, name)
    try:
        data = reader.read(key).data
    except ObjectNotFoundError:
        return None
    is_marker = format_of(data, key) == 2
    first = decode_record(data, LabelMarker, key) if is_marker else decode_record(data, VersionLabel, key)
    if first.name != name:
        raise CorruptError(f"{key} contains label {first.name!r}")
    if isinstance(first, VersionLabel):
        return LabelState(first)

    def read(sequence: int) -> LabelEntry | None:
        return read_label_entry(reader, dataset_id, name, sequence)

    entry = _newest_entry(reader, label_log_prefix(dataset_id, name), read, first=2)
    if entry is None:
        raise CorruptError(f"{key} says that the label was removed, but its log is empty")
    return LabelState(entry.label, entry.sequence, entry.txn_id, entry.removed)


def read_label_entry(reader: Reader, dataset_id: str, name: str, sequence: int) -> LabelEntry | None:
    """Return one entry of the log of a label, from 2 on, or None."""
    key = label_entry_key(dataset_id, name, sequence)
    try:
        entry = decode_record(reader.read(key).data, LabelEntry, key)
    except ObjectNotFoundError:
        return None
    if entry.name != name or entry.sequence != sequence:
        raise CorruptError(f"{key} contains entry {entry.sequence} of label {entry.name!r}")
    return entry


def read_pin(reader: Reader, name: str) -> Pin | None:
    """Return a pin, or None."""
    key = pin_key(name)
    try:
        pin = decode_record(reader.read(key).data, Pin, key)
    except ObjectNotFoundError:
        return None
    if pin.name != name or not is_dataset_id(pin.dataset_id):
        raise CorruptError(f"{key} contains pin {pin.name!r} of {pin.dataset_id!r}")
    return pin


def read_tombstone(reader: Reader, dataset_id: str, version: str) -> Tombstone | None:
    """Return the record of a version that was collected, or None. A corrupt one counts as absent."""
    key = tombstone_key(dataset_id, version)
    with suppress(ObjectNotFoundError, CorruptError, UnsupportedError):
        return decode_record(reader.read(key).data, Tombstone, key)
    return None


def list_branches(reader: Reader, dataset_id: str) -> list[str]:
    """Return the branches that were not removed. Only those that ever were cost a read of their log."""
    markers = reader.list_objects(removed_prefix(dataset_id))
    removed = {info.key.rsplit("/", 1)[-1].removesuffix(".json") for info in markers}
    names = reader.list_folders(heads_prefix(dataset_id))
    return [name for name in names if name not in removed or find_head(reader, dataset_id, name) is not None]


def _read_hint(reader: Reader, dataset_id: str) -> Hint | None:
    key = hint_key(dataset_id)
    with suppress(ObjectNotFoundError, CorruptError):
        hint = decode_record(reader.read(key).data, Hint, key)
        return hint if hint.branch == MAIN and hint.sequence >= 1 else None
    return None


def _newest_listed(reader: Reader, dataset_id: str, branch: str) -> Head | None:
    prefix = head_prefix(dataset_id, branch)
    return _newest_entry(reader, prefix, lambda sequence: read_head(reader, dataset_id, branch, sequence))


def _newest_entry(reader: Reader, prefix: str, read: Callable[[int], _Entry | None], first: int = 1) -> _Entry | None:
    """Return the newest entry of a log, by listing it or else by probing."""
    try:
        found = [sequence_of(info.key) for info in reader.list_objects(prefix)]
    except UnsupportedError:
        return _newest_probed(read, first)
    newest = max((sequence for sequence in found if sequence is not None), default=None)
    return None if newest is None else read(newest)


def _newest_probed(read: Callable[[int], _Entry | None], first: int) -> _Entry | None:
    """Find the newest entry without listing: double the step until an entry is absent, then halve it.

    Logs have no gaps.
    """
    newest = read(first)
    step, growing = 1, True
    while newest is not None and step:
        further = read(newest.sequence + step)
        newest = further or newest
        growing = growing and further is not None
        step = step * 2 if growing else step // 2
    return newest
