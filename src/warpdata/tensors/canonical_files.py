"""Our own file: the canonical bytes first, then leaf hashes, index and a trailer.

Byte n of the file is byte n of the canonical ByteSpace. The tail lets a reader find the index with two reads
and check any part of the data without reading the rest. Implements "Canonical files" of docs/specs/tensors.md.
"""

from __future__ import annotations

import hashlib
import struct
from dataclasses import dataclass

from warpdata.errors import TensorsCorruptedError, UnsupportedFormatError
from warpdata.limits import MAX_TENSOR_INDEX_BYTES, MAX_TENSOR_SPACE_BYTES
from warpdata.tensors.identity import leaf_size
from warpdata.tensors.index import TensorIndex, align
from warpdata.tensors.index_json import parse_index
from warpdata.tensors.sources import SizedSource

__all__ = ["MAGIC", "Tail", "encode_tail", "is_canonical", "read_tail"]

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
    """Everything from the end of the data on."""
    body = b"".join(leaves) + index_bytes
    trailer = _TRAILER.pack(total_size, len(index_bytes), hashlib.sha256(body).digest(), _FORMAT, MAGIC)
    return bytes(align(total_size) - total_size) + body + trailer


def is_canonical(file: SizedSource) -> bool:
    size = file.size_bytes
    return size >= _TRAILER.size and bytes(file.read_range(size - len(MAGIC), size)) == MAGIC


def read_tail(file: SizedSource) -> Tail:
    """Strictly: every number is compared with the file before it is believed."""
    what, size = file.name, file.size_bytes
    trailer = file.read_range(size - _TRAILER.size, size)
    total, index_size, digest, form, _ = _TRAILER.unpack(trailer)
    if form != _FORMAT:
        raise UnsupportedFormatError(f"{what} has the format {form}; this version reads {_FORMAT}")
    if total > MAX_TENSOR_SPACE_BYTES or index_size > MAX_TENSOR_INDEX_BYTES:
        raise TensorsCorruptedError(f"{what} promises {total} bytes of data and {index_size} of index")
    leaf_bytes = -(-total // leaf_size(total)) * _DIGEST_BYTES
    start = align(total)
    if start + leaf_bytes + index_size + _TRAILER.size != size:
        raise TensorsCorruptedError(f"{what} has {size} bytes, not those its trailer promises")
    body = bytes(file.read_range(start, size - _TRAILER.size))
    if hashlib.sha256(body).digest() != digest:
        raise TensorsCorruptedError(f"the index of {what} is not the one that was written")
    index_bytes = body[leaf_bytes:]
    index = parse_index(index_bytes, f"the index of {what}")
    if index.total_size != total:
        raise TensorsCorruptedError(f"{what} has {total} bytes of data, and its index {index.total_size}")
    leaves = tuple(body[at : at + _DIGEST_BYTES] for at in range(0, leaf_bytes, _DIGEST_BYTES))
    return Tail(index, index_bytes, leaves)
