"""Identity: multihashes, artifact ids, TreeHash, view ids and related hashes.

Pure functions over bytes. Equal content has equal ids on every machine and in every implementation of the format.
Implements "Hashes" and "View identity" of docs/specs/tensors.md.
"""

from __future__ import annotations

import base64
import hashlib
import json
import struct
from collections.abc import Iterable, Sequence
from typing import Literal

from warpdata.formats.tensors.index import TensorIndex
from warpdata.formats.tensors.spec import Narrow, NormalView, TensorSelection, Transpose
from warpdata.primitives.parallel import CPU_POOL

__all__ = [
    "artifact_id",
    "leaf_hashes",
    "leaf_size",
    "logical_layout_hash",
    "multihash",
    "selection_hash",
    "tree_hash",
    "tree_root",
    "view_id",
    "view_subset_hash",
]

_SHA256_PREFIX = b"\x12\x20"
_LEAF_MIN_BYTES = 512 * 1024
_LEAF_MAX_BYTES = 4 * 1024**2
_LEAF_COUNT = 4096


def multihash(digest: bytes) -> str:
    """Return the text form of a SHA-256: multibase `b`, base32, multihash prefix."""
    return "b" + base64.b32encode(_SHA256_PREFIX + digest).decode().lower().rstrip("=")


def artifact_id(index_bytes: bytes, data_digest: bytes) -> str:
    """Return the id of an artifact; `data_digest` is the TreeHash of the canonical ByteSpace."""
    return f"mi2:{multihash(hashlib.sha256(index_bytes).digest())}:{multihash(data_digest)}"


def leaf_size(total_bytes: int) -> int:
    """Return the bytes of one TreeHash leaf. Larger spans have larger leaves."""
    size = _LEAF_MAX_BYTES
    while size > _LEAF_MIN_BYTES and -(-total_bytes // size) < _LEAF_COUNT:
        size //= 2
    return size


def leaf_hashes(data: memoryview | bytes) -> list[bytes]:
    """Return the leaf digests of a span in memory, hashed in parallel."""
    view = memoryview(data).cast("B")
    size = leaf_size(len(view))

    def hash_leaf(start: int) -> bytes:
        return hashlib.sha256(view[start : start + size]).digest()

    return CPU_POOL.map_all(hash_leaf, range(0, len(view), size))


def tree_root(leaves: Sequence[bytes]) -> bytes:
    """Return the root: neighbours are hashed in pairs, and an odd digest at the end moves up unchanged."""
    if not leaves:
        return bytes(32)
    level = list(leaves)
    while len(level) > 1:
        paired = [hashlib.sha256(level[i] + level[i + 1]).digest() for i in range(0, len(level) - 1, 2)]
        level = paired + level[len(paired) * 2 :]
    return level[0]


def tree_hash(data: memoryview | bytes) -> bytes:
    """Return the TreeHash of a span in memory."""
    return tree_root(leaf_hashes(data))


def view_id(view: NormalView, index: TensorIndex, index_multihash: str) -> str | None:
    """Return the id of a view; None for the identity, which has no id."""
    if not view.selections:
        return None
    plain = [(name, selection.v1_ops(index[name].shape)) for name, selection in view.selections]
    if all(ops is not None for _, ops in plain):
        encoded = struct.pack("<II", 1, len(plain)) + b"".join(_encode_v1(name, ops or ()) for name, ops in plain)
    else:
        encoded = struct.pack("<II", 2, len(plain)) + b"".join(
            _encode_v2(name, selection, index[name].shape) for name, selection in view.selections
        )
    return multihash(hashlib.sha256(encoded + index_multihash.encode("ascii")).digest())


def view_subset_hash(names: Iterable[str]) -> bytes:
    """Return the hash of a set of tensor names, independent of their order. Raw bytes, not a view id."""
    text = json.dumps(sorted(set(names)), separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode("ascii")).digest()


def selection_hash(view: str | None, subset: bytes | None) -> bytes:
    """Return the hash of a view (or the identity) of a subset of tensors (or all)."""
    return hashlib.sha256((view or "").encode() + (b"|all" if subset is None else subset) + b"|v1").digest()


def logical_layout_hash(index_bytes: bytes, kind: Literal["canonical", "view"]) -> bytes:
    """Return the hash of a layout: an index, of the artifact or of a view."""
    return hashlib.sha256(index_bytes + b"|" + kind.encode()).digest()


def _encode_name(name: str) -> bytes:
    data = name.encode()
    return struct.pack("<I", len(data)) + data


def _encode_v1(name: str, ops: Sequence[Narrow | Transpose]) -> bytes:
    out = _encode_name(name) + struct.pack("<I", len(ops))
    for op in ops:
        if isinstance(op, Narrow):
            out += b"\x00" + struct.pack("<iqQ", op.dim, op.start, op.length)
        else:
            out += b"\x01" + struct.pack("<ii", op.dim0, op.dim1)
    return out


def _encode_v2(name: str, selection: TensorSelection, shape: tuple[int, ...]) -> bytes:
    """Encode the bounds of axes that are cut, by axis, then the order of axes unless it is ascending."""
    ops = [
        b"\x02" + struct.pack("<iqQQ", dim, bound.start, bound.length, bound.step)
        for dim, bound in enumerate(selection.bounds)
        if not bound.is_full(shape[dim])
    ]
    if selection.permutes:
        rank = len(selection.order)
        ops.append(b"\x03" + struct.pack(f"<I{rank}i", rank, *selection.order))
    return _encode_name(name) + struct.pack("<I", len(ops)) + b"".join(ops)
