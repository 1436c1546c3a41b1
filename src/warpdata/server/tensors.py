"""Sets of tensors for the page: levels of the tree of names, statistics and comparisons, each computed once.

Opened sets stay in memory by their size. Reads of tensors are bounded, and a few run at a time.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from dataclasses import dataclass

from warpdata.datasets import Dataset
from warpdata.errors import NotFoundError, RateLimitedError
from warpdata.formats.tensors import TensorDifference, TensorEntry, TensorIndex, TensorStatistics, describe_tensor
from warpdata.kinds.tensors import StoredTensors, TensorDiff, diff_tensors, open_stored
from warpdata.primitives.suggest import suggest
from warpdata.server.service import Service

__all__ = ["TreeNode", "compare_sets", "describe", "difference", "find_tensor", "open_set", "tree_level"]

_BYTES_PER_TENSOR = 500
"""What an opened set takes in memory for each tensor: 390 bytes in a set of 60,000, and longer names."""
_CONCURRENT = 2
_WAIT_S = 20
_SUGGESTED_NAMES = 2000
_slots = threading.BoundedSemaphore(_CONCURRENT)


@dataclass(frozen=True, slots=True)
class TreeNode:
    """A part of a dotted name: a tensor, a group of them, or both. Counts are of all tensors in it."""

    label: str
    path: str
    tensor: TensorEntry | None
    tensor_count: int
    element_count: int
    size_bytes: int

    @property
    def is_group(self) -> bool:
        return self.tensor_count > (self.tensor is not None)


def open_set(service: Service, dataset: Dataset, name: str | None) -> StoredTensors:
    """Open a set of tensors, or return the one that is open."""

    def size_of(found: StoredTensors) -> int:
        return _BYTES_PER_TENSOR * (len(found.tensors) + 1)

    key = (dataset.id, dataset.version, name or "")
    return service.tensor_sets.get_or_create(key, lambda: open_stored(dataset.context, name), size_of)


def tree_level(index: TensorIndex, prefix: str) -> list[TreeNode]:
    """Return the nodes one level below a path, in the order of their names; numbers count as numbers."""
    names = index.names()
    start = f"{prefix}." if prefix else ""
    found: dict[str, list[TensorEntry]] = {}
    for at in range(bisect_left(names, start), len(names)):
        if not names[at].startswith(start):
            break
        found.setdefault(names[at][len(start) :].partition(".")[0], []).append(index.entries[at])
    nodes = [_node(label, start + label, entries) for label, entries in found.items()]
    return sorted(nodes, key=lambda node: (0, int(node.label), "") if node.label.isdecimal() else (1, 0, node.label))


def _node(label: str, path: str, entries: list[TensorEntry]) -> TreeNode:
    return TreeNode(
        label,
        path,
        next((entry for entry in entries if entry.name == path), None),
        len(entries),
        sum(entry.element_count for entry in entries),
        sum(entry.byte_size for entry in entries),
    )


def find_tensor(stored: StoredTensors, name: str) -> TensorEntry:
    """Return a tensor by name; `NotFoundError` without one."""
    if name not in stored.tensors:
        hint = suggest(name, stored.tensors.names()[:_SUGGESTED_NAMES], label="Tensors")
        raise NotFoundError(f"{stored.name!r} has no tensor {name!r}", hint=hint)
    return stored.tensors.index[name]


def describe(service: Service, dataset: Dataset, stored: StoredTensors, name: str) -> TensorStatistics:
    """Return statistics of a tensor, computed once for a version."""
    find_tensor(stored, name)
    key = ("tensor", dataset.id, dataset.version, stored.name, name)
    found = service.statistics.get(key)
    if not isinstance(found, TensorStatistics):
        with _Slot():
            found = describe_tensor(stored.tensors, name)
        service.statistics.put(key, found)
    return found


def compare_sets(
    service: Service, sides: tuple[Dataset, Dataset], names: tuple[str | None, str | None], *, reads: bool
) -> TensorDiff:
    """Compare two sets, once for each pair. `reads` decides small tensors that hashes leave open."""
    older, newer = (open_set(service, dataset, name) for dataset, name in zip(sides, names, strict=True))
    place = [part for side, stored in zip(sides, (older, newer), strict=True) for part in (side.version, stored.name)]
    key = (sides[0].id, *place, "read" if reads else "")
    found = service.tensor_diffs.get(key)
    if found is None:
        if reads:
            known = compare_sets(service, sides, names, reads=False)
            with _Slot():
                found = known.decide()
        else:
            found = diff_tensors(older, newer)
        service.tensor_diffs.put(key, found, 3 * _BYTES_PER_TENSOR * (len(found.changes) + 1))
    return found


def difference(service: Service, found: TensorDiff, versions: tuple[str, str], name: str) -> TensorDifference:
    """Return how far a tensor of two sets is apart, computed once for each pair."""
    for stored in (found.older, found.newer):
        find_tensor(stored, name)
    key = ("tensor-difference", *versions, found.older.name, found.newer.name, name)
    known = service.statistics.get(key)
    if not isinstance(known, TensorDifference):
        with _Slot():
            known = found.difference(name)
        service.statistics.put(key, known)
    return known


class _Slot:
    """One of the few reads of tensors that run at a time. `RateLimitedError` if none becomes free."""

    def __enter__(self) -> None:
        if not _slots.acquire(timeout=_WAIT_S):
            raise RateLimitedError(
                f"{_CONCURRENT} tensors are being read", retry_after_s=_WAIT_S, hint="Try again soon."
            )

    def __exit__(self, *_: object) -> None:
        _slots.release()
