"""Two published sets of tensors, tensor by tensor, from their indexes alone.

A tensor is the same if it is the same range of the same stored file, or if all leaves of the TreeHash that it has bytes
of have the same digests. It is changed if a leaf or a file of its own differs. Small tensors share leaves and files
with their neighbours; if a neighbour changed, the hashes leave open whether they did. `TensorDiff.decide` reads those.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import TYPE_CHECKING, Literal, TypeAlias

from warpdata.errors import BadInputError
from warpdata.formats.tensors import TensorDifference, TensorEntry, TensorSet, compare_tensors, leaf_size
from warpdata.kinds import VersionContext, pick_entry
from warpdata.kinds.tensors.kind import TENSORS
from warpdata.kinds.tensors.reader import PublishedTensors, open_published
from warpdata.limits import MIB
from warpdata.primitives.cached_property import cached_property

if TYPE_CHECKING:
    from warpdata.primitives.hashing import Blob

__all__ = ["StoredTensors", "TensorChange", "TensorChangeKind", "TensorDiff", "diff_tensors", "open_stored"]

TensorChangeKind: TypeAlias = Literal["added", "removed", "retyped", "changed", "undecided", "same"]
KINDS: tuple[TensorChangeKind, ...] = ("added", "removed", "retyped", "changed", "undecided", "same")
_Hashes: TypeAlias = dict[tuple[int, int], str]
"""Hashes by the range of bytes that they cover, counted from the first byte of a tensor."""
DECIDE_BYTES = 64 * MIB
_ALIGNMENT_BYTES = 8


@dataclass(frozen=True)
class StoredTensors:
    """A set of tensors of a version, with the files that hold its bytes."""

    name: str
    tensors: TensorSet
    blobs: tuple[Blob, ...] = field(repr=False)

    def files(self, entry: TensorEntry) -> _Hashes:
        """Return the hashes of the stored files with bytes of a tensor, by their ranges."""
        starts, found = self._starts, {}
        at = bisect_right(starts, entry.offset) - 1
        while at < len(self.blobs) and starts[at] < entry.offset + entry.size:
            found[starts[at] - entry.offset, starts[at + 1] - entry.offset] = self.blobs[at].hash
            at += 1
        return found

    def leaves(self, entry: TensorEntry) -> _Hashes:
        """Return the digests of the leaves with bytes of a tensor, by their ranges."""
        total, digests = self.tensors.index.total_size, self.tensors.replica.leaves or ()
        size = leaf_size(total)
        numbers = range(entry.offset // size, min(len(digests), -(-(entry.offset + entry.size) // size)))
        return {
            (at * size - entry.offset, min(total, (at + 1) * size) - entry.offset): digests[at].hex() for at in numbers
        }

    @cached_property
    def _starts(self) -> list[int]:
        return [0, *accumulate(blob.byte_size for blob in self.blobs)]


@dataclass(frozen=True, slots=True)
class TensorChange:
    """A tensor in two sets. `retyped` has another shape or type; `undecided` may have changed, see `TensorDiff`."""

    name: str
    kind: TensorChangeKind
    before: TensorEntry | None
    after: TensorEntry | None


@dataclass(frozen=True)
class TensorDiff:
    """All tensors of two sets by name, in order. No data was read to make it."""

    older: StoredTensors
    newer: StoredTensors
    changes: tuple[TensorChange, ...]

    def __repr__(self) -> str:
        listed = ", ".join(f"{kind}={count:,}" for kind, count in self.counts.items() if count)
        return f"TensorDiff({listed})"

    @property
    def counts(self) -> dict[TensorChangeKind, int]:
        """The number of tensors of each kind."""
        found = Counter(change.kind for change in self.changes)
        return {kind: found[kind] for kind in KINDS}

    @property
    def undecided_bytes(self) -> int:
        """The bytes that `decide` reads, of both sets."""
        pairs = [(change.before, change.after) for change in self.changes if change.kind == "undecided"]
        return sum(entry.byte_size for pair in pairs for entry in pair if entry is not None)

    def decide(self, max_bytes: int = DECIDE_BYTES) -> TensorDiff:
        """Read the tensors that hashes leave open, the smallest first, at most `max_bytes`, and return the result."""
        left, chosen = max_bytes, []
        waiting = [change for change in self.changes if change.kind == "undecided"]
        for change in sorted(waiting, key=lambda one: one.before.byte_size if one.before else 0):
            assert change.before is not None
            left -= 2 * change.before.byte_size
            if left < 0:
                break
            chosen.append(change.name)
        sides = _ElementReader(self.older.tensors), _ElementReader(self.newer.tensors)
        known: dict[str, TensorChangeKind] = {
            name: "same" if sides[0].read(name) == sides[1].read(name) else "changed" for name in sorted(chosen)
        }
        return replace(
            self,
            changes=tuple(replace(one, kind=known[one.name]) if one.name in known else one for one in self.changes),
        )

    def difference(self, name: str, *, max_bytes: int = DECIDE_BYTES) -> TensorDifference:
        """Return how far a tensor of both sets is apart. Reads it, or the same parts of both."""
        sides = (self.older.tensors, self.newer.tensors)
        if not all(name in side for side in sides):
            raise BadInputError(f"{name!r} is not a tensor of both sets", hint="Compare tensors that both have.")
        return compare_tensors(sides[0], name, sides[1], name, max_bytes=max_bytes)


def open_stored(version: VersionContext, name: str | None = None) -> StoredTensors:
    """Open a set of tensors with the list of its files. Reads no data."""
    name, entry = pick_entry(TENSORS, version.manifest, name)
    published = PublishedTensors(version.ref.dataset_id, name, entry, version.session, version.load_page)
    return StoredTensors(name, open_published(published), tuple(published.shards()))


def diff_tensors(older: StoredTensors, newer: StoredTensors) -> TensorDiff:
    """Compare two sets by their indexes, leaf digests and files. Reads no data."""
    before = {entry.name: entry for entry in older.tensors.index}
    after = {entry.name: entry for entry in newer.tensors.index}
    is_same = older.tensors.known_artifact_id == newer.tensors.known_artifact_id is not None
    return TensorDiff(
        older,
        newer,
        tuple(
            TensorChange(
                name,
                "same" if is_same else _kind(older, before.get(name), newer, after.get(name)),
                before.get(name),
                after.get(name),
            )
            for name in sorted({*before, *after})
        ),
    )


def _kind(
    older: StoredTensors, before: TensorEntry | None, newer: StoredTensors, after: TensorEntry | None
) -> TensorChangeKind:
    if before is None:
        return "added"
    if after is None:
        return "removed"
    if (before.shape, before.dtype) != (after.shape, after.dtype):
        return "retyped"
    if not before.element_count:
        return "same"
    if (before.size, before.stride, before.storage_offset) != (after.size, after.stride, after.storage_offset):
        return "undecided"
    by_file = _verdict(before, older.files(before), newer.files(after))
    return by_file if by_file != "undecided" else _verdict(before, older.leaves(before), newer.leaves(after))


def _verdict(entry: TensorEntry, before: _Hashes, after: _Hashes) -> TensorChangeKind:
    """Compare hashes of ranges that cover a tensor. A range within it that differs is a change."""
    if before and before == after:
        return "same"
    end = -(-entry.size // _ALIGNMENT_BYTES) * _ALIGNMENT_BYTES  # the padding behind it is zero
    for span in before.keys() & after.keys():
        if span[0] >= 0 and span[1] <= end and before[span] != after[span]:
            return "changed"
    return "undecided"


class _ElementReader:
    """Reads tensors by name, in order. Neighbours share the leaves that a verified read fetches."""

    def __init__(self, art: TensorSet) -> None:
        self._art = art
        self._start = 0
        self._held = memoryview(b"")

    def read(self, name: str) -> bytes:
        """Return the bytes of the elements, in the order of the shape."""
        entry = self._art.index[name]
        if not entry.is_compact:
            return self._art[name].numpy().tobytes()
        start, end = entry.offset, entry.offset + entry.size
        if not self._start <= start <= end <= self._start + len(self._held):
            total = self._art.index.total_size
            leaf = leaf_size(total)
            self._start = start // leaf * leaf
            self._held = self._art.replica.read_bytes(self._start, min(total, -(-end // leaf) * leaf))
        return bytes(self._held[start - self._start : end - self._start])
