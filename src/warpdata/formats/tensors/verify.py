"""Is an artifact what its id says? Every leaf is read and hashed, and what differs is named by tensor and range."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass

from warpdata.errors import CorruptError, NotFoundError, PartialCoverageError, ViewPreconditionError
from warpdata.formats.tensors.extents import Extent
from warpdata.formats.tensors.replica import Replica
from warpdata.formats.tensors.sources import ParallelSource
from warpdata.formats.tensors.verified_read import Leaves
from warpdata.formats.tensors.workers import for_each
from warpdata.limits import VIEW_PIECE_BYTES

__all__ = ["Damage", "find_damage"]


@dataclass(frozen=True, slots=True, order=True)
class Damage:
    """Canonical bytes `start` to `end` are not what they should be, or not there. `names` have bytes in them."""

    start: int
    end: int
    names: tuple[str, ...]
    is_missing: bool = False

    def __str__(self) -> str:
        told = ", ".join(repr(name) for name in self.names[:5]) or "padding"
        more = f" and {len(self.names) - 5} more" if len(self.names) > 5 else ""
        return f"bytes {self.start}…{self.end} are {'missing' if self.is_missing else 'damaged'}: {told}{more}"


def find_damage(
    replica: Replica, ranges: Sequence[tuple[int, int]] | None, on_bytes: Callable[[int], None]
) -> list[Damage]:
    """Of the whole artifact, or of the leaves that lie in these ranges. Ascending; memory stays flat.

    `on_bytes` hears of bytes as they are checked.
    """
    if replica.leaves is None:
        raise ViewPreconditionError(
            "these tensors came without hashes, so there is nothing to check them against",
            hint="Files of ours and published tensors have hashes; safetensors files have none.",
        )
    leaves = Leaves(replica.index, replica.leaves)
    wanted = [(0, replica.index.total_size)] if ranges is None else ranges
    numbers = sorted({leaf for span in wanted for leaf in range(span[0] // leaves.size, -(-span[1] // leaves.size))})
    found: list[Damage] = []

    def check(group: range) -> None:
        found.extend(_check(replica, leaves, group))
        on_bytes(leaves.span(group[-1])[1] - leaves.span(group[0])[0])

    liked = [source.concurrency if isinstance(source, ParallelSource) else 1 for source in replica.sources]
    groups = list(_groups(numbers, max(1, VIEW_PIECE_BYTES // leaves.size)))
    for_each(groups, min(liked, default=1), lambda: nullcontext(check))
    return sorted(part for damage in found for part in _within(damage, wanted, leaves))


def _within(damage: Damage, wanted: Sequence[tuple[int, int]], leaves: Leaves) -> Iterator[Damage]:
    """What of a leaf was asked about. The rest of it may be another blob, which is sound."""
    for first, last in wanted:
        start, end = max(first, damage.start), min(last, damage.end)
        if start < end:
            yield Damage(start, end, leaves.names(start, end), damage.is_missing)


def _groups(numbers: Sequence[int], most: int) -> Iterator[range]:
    """Neighbours together, as many as one request should have."""
    start = 0
    for at in range(1, len(numbers) + 1):
        if at == len(numbers) or numbers[at] != numbers[at - 1] + 1 or at - start == most:
            yield range(numbers[start], numbers[at - 1] + 1)
            start = at


def _check(replica: Replica, leaves: Leaves, group: range) -> Iterator[Damage]:
    start, end = leaves.span(group[0])[0], leaves.span(group[-1])[1]
    home = replica.extents.holding(start, end)
    data = None if home is None else _read(replica, home, start, end)
    if data is None:
        if len(group) > 1:
            for leaf in group:
                yield from _check(replica, leaves, range(leaf, leaf + 1))
            return
        yield Damage(start, end, leaves.names(start, end), is_missing=True)
        return
    for leaf in group:
        first, last = leaves.span(leaf)
        if hashlib.sha256(data[first - start : last - start]).digest() != leaves.digests[leaf]:
            yield Damage(first, last, leaves.names(first, last))


def _read(replica: Replica, home: Extent, start: int, end: int) -> memoryview | None:
    """`None` if the bytes are not there any more."""
    shift = home.offset - home.start
    try:
        return memoryview(replica.sources[home.source].read_range(start + shift, end + shift)).cast("B")
    except (NotFoundError, CorruptError, PartialCoverageError):
        return None
