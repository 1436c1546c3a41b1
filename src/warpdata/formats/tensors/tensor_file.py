"""The native file formats: canonical files with a whole artifact, partial files with ranges of one, and view files.

All begin with data and end with leaf digests, index and a trailer, so that a reader finds the index with two reads
and can verify any part of the data. Byte n of a canonical file is byte n of the canonical ByteSpace. A partial file
lists the canonical ranges that it holds. A view file has the ByteSpace of a view, and names the view. Implements
"Canonical files", "Partial files" and "View files" of docs/specs/tensors.md.
"""

from __future__ import annotations

import errno
import hashlib
import mmap
import re
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from warpdata.errors import (
    AlreadyExistsError,
    BadInputError,
    CorruptError,
    ErrorKind,
    LimitExceededError,
    StorageError,
    UnsupportedError,
)
from warpdata.formats.tensors.buffers import HostTarget
from warpdata.formats.tensors.extents import Extent, ViewRecord
from warpdata.formats.tensors.hashing import leaf_size
from warpdata.formats.tensors.index import TensorIndex, align, parse_index
from warpdata.formats.tensors.plan import Contiguous, ViewPlan
from warpdata.formats.tensors.reads import ReadCost
from warpdata.formats.tensors.replica import Replica
from warpdata.formats.tensors.strided_copy import clip_copy, copy_of
from warpdata.limits import MAX_REPLICA_EXTENTS, MAX_TENSOR_INDEX_BYTES, MAX_TENSOR_SPACE_BYTES
from warpdata.primitives.atomic_file import AtomicFile, preallocate
from warpdata.primitives.ranges import ByteRange, RangeSet
from warpdata.storage import RangeSource

__all__ = [
    "CanonicalTail",
    "PartialContents",
    "create_file",
    "encode_tail",
    "finish_file",
    "is_canonical",
    "is_partial",
    "is_view_file",
    "parse_tail",
    "read_partial",
    "read_tail",
    "write_partial",
]

_CANONICAL_MAGIC = b"WARPTENS"
_PARTIAL_MAGIC = b"WARPPART"
_VIEW_MAGIC = b"WARPVIEW"
_RECORD = re.compile(rb"(b[a-z2-7]{55})(b[a-z2-7]{55})")
_RECORD_BYTES = 112
_FORMAT = 1
_CANONICAL_TRAILER = struct.Struct("<QQ32sQ8s")
_PARTIAL_TRAILER = struct.Struct("<QQQQ32sQ8s")
_RANGE = struct.Struct("<QQ")
_DIGEST_BYTES = 32


@dataclass(frozen=True, slots=True)
class CanonicalTail:
    """The contents of a canonical file after its data."""

    index: TensorIndex
    index_bytes: bytes
    leaves: tuple[bytes, ...]
    view: ViewRecord | None = None


@dataclass(frozen=True, slots=True)
class PartialContents:
    """The contents of a partial file, without its data."""

    index: TensorIndex
    leaves: tuple[bytes, ...] | None
    extents: tuple[Extent, ...]


def encode_tail(total_size: int, index_bytes: bytes, leaves: Sequence[bytes], view: ViewRecord | None = None) -> bytes:
    """Return the bytes of a canonical file, or with a record of a view file, after its data and padding."""
    body = b"".join(leaves) + index_bytes
    if view is not None:
        body += f"{view.artifact_index}{view.space_id}".encode("ascii")
    digest = hashlib.sha256(body).digest()
    magic = _CANONICAL_MAGIC if view is None else _VIEW_MAGIC
    return body + _CANONICAL_TRAILER.pack(total_size, len(index_bytes), digest, _FORMAT, magic)


def is_canonical(file: RangeSource) -> bool:
    """Return whether this is a canonical file or a view file."""
    return _has_magic(file, _CANONICAL_TRAILER.size, _CANONICAL_MAGIC) or is_view_file(file)


def is_view_file(file: RangeSource) -> bool:
    return _has_magic(file, _CANONICAL_TRAILER.size, _VIEW_MAGIC)


def read_tail(file: RangeSource, name: str) -> CanonicalTail:
    """Read the tail of a canonical file or a view file. Every size is compared with the file before it is used."""
    size = file.size_bytes
    total, length = _declared_sizes(bytes(file.read_range(size - _CANONICAL_TRAILER.size, size)), name)
    if align(total) + length != size:
        raise CorruptError(f"{name} has {size} bytes; its trailer declares {align(total) + length}")
    return parse_tail(bytes(file.read_range(size - length, size)), name)


