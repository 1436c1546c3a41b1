"""The history of one dataset: what it stores, which commits are reachable, and which versions a rule keeps.

Implements "Roots" and "Retention" of docs/specs/gc.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime

from warpdata.errors import CorruptError, ObjectNotFoundError, UnsupportedError
from warpdata.primitives.hashing import is_digest
from warpdata.primitives.parallel import IO_POOL
from warpdata.repository.catalog import (
    Commit,
    Head,
    Pin,
    VersionLabel,
    dataset_prefix,
    is_dataset_id,
    read_commit,
    read_head,
    read_label_state,
    sequence_of,
)
from warpdata.repository.gc.retention import Retention
from warpdata.storage import ObjectInfo, Reader

__all__ = ["DatasetHistory", "choose_kept", "list_dataset_ids", "read_history"]

_PARALLEL_READS = 16


@dataclass(frozen=True)
class DatasetHistory:
    """All that a collection knows of a dataset: the stored objects, its roots, and its reachable commits."""

    dataset_id: str
    manifests: Mapping[str, ObjectInfo]
    commits: Mapping[str, ObjectInfo]
    collected: AbstractSet[str]
    heads: Mapping[str, Head]
    labels: tuple[VersionLabel, ...]
    pins: tuple[Pin, ...]
    former: tuple[Head | VersionLabel, ...] = ()
    """Branches and labels that were removed. Their history is kept like any other, but not for their name."""
    reachable: Mapping[str, Commit] = field(default_factory=dict)
    committed: frozenset[str] = frozenset()
    """The versions of reachable commits."""

    def roots(self) -> list[Head | VersionLabel | Pin]:
        return [*self.heads.values(), *self.labels, *self.pins]

    def named_versions(self) -> set[str]:
        """Return the versions of heads, labels and pins, which every rule keeps."""
        return {root.version for root in self.roots()}


def list_dataset_ids(reader: Reader) -> list[str]:
    """Return all datasets that store anything, with or without a branch.

    Raise `UnsupportedError` for a directory that no dataset can have: a newer program may have made it.
    """
    found = []
    for workspace in reader.list_folders("datasets"):
        for name in reader.list_folders(f"datasets/{workspace}"):
            dataset_id = f"{workspace}/{name}"
            if not is_dataset_id(dataset_id):
                raise UnsupportedError(
                    f"datasets/{dataset_id} in {reader.url} is no dataset, so nothing was collected",
                    hint="Move it out of the store, or upgrade warpdata.",
                )
            found.append(dataset_id)
    return found


def read_history(reader: Reader, dataset_id: str, pins: Iterable[Pin]) -> DatasetHistory:
    """List a dataset, then read its heads, labels and reachable commits. Raise if one of them cannot be read."""
    listed: dict[str, dict[str, ObjectInfo]] = {"manifests": {}, "commits": {}, "collected": {}, "labels": {}}
    newest: dict[str, int] = {}
    prefix = f"{dataset_prefix(dataset_id)}/"
    for info in reader.list_objects(dataset_prefix(dataset_id)):
        parts = info.key.removeprefix(prefix).split("/")
        sequence = sequence_of(info.key)
        if len(parts) == 3 and parts[0] == "heads" and sequence is not None:
            newest[parts[1]] = max(sequence, newest.get(parts[1], 0))
        elif len(parts) == 2 and parts[0] in listed and parts[1].endswith(".json"):
            name = parts[1].removesuffix(".json")
            if is_digest(name) or parts[0] == "labels":
                listed[parts[0]][name] = info
    heads = {branch: _read_newest(reader, dataset_id, branch, sequence) for branch, sequence in newest.items()}
    found = IO_POOL.map_all(
        lambda name: read_label_state(reader, dataset_id, name), listed["labels"], limit=_PARALLEL_READS
    )
    labels = [state for state in found if state is not None]
    former = [head for head in heads.values() if head.removed is not None]
    history = DatasetHistory(
        dataset_id,
        manifests=listed["manifests"],
        commits=listed["commits"],
        collected=listed["collected"].keys(),
        heads={branch: head for branch, head in heads.items() if head.removed is None},
        labels=tuple(state.label for state in labels if state.removed is None),
        pins=tuple(pin for pin in pins if pin.dataset_id == dataset_id),
        former=(*former, *(state.label for state in labels if state.removed is not None)),
    )
    return _with_commits(reader, history)


def choose_kept(
    history: DatasetHistory, rule: Retention, now: datetime, known_commits: AbstractSet[str] | None
) -> set[str]:
    """Return the versions to keep. Commits outside of `known_commits`, if given, are newer than the collection."""
    kept = history.named_versions()
    for commit_id, commit in history.reachable.items():
        is_new = known_commits is not None and commit_id not in known_commits
        is_young = rule.younger_than is not None and now - datetime.fromisoformat(commit.time) <= rule.younger_than
        if rule.keeps_all or is_new or is_young:
            kept.add(commit.version)
    for head in history.heads.values():
        for number, commit in enumerate(_first_parents(history, head.commit)):
            if number >= rule.last:
                break
            kept.add(commit.version)
    return kept


def _read_newest(reader: Reader, dataset_id: str, branch: str, sequence: int) -> Head:
    """Return the newest entry of a branch, which may have grown since it was listed."""
    head = read_head(reader, dataset_id, branch, sequence)
    if head is None:
        raise CorruptError(f"entry {sequence} in the log of branch {branch!r} of {dataset_id} is missing")
    following = read_head(reader, dataset_id, branch, sequence + 1)
    while following is not None:
        head, following = following, read_head(reader, dataset_id, branch, following.sequence + 1)
    return head


def _with_commits(reader: Reader, history: DatasetHistory) -> DatasetHistory:
    """Add the reachable commits. Listed ones are read in parallel, because the latency of single reads adds up."""

    def read(commit_id: str) -> Commit | None:
        with suppress(CorruptError, ObjectNotFoundError):  # raised below if it is reachable
            return read_commit(reader, history.dataset_id, commit_id)
        return None

    found = IO_POOL.map_all(read, history.commits, limit=_PARALLEL_READS)
    known = dict(zip(history.commits, found, strict=True))
    reachable: dict[str, Commit] = {}
    waiting = [root.commit for root in (*history.roots(), *history.former)]
    while waiting:
        commit_id = waiting.pop()
        if commit_id not in reachable:
            commit = known.get(commit_id) or read_commit(reader, history.dataset_id, commit_id)
            reachable[commit_id] = commit
            waiting.extend(commit.parents)
    committed = frozenset(commit.version for commit in reachable.values())
    return replace(history, reachable=reachable, committed=committed)


def _first_parents(history: DatasetHistory, commit_id: str) -> Iterator[Commit]:
    following: str | None = commit_id
    while following is not None:
        commit = history.reachable[following]
        yield commit
        following = commit.parents[0] if commit.parents else None
