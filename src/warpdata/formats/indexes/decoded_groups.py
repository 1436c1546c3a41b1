"""Decoded row groups of segments, kept for the next look-up: one cache for all indexes of the process.

A segment is named by the hash of its bytes, so a row group that was decoded and verified once stays right. Bitmaps and
values are small beside the tables that they index. A copy that is damaged later has no effect while the row group is
kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from warpdata.formats.parquet import ShardFile
from warpdata.limits import MIB
from warpdata.primitives.byte_lru import ByteLRU

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["decode_group", "forget_groups"]

_MAX_BYTES = 64 * MIB

_groups: ByteLRU[tuple[str, int, tuple[str, ...]], pa.Table] = ByteLRU(_MAX_BYTES)


def decode_group(file: ShardFile, group: int, columns: Sequence[str]) -> pa.Table:
    """Return columns of a row group of a segment, decoded now or kept from an earlier look-up."""
    key = file.shard.hash, group, tuple(columns)
    return _groups.get_or_create(key, lambda: file.decode(group, columns), lambda rows: int(rows.nbytes))


def forget_groups() -> None:
    """Drop all row groups, so that the next look-up reads and verifies its segments."""
    _groups.clear()