def parse_tail(tail: bytes, name: str) -> CanonicalTail:
    """Parse what `encode_tail` returned; `name` is used in messages."""
    if len(tail) < _CANONICAL_TRAILER.size or not tail.endswith((_CANONICAL_MAGIC, _VIEW_MAGIC)):
        raise CorruptError(f"{name} does not end with the trailer of a tensor index")
    trailer = tail[-_CANONICAL_TRAILER.size :]
    total, length = _declared_sizes(trailer, name)
    if length != len(tail):
        raise CorruptError(f"{name} has {len(tail)} bytes after its data; its trailer declares {length}")
    _, index_size, digest, _, _ = _CANONICAL_TRAILER.unpack(trailer)
    body = tail[: -_CANONICAL_TRAILER.size]
    _check_digest(body, digest, name)
    view = None
    if trailer.endswith(_VIEW_MAGIC):
        view = _parse_record(body[-_RECORD_BYTES:], name)
        body = body[:-_RECORD_BYTES]
    leaf_bytes = len(body) - index_size
    index_bytes = body[leaf_bytes:]
    index = parse_index(index_bytes, f"the index of {name}")
    if index.total_size != total:
        raise CorruptError(f"{name} declares {total} bytes of data; its index has {index.total_size}")
    return CanonicalTail(index, index_bytes, _split_digests(body[:leaf_bytes]), view)


def _parse_record(record: bytes, name: str) -> ViewRecord:
    found = _RECORD.fullmatch(record)
    if found is None:
        raise CorruptError(f"{name} does not name the view that it holds")
    return ViewRecord(found[1].decode(), found[2].decode())


