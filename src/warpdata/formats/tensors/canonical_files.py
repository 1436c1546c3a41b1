"""Our own file: the canonical bytes first, then leaf hashes, index and a trailer.

Byte n of the file is byte n of the canonical ByteSpace. The tail lets a reader find the index with two reads
and check any part of the data without reading the rest. Implements "Canonical files" of docs/specs/tensors.md.
"""

from __future__ import annotations

import hashlib
import struct
from dataclasses import dataclass

from warpdata.errors import TensorsCorruptedError, UnsupportedFormatError
from warpdata.formats.tensors.hashing import leaf_size
from warpdata.formats.tensors.index import TensorIndex, align
from warpdata.formats.tensors.index_json import parse_index
from warpdata.formats.tensors.sources import SizedSource
from warpdata.limits import MAX_TENSOR_INDEX_BYTES, MAX_TENSOR_SPACE_BYTES

__all__ = ["MAGIC", "Tail", "encode_tail", "is_canonical", "parse_tail", "read_tail"]

MAGIC = b"WARPTENS"
_FORMAT = 1
_TRAILER = struct.Struct("<QQ32sQ8s")
_DIGEST_BYTES = 32


@dataclass(frozen=True, slots=True)
class Tail:
    """What stands behind the data."""

    index: TensorIndex
    index_bytes: bytes
    leaves: tuple[bytes, ...]


def encode_tail(total_size: int, index_bytes: bytes, leaves: tuple[bytes, ...]) -> bytes:
    """Everything behind the data and its padding."""
    body = b"".join(leaves) + index_bytes
    return body + _TRAILER.pack(total_size, len(index_bytes), hashlib.sha256(body).digest(), _FORMAT, MAGIC)


def is_canonical(file: SizedSource) -> bool:
    size = file.size_bytes
    return size >= _TRAILER.size and bytes(file.read_range(size - len(MAGIC), size)) == MAGIC


def read_tail(file: SizedSource) -> Tail:
    """Strictly: every number is compared with the file before it is believed."""
    what, size = file.name, file.size_bytes
    total, length = _promised(bytes(file.read_range(size - _TRAILER.size, size)), what)
    if align(total) + length != size:
        raise TensorsCorruptedError(f"{what} has {size} bytes, not those its trailer promises")
    return parse_tail(bytes(file.read_range(size - length, size)), what)


def parse_tail(tail: bytes, what: str) -> Tail:
    """As `encode_tail` made it; `what` it is called in messages."""
    if len(tail) < _TRAILER.size or tail[-len(MAGIC) :] != MAGIC:
        raise TensorsCorruptedError(f"{what} does not end like the index of tensors")
    trailer = tail[-_TRAILER.size :]
    total, length = _promised(trailer, what)
    if length != len(tail):
        raise TensorsCorruptedError(f"{what} has {len(tail)} bytes behind its data, and its trailer promises {length}")
    _, index_size, digest, _, _ = _TRAILER.unpack(trailer)
    body = tail[: -_TRAILER.size]
    if hashlib.sha256(body).digest() != digest:
        raise TensorsCorruptedError(f"the index of {what} is not the one that was written")
    leaf_bytes = len(body) - index_size
    index_bytes = body[leaf_bytes:]
    index = parse_index(index_bytes, f"the index of {what}")
    if index.total_size != total:
        raise TensorsCorruptedError(f"{what} has {total} bytes of data, and its index {index.total_size}")
    leaves = tuple(body[at : at + _DIGEST_BYTES] for at in range(0, leaf_bytes, _DIGEST_BYTES))
    return Tail(index, index_bytes, leaves)


def _promised(trailer: bytes, what: str) -> tuple[int, int]:
    """The total size, and how many bytes stand behind the data, by what a trailer says."""
    total, index_size, _, form, _ = _TRAILER.unpack(trailer)
    if form != _FORMAT:
        raise UnsupportedFormatError(f"{what} has the format {form}; this version reads {_FORMAT}")
    if total > MAX_TENSOR_SPACE_BYTES or index_size > MAX_TENSOR_INDEX_BYTES:
        raise TensorsCorruptedError(f"{what} promises {total} bytes of data and {index_size} of index")
    return total, -(-total // leaf_size(total)) * _DIGEST_BYTES + index_size + _TRAILER.size
