"""Parts of an artifact in a local file: what a view needed, fetched once, and able to serve whatever it covers.

Such a file says exactly which canonical bytes it has. What it lacks is missing, with the usual error, until
somebody says where else to look. Implements "Partial files" of docs/specs/tensors.md.
"""

from __future__ import annotations

import hashlib
import mmap
import os
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from warpdata.errors import AlreadyExistsError, LimitExceededError, TensorsCorruptedError, UnsupportedFormatError
from warpdata.formats.tensors.coverage import check_coverage
from warpdata.formats.tensors.extents import Extent, merge_ranges
from warpdata.formats.tensors.hashing import leaf_size
from warpdata.formats.tensors.index import TensorIndex, align
from warpdata.formats.tensors.index_json import parse_index
from warpdata.formats.tensors.new_files import create_file, write_all
from warpdata.formats.tensors.plan import Contiguous, ViewPlan
from warpdata.formats.tensors.reads import ReadCost
from warpdata.formats.tensors.replica import Replica
from warpdata.formats.tensors.sources import SizedSource
from warpdata.formats.tensors.strided_copy import clip_patch, patch_of
from warpdata.formats.tensors.targets import HostTarget
from warpdata.limits import MAX_REPLICA_EXTENTS, MAX_TENSOR_INDEX_BYTES, MAX_TENSOR_SPACE_BYTES

__all__ = ["Parts", "is_partial", "read_parts", "write_parts"]

_MAGIC = b"WARPPART"
_FORMAT = 1
_TRAILER = struct.Struct("<QQQQ32sQ8s")
_RANGE = struct.Struct("<QQ")
_DIGEST_BYTES = 32


@dataclass(frozen=True, slots=True)
class Parts:
    """What a partial file says of itself."""

    index: TensorIndex
    leaves: tuple[bytes, ...] | None
    extents: tuple[Extent, ...]


def write_parts(path: Path, replica: Replica, plan: ViewPlan, cost: ReadCost) -> None:
    """Fetch what a plan needs, in whole leaves where they are there, and keep it. Checked, if hashes are known.

    The file appears whole or not at all, and never replaces another.
    """
    check_coverage(plan.data_runs, replica.extents, replica.index_multihash)
    ranges = _wanted(replica, plan)
    if len(ranges) > MAX_REPLICA_EXTENTS:
        raise LimitExceededError(f"the view has {len(ranges)} parts; {MAX_REPLICA_EXTENTS} are allowed")
    extents, size = _laid_out(ranges)
    runs = tuple(Contiguous("", part.offset, part.start, part.end - part.start) for part in extents)
    if path.exists():
        raise AlreadyExistsError(f"{path} is already there")
    partial = path.with_name(path.name + ".partial")
    file = create_file(partial, size)
    try:
        work = replica.work(ViewPlan(TensorIndex(()), (), runs, (), size), cost, verify=_whole_leaves(replica, ranges))
        if size:
            mapped = mmap.mmap(file, size)
            replica.engine.fill(work, HostTarget([(0, memoryview(mapped))]))
            mapped.flush()
        os.lseek(file, size, os.SEEK_SET)
        write_all(file, _tail(replica, ranges, size))
        os.fsync(file)
        try:
            os.link(partial, path)
        except FileExistsError as error:
            raise AlreadyExistsError(f"{path} is already there") from error
    finally:
        os.close(file)
        partial.unlink(missing_ok=True)


def is_partial(file: SizedSource) -> bool:
    size = file.size_bytes
    return size >= _TRAILER.size and bytes(file.read_range(size - len(_MAGIC), size)) == _MAGIC


def read_parts(file: SizedSource) -> Parts:
    """Strictly: every number is compared with the file before it is believed."""
    what, size = file.name, file.size_bytes
    trailer = file.read_range(size - _TRAILER.size, size)
    data, count, leaf_count, index_size, digest, form, _ = _TRAILER.unpack(trailer)
    if form != _FORMAT:
        raise UnsupportedFormatError(f"{what} has the format {form}; this version reads {_FORMAT}")
    if data > MAX_TENSOR_SPACE_BYTES or count > MAX_REPLICA_EXTENTS or index_size > MAX_TENSOR_INDEX_BYTES:
        raise TensorsCorruptedError(f"{what} promises {data} bytes in {count} parts and {index_size} of index")
    table, hashes = count * _RANGE.size, leaf_count * _DIGEST_BYTES
    if data + table + hashes + index_size + _TRAILER.size != size:
        raise TensorsCorruptedError(f"{what} has {size} bytes, not those its trailer promises")
    body = bytes(file.read_range(data, size - _TRAILER.size))
    if hashlib.sha256(body).digest() != digest:
        raise TensorsCorruptedError(f"the index of {what} is not the one that was written")
    index = parse_index(body[table + hashes :], f"the index of {what}")
    expected = -(-index.total_size // leaf_size(index.total_size))
    if leaf_count not in (0, expected):
        raise TensorsCorruptedError(f"{what} has {leaf_count} leaf hashes, and its index needs {expected}")
    ranges = list(_RANGE.iter_unpack(body[:table]))
    apart = all(before[1] < after[0] for before, after in pairwise(ranges))
    if not apart or not all(0 <= start < end <= index.total_size for start, end in ranges):
        raise TensorsCorruptedError(f"the parts of {what} are not in order, or not inside of its tensors")
    extents, length = _laid_out(ranges)
    if length != data:
        raise TensorsCorruptedError(f"{what} has {data} bytes of data, and its parts {length}")
    leaves = tuple(body[at : at + _DIGEST_BYTES] for at in range(table, table + hashes, _DIGEST_BYTES))
    return Parts(index, leaves or None, tuple(extents))


def _wanted(replica: Replica, plan: ViewPlan) -> list[tuple[int, int]]:
    """Every leaf that the plan has bytes of, as far as it is there."""
    size, total = leaf_size(replica.index.total_size), replica.index.total_size
    leaves: set[int] = set()
    for patch in map(patch_of, plan.data_runs):
        for leaf in range(patch.source // size, -(-(patch.source + patch.span) // size)):
            if leaf not in leaves and next(clip_patch(patch, leaf * size, (leaf + 1) * size), None) is not None:
                leaves.add(leaf)
    return merge_ranges(
        (start, end)
        for leaf in leaves
        for start, end, home in replica.extents.pieces(leaf * size, min(total, (leaf + 1) * size))
        if home is not None
    )


def _whole_leaves(replica: Replica, ranges: Sequence[tuple[int, int]]) -> bool:
    size, total = leaf_size(replica.index.total_size), replica.index.total_size
    whole = all(start % size == 0 and (end % size == 0 or end == total) for start, end in ranges)
    return whole and replica.leaves is not None


def _laid_out(ranges: Sequence[tuple[int, int]]) -> tuple[list[Extent], int]:
    """Where each range lies in the file, each at the next multiple of 8, and the end of the last, likewise."""
    extents, at = [], 0
    for start, end in ranges:
        extents.append(Extent(start, end, 0, at))
        at = align(at + end - start)
    return extents, at


def _tail(replica: Replica, ranges: Sequence[tuple[int, int]], size: int) -> bytes:
    leaves = replica.leaves if replica.leaves is not None else ()
    body = b"".join(_RANGE.pack(*one) for one in ranges) + b"".join(leaves) + replica.index_bytes
    counts = (size, len(ranges), len(leaves), len(replica.index_bytes))
    return body + _TRAILER.pack(*counts, hashlib.sha256(body).digest(), _FORMAT, _MAGIC)