def _declared_sizes(trailer: bytes, name: str) -> tuple[int, int]:
    """Return the total size and the length of the tail, as a trailer declares them."""
    total, index_size, _, form, magic = _CANONICAL_TRAILER.unpack(trailer)
    _check_format(form, name)
    if total > MAX_TENSOR_SPACE_BYTES or index_size > MAX_TENSOR_INDEX_BYTES:
        raise CorruptError(f"{name} declares {total} bytes of data and {index_size} bytes of index")
    record = _RECORD_BYTES if magic == _VIEW_MAGIC else 0
    return total, -(-total // leaf_size(total)) * _DIGEST_BYTES + index_size + record + _CANONICAL_TRAILER.size


def is_partial(file: RangeSource) -> bool:
    return _has_magic(file, _PARTIAL_TRAILER.size, _PARTIAL_MAGIC)


def read_partial(file: RangeSource, name: str) -> PartialContents:
    """Read everything but the data of a partial file. Every size is compared with the file before it is used."""
    size = file.size_bytes
    trailer = file.read_range(size - _PARTIAL_TRAILER.size, size)
    data, count, leaf_count, index_size, digest, form, _ = _PARTIAL_TRAILER.unpack(trailer)
    _check_format(form, name)
    if data > MAX_TENSOR_SPACE_BYTES or count > MAX_REPLICA_EXTENTS or index_size > MAX_TENSOR_INDEX_BYTES:
        raise CorruptError(f"{name} declares {data} bytes of data, {count} ranges and {index_size} bytes of index")
    table, digests = count * _RANGE.size, leaf_count * _DIGEST_BYTES
    if data + table + digests + index_size + _PARTIAL_TRAILER.size != size:
        raise CorruptError(f"{name} has {size} bytes, not the number that its trailer declares")
    body = bytes(file.read_range(data, size - _PARTIAL_TRAILER.size))
    _check_digest(body, digest, name)
    index = parse_index(body[table + digests :], f"the index of {name}")
    expected = -(-index.total_size // leaf_size(index.total_size))
    if leaf_count not in (0, expected):
        raise CorruptError(f"{name} has {leaf_count} leaf digests; its index needs {expected}")
    ranges = list(_RANGE.iter_unpack(body[:table]))
    are_apart = all(before[1] < after[0] for before, after in pairwise(ranges))
    if not are_apart or not all(0 <= start < end <= index.total_size for start, end in ranges):
        raise CorruptError(f"the ranges of {name} are not in order, or outside of its tensors")
    extents, length = _extents_of(ranges)
    if length != data:
        raise CorruptError(f"{name} has {data} bytes of data; its ranges need {length}")
    return PartialContents(index, _split_digests(body[table : table + digests]) or None, tuple(extents))


def write_partial(path: Path, replica: Replica, plan: ViewPlan, cost: ReadCost) -> None:
    """Fetch the bytes of a plan into a partial file: whole leaves where they are available, verified if possible.

    The file appears complete or not at all, and never replaces another.
    """
    replica.check_coverage(plan)
    ranges = _leaf_ranges(replica, plan)
    if len(ranges) > MAX_REPLICA_EXTENTS:
        raise LimitExceededError(f"the view has {len(ranges)} ranges; {MAX_REPLICA_EXTENTS} are allowed")
    extents, size = _extents_of(ranges)
    runs = tuple(Contiguous("", part.offset, part.start, part.end - part.start) for part in extents)
    with create_file(path, size) as new:
        packed = ViewPlan(TensorIndex(()), (), runs, (), size)
        task = replica.transfer_task(packed, cost, verify=_are_whole_leaves(replica, ranges))
        if size:
            mapped = mmap.mmap(new.file.fileno(), size)
            replica.engine.fill(task, HostTarget([(0, memoryview(mapped))]))
            mapped.flush()
        new.file.seek(size)
        new.file.write(_partial_tail(replica, ranges, size))
        finish_file(new)


def create_file(path: Path, size_bytes: int) -> AtomicFile:
    """Begin a new file with allocated blocks, under the temporary name `path.partial`."""
    temporary = path.with_name(path.name + ".partial")
    if path.exists():
        raise AlreadyExistsError(f"{path} already exists")
    try:
        new = AtomicFile(path, temporary=temporary)
    except FileExistsError as error:
        hint = "Remove it if no process is writing it."
        raise AlreadyExistsError(f"{temporary} already exists: another process writes {path}", hint=hint) from error
    except OSError as error:
        raise BadInputError(f"{temporary} cannot be created: {error.strerror}") from error
    try:
        preallocate(new.file.fileno(), size_bytes)
    except OSError as error:
        new.close()
        is_full = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
        raise StorageError(
            f"{path}: {size_bytes} bytes cannot be allocated: {error.strerror}",
            kind=ErrorKind.STORE_FULL if is_full else ErrorKind.STORAGE,
        ) from error
    return new


def finish_file(new: AtomicFile) -> None:
    """Give a new file its name. `AlreadyExistsError` if another file has it."""
    if not new.create():
        raise AlreadyExistsError(f"{new.path} already exists")


def _leaf_ranges(replica: Replica, plan: ViewPlan) -> list[ByteRange]:
    """Return the available bytes of all leaves that the plan touches."""
    size, total = leaf_size(replica.index.total_size), replica.index.total_size
    leaves: set[int] = set()
    for copy in map(copy_of, plan.data_runs):
        for leaf in range(copy.source // size, -(-(copy.source + copy.span) // size)):
            if leaf not in leaves and next(clip_copy(copy, leaf * size, (leaf + 1) * size), None) is not None:
                leaves.add(leaf)
    available = RangeSet(
        (start, end)
        for leaf in leaves
        for start, end, home in replica.extents.pieces(leaf * size, min(total, (leaf + 1) * size))
        if home is not None
    )
    return list(available)


def _are_whole_leaves(replica: Replica, ranges: Sequence[tuple[int, int]]) -> bool:
    size, total = leaf_size(replica.index.total_size), replica.index.total_size
    are_whole = all(start % size == 0 and (end % size == 0 or end == total) for start, end in ranges)
    return are_whole and replica.leaves is not None


def _extents_of(ranges: Sequence[tuple[int, int]]) -> tuple[list[Extent], int]:
    """Return the extent of each range in a partial file, at multiples of 8, and the size of the data."""
    extents, at = [], 0
    for start, end in ranges:
        extents.append(Extent(start, end, 0, at))
        at = align(at + end - start)
    return extents, at


def _partial_tail(replica: Replica, ranges: Sequence[tuple[int, int]], size: int) -> bytes:
    leaves = replica.leaves if replica.leaves is not None else ()
    body = b"".join(_RANGE.pack(*one) for one in ranges) + b"".join(leaves) + replica.index_bytes
    counts = (size, len(ranges), len(leaves), len(replica.index_bytes))
    return body + _PARTIAL_TRAILER.pack(*counts, hashlib.sha256(body).digest(), _FORMAT, _PARTIAL_MAGIC)


def _has_magic(file: RangeSource, trailer_bytes: int, magic: bytes) -> bool:
    size = file.size_bytes
    return size >= trailer_bytes and bytes(file.read_range(size - len(magic), size)) == magic


def _check_format(form: int, name: str) -> None:
    if form != _FORMAT:
        raise UnsupportedError(f"{name} has format {form}; this version reads format {_FORMAT}")


def _check_digest(body: bytes, digest: bytes, name: str) -> None:
    if hashlib.sha256(body).digest() != digest:
        raise CorruptError(f"the index of {name} does not match its hash")


def _split_digests(data: bytes) -> tuple[bytes, ...]:
    return tuple(data[at : at + _DIGEST_BYTES] for at in range(0, len(data), _DIGEST_BYTES))
