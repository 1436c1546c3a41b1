"""Readers of pointers: branches, which are create-only logs, commits and labels. Writes nothing.

Implements "Finding a head" of docs/specs/catalog.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import TypeAlias

from warpdata.errors import CorruptError, NotCachedError, ObjectNotFoundError, UnsupportedError
from warpdata.limits import MAX_HINT_LAG_PROBES
from warpdata.repository.catalog.layout import (
    commit_key,
    head_key,
    head_prefix,
    heads_prefix,
    hint_key,
    label_key,
    sequence_of,
)
from warpdata.repository.catalog.names import MAIN
from warpdata.repository.catalog.records import Commit, Head, Hint, Label, decode_commit, decode_record
from warpdata.storage import Reader

__all__ = ["OnHint", "find_head", "list_branches", "read_commit", "read_head", "read_label", "walk_heads"]


OnHint: TypeAlias = Callable[[str], None]
"""Takes the version of the hint, before a newer head is looked for."""


def find_head(reader: Reader, dataset_id: str, branch: str, on_hint: OnHint | None = None) -> Head | None:
    """Return the newest entry of a branch, or None.

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
    return decode_commit(reader.read(commit_key(dataset_id, commit_id)).data, commit_id)


def read_label(reader: Reader, dataset_id: str, name: str) -> Label | None:
    key = label_key(dataset_id, name)
    try:
        label = decode_record(reader.read(key).data, Label, key)
    except ObjectNotFoundError:
        return None
    if label.name != name:
        raise CorruptError(f"{key} contains label {label.name!r}")
    return label


def list_branches(reader: Reader, dataset_id: str) -> list[str]:
    return reader.list_folders(heads_prefix(dataset_id))


def _read_hint(reader: Reader, dataset_id: str) -> Hint | None:
    key = hint_key(dataset_id)
    with suppress(ObjectNotFoundError, CorruptError):
        hint = decode_record(reader.read(key).data, Hint, key)
        return hint if hint.branch == MAIN and hint.sequence >= 1 else None
    return None


def _newest_listed(reader: Reader, dataset_id: str, branch: str) -> Head | None:
    try:
        found = [sequence_of(info.key) for info in reader.list_objects(head_prefix(dataset_id, branch))]
    except UnsupportedError:
        return _newest_probed(reader, dataset_id, branch)
    newest = max((sequence for sequence in found if sequence is not None), default=None)
    return None if newest is None else read_head(reader, dataset_id, branch, newest)


def _newest_probed(reader: Reader, dataset_id: str, branch: str) -> Head | None:
    """Find the newest entry without listing: double the step until an entry is absent, then halve it.

    Logs have no gaps.
    """
    newest = read_head(reader, dataset_id, branch, 1)
    step, growing = 1, True
    while newest is not None and step:
        further = read_head(reader, dataset_id, branch, newest.sequence + step)
        newest = further or newest
        growing = growing and further is not None
        step = step * 2 if growing else step // 2
    return newest
