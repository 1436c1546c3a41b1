"""A second opinion on tensor identities and views, written from docs/specs/tensors.md and nothing else.

Plain `hashlib`, `struct` and `json`, one element at a time, with no import from the project: where it and the
project disagree, one of them has misread the specification. It trusts that its input is well formed.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import struct
from collections.abc import Sequence
from typing import Any, TypeAlias

__all__ = [
    "Bounds",
    "artifact_id",
    "index_bytes",
    "multihash",
    "selection_hash",
    "subset_hash",
    "tree_hash",
    "view_bytes",
    "view_id",
]

Bounds: TypeAlias = list[tuple[int, int, int]]
"""(start, length, step) for every axis."""

ITEM_BYTES = {
    "bool": 1, "uint8": 1, "int8": 1, "uint16": 2, "int16": 2, "uint32": 4, "int32": 4, "uint64": 8, "int64": 8,
    "float16": 2, "bfloat16": 2, "float32": 4, "float64": 8, "complex64": 8, "complex128": 16,
    "float8_e4m3fn": 1, "float8_e5m2": 1, "float8_e4m3fnuz": 1, "float8_e5m2fnuz": 1, "float8_e8m0fnu": 1,
}  # fmt: skip


def multihash(digest: bytes) -> str:
    """Base32 by hand: five bits at a time, from the left."""
    data = bytes([18, 32]) + digest
    bits = "".join(f"{byte:08b}" for byte in data)
    bits += "0" * (-len(bits) % 5)
    return "b" + "".join("abcdefghijklmnopqrstuvwxyz234567"[int(bits[i : i + 5], 2)] for i in range(0, len(bits), 5))


def index_bytes(rows: dict[str, list[Any]]) -> bytes:
    parts = [f"{json.dumps(name, ensure_ascii=False)}:{json.dumps(rows[name], separators=(',', ':'))}" for name in rows]
    return ("{" + ",".join(sorted(parts, key=lambda part: json.loads("{" + part + "}").popitem()[0])) + "}").encode()


def tree_hash(data: bytes) -> bytes:
    chunk = 4 * 1024 * 1024
    while chunk > 512 * 1024 and (len(data) + chunk - 1) // chunk < 4096:
        chunk //= 2
    level = [hashlib.sha256(data[at : at + chunk]).digest() for at in range(0, len(data), chunk)]
    if not level:
        return b"\0" * 32
    while len(level) > 1:
        above = []
        for at in range(0, len(level), 2):
            pair = level[at : at + 2]
            above.append(hashlib.sha256(pair[0] + pair[1]).digest() if len(pair) == 2 else pair[0])
        level = above
    return level[0]


def artifact_id(index: bytes, data: bytes) -> str:
    return f"mi2:{multihash(hashlib.sha256(index).digest())}:{multihash(tree_hash(data))}"


def subset_hash(names: Sequence[str]) -> bytes:
    return hashlib.sha256(json.dumps(sorted(set(names)), separators=(",", ":")).encode()).digest()


def selection_hash(view: str, subset: bytes | None) -> bytes:
    return hashlib.sha256(view.encode() + (subset if subset is not None else b"|all") + b"|v1").digest()


def view_id(rows: dict[str, list[Any]], chosen: dict[str, tuple[Bounds, list[int]]]) -> str | None:
    """`chosen`: bounds and order of axes by name. Tensors that stay as they are may be in it."""
    tensors = []
    extended = False
    for name in sorted(chosen):
        bounds, order = chosen[name]
        cuts = [(dim, *bound) for dim, bound in enumerate(bounds) if bound != (0, rows[name][2][dim], 1)]
        moved = order != sorted(order)
        if cuts or moved:
            tensors.append((name, cuts, order if moved else None))
            extended = extended or len(cuts) > 1 or bool(cuts and moved) or any(cut[3] != 1 for cut in cuts)
    if not tensors:
        return None
    out = struct.pack("<I", 2 if extended else 1) + struct.pack("<I", len(tensors))
    for name, cuts, moves in tensors:
        ops = _extended_ops(cuts, moves) if extended else _first_ops(cuts, moves)
        out += struct.pack("<I", len(name.encode())) + name.encode() + struct.pack("<I", len(ops)) + b"".join(ops)
    return multihash(hashlib.sha256(out + multihash(hashlib.sha256(index_bytes(rows)).digest()).encode()).digest())


def _first_ops(cuts: list[Any], order: list[int] | None) -> list[bytes]:
    if cuts:
        dim, start, length, _ = cuts[0]
        return [b"\0" + struct.pack("<i", dim) + struct.pack("<q", start) + struct.pack("<Q", length)]
    have, ops = sorted(order or []), []
    for place in range(len(have)):
        other = have.index((order or [])[place])
        if other != place:
            have[place], have[other] = have[other], have[place]
            ops.append(b"\1" + struct.pack("<i", place) + struct.pack("<i", other))
    return ops


def _extended_ops(cuts: list[Any], order: list[int] | None) -> list[bytes]:
    ops = [
        b"\2" + struct.pack("<i", dim) + struct.pack("<q", start) + struct.pack("<Q", length) + struct.pack("<Q", step)
        for dim, start, length, step in cuts
    ]
    if order is not None:
        ops.append(b"\3" + struct.pack("<I", len(order)) + b"".join(struct.pack("<i", dim) for dim in order))
    return ops


def view_bytes(rows: dict[str, list[Any]], data: bytes, chosen: dict[str, tuple[Bounds, list[int]]]) -> bytes:
    """The view's ByteSpace, all tensors in name order, element by element."""
    if view_id(rows, chosen) is None:
        return data
    out = b""
    for name in sorted(rows):
        out += b"\0" * (-len(out) % 8)
        offset, size, shape, stride, kind, storage_offset = rows[name]
        bounds, order = chosen.get(name, ([(0, count, 1) for count in shape], list(range(len(shape)))))
        if bounds == [(0, count, 1) for count in shape] and order == sorted(order):
            out += data[offset : offset + size]
            continue
        item = ITEM_BYTES[kind.removeprefix("torch.")]
        for place in itertools.product(*(range(bounds[dim][1]) for dim in order)):
            element = storage_offset
            for position, dim in zip(place, order, strict=True):
                start, _, step = bounds[dim]
                element += (start + position * step) * stride[dim]
            out += data[offset + element * item : offset + (element + 1) * item]
    return out
