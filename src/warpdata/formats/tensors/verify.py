"""Verification of a whole artifact: every leaf is read and hashed, and corrupt ranges are reported by tensor."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from warpdata.errors import (
    CorruptError,
    NotFoundError,
    PartialCoverageError,
    StorageError,
    UnsupportedError,
    WarpError,
)
from warpdata.formats.tensors.extents import Extent
from warpdata.formats.tensors.leaves import LeafDigests
from warpdata.formats.tensors.reads import PIECE_BYTES
from warpdata.formats.tensors.replica import Replica
from warpdata.primitives.hashing import OnBytes
from warpdata.primitives.parallel import IO_POOL
from warpdata.storage import ConcurrentSource

__all__ = ["CorruptRange", "verify"]


@dataclass(frozen=True, slots=True, order=True)
class CorruptRange:
    """Canonical bytes `start` to `end` do not match their hash, or are missing. `names` have bytes in the range."""

    start: int
    end: int
    names: tuple[str, ...]
    is_missing: bool = False

    def __str__(self) -> str:
        shown = ", ".join(repr(name) for name in self.names[:5]) or "padding"
        more = f" and {len(self.names) - 5} more" if len(self.names) > 5 else ""
        return f"bytes {self.start}…{self.end} are {'missing' if self.is_missing else 'corrupt'}: {shown}{more}"


def verify(replica: Replica, ranges: Sequence[tuple[int, int]] | None, on_bytes: OnBytes) -> list[CorruptRange]:
    """Return the corrupt ranges of the artifact, or of some canonical ranges, ascending. Memory use is bounded."""
    if replica.leaves is None:
        raise UnsupportedError(
            "these tensors have no hashes to verify them with",
            hint="Canonical files and published tensors have hashes; safetensors files have none.",
        )
    leaves = LeafDigests(replica.index, replica.leaves)
    spans = [(0, replica.index.total_size)] if ranges is None else ranges
    numbers = sorted({leaf for start, end in spans for leaf in range(start // leaves.size, -(-end // leaves.size))})

    def check(group: range) -> list[CorruptRange]:
        found = list(_check_group(replica, leaves, group))
        on_bytes(leaves.span(group[-1])[1] - leaves.span(group[0])[0])
        return found

    allowed = [source.concurrency if isinstance(source, ConcurrentSource) else 1 for source in replica.sources]
    limit = max(1, min(allowed, default=1))
    groups = list(_groups(numbers, max(1, PIECE_BYTES // leaves.size)))
    found = (one for group in IO_POOL.map_all(check, groups, limit=limit) for one in group)
    return sorted(part for one in found for part in _clip(one, spans, leaves))


def _clip(corrupt: CorruptRange, spans: Sequence[tuple[int, int]], leaves: LeafDigests) -> Iterator[CorruptRange]:
    """Yield the parts of a corrupt leaf inside of the checked ranges. Its rest may be in another, valid blob."""
    for first, last in spans:
        start, end = max(first, corrupt.start), min(last, corrupt.end)
        if start < end:
            yield CorruptRange(start, end, leaves.names(start, end), corrupt.is_missing)


def _groups(numbers: Sequence[int], max_leaves: int) -> Iterator[range]:
    """Yield neighbours together, up to the size of one request."""
    start = 0
    for at in range(1, len(numbers) + 1):
        if at == len(numbers) or numbers[at] != numbers[at - 1] + 1 or at - start == max_leaves:
            yield range(numbers[start], numbers[at - 1] + 1)
            start = at


def _check_group(replica: Replica, leaves: LeafDigests, group: range) -> Iterator[CorruptRange]:
    start, end = leaves.span(group[0])[0], leaves.span(group[-1])[1]
    home = replica.extents.holding(start, end)
    data = None if home is None else _read(replica, home, start, end)
    if data is None:
        if len(group) > 1:
            for leaf in group:
                yield from _check_group(replica, leaves, range(leaf, leaf + 1))
            return
        yield from _check_others(replica, leaves, group[0], is_missing=True)
        return
    for leaf in group:
        first, last = leaves.span(leaf)
        if hashlib.sha256(data[first - start : last - start]).digest() != leaves.digests[leaf]:
            yield from _check_others(replica, leaves, leaf, is_missing=False)


def _check_others(replica: Replica, leaves: LeafDigests, leaf: int, *, is_missing: bool) -> Iterator[CorruptRange]:
    """Yield a leaf that its source does not have, unless another source has it."""
    start, end = leaves.span(leaf)
    if replica.failover is not None:
        try:
            replica.failover.read_leaf(leaf)
        except CorruptError:
            is_missing = False
        except (WarpError, OSError):
            pass
        else:
            return
    yield CorruptRange(start, end, leaves.names(start, end), is_missing)


def _read(replica: Replica, home: Extent, start: int, end: int) -> memoryview | None:
    """Return canonical bytes; None if the source no longer has them."""
    shift = home.offset - home.start
    try:
        return memoryview(replica.sources[home.source].read_range(start + shift, end + shift)).cast("B")
    except (NotFoundError, CorruptError, PartialCoverageError):
        return None
    except StorageError:
        if replica.failover is None:
            raise
        return None
