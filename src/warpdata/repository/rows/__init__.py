"""Stored rows: their sample ids, which are deleted, and selections of rows. Pure values and their bytes, no I/O.

Implements "Rows" of docs/specs/manifest.md.
"""

from warpdata.repository.rows.deletion import DeletionVector, decode_deletes, encode_deletes
from warpdata.repository.rows.ids import IdSequence, decode_ids, encode_ids
from warpdata.repository.rows.selection import RowSelection

__all__ = [
    "DeletionVector",
    "IdSequence",
    "RowSelection",
    "decode_deletes",
    "decode_ids",
    "encode_deletes",
    "encode_ids",
]
