"""Decoded parts of segments, kept for the next look-up: row groups, and the rows of single values.

A segment is named by the hash of its bytes, so a row group that was decoded and verified once stays right. Bitmaps and
values are small beside the tables that they index. A copy that is damaged later has no effect while the row group is
kept.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from warpdata.formats.parquet import ShardFile
from warpdata.limits import MIB
from warpdata.primitives.bitmaps import bitmap_bytes
from warpdata.primitives.byte_lru import ByteLRU
from warpdata.query import Leaf

if TYPE_CHECKING:
    import pyarrow as pa
    from pyroaring import BitMap

__all__ = ["decode_group", "find_rows", "forget_groups"]

_MAX_BYTES = 64 * MIB
_BITMAP_BYTES = 500
"""Memory of a bitmap beside its containers, with its leaf."""

_groups: ByteLRU[tuple[str, int, tuple[str, ...]], pa.Table] = ByteLRU(_MAX_BYTES)
_rows: ByteLRU[tuple[str, Leaf], BitMap] = ByteLRU(_MAX_BYTES)


def decode_group(file: ShardFile, group: int, columns: Sequence[str]) -> pa.Table:
    """Return columns of a row group of a segment, decoded now or kept from an earlier look-up."""
    key = file.shard.hash, group, tuple(columns)
    return _groups.get_or_create(key, lambda: file.decode(group, columns), lambda rows: int(rows.nbytes))


def find_rows(file: ShardFile, leaf: Leaf, read: Callable[[], BitMap]) -> BitMap:
    """Return the rows of a segment for a leaf, from an earlier look-up or by `read`. They must not change."""
    return _rows.get_or_create((file.shard.hash, leaf), read, lambda rows: _BITMAP_BYTES + bitmap_bytes(rows))


def forget_groups() -> None:
    """Drop all of them, so that the next look-up reads and verifies its segments."""
    _groups.clear()
    _rows.clear()
