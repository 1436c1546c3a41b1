"""Index files: the directory that says what segments cover, and the segments of each kind. No versions.

docs/specs/indexes.md is the normative text.
"""

from warpdata.formats.indexes.bitmap import BitmapSegment, write_bitmap
from warpdata.formats.indexes.btree import BtreeSegment, write_btree
from warpdata.formats.indexes.decoded_groups import forget_groups
from warpdata.formats.indexes.directory import (
    INDEX_KINDS,
    Directory,
    Segment,
    Source,
    encode_directory,
    parse_directory,
)
from warpdata.formats.indexes.values import is_list, value_type_of

__all__ = [
    "INDEX_KINDS",
    "BitmapSegment",
    "BtreeSegment",
    "Directory",
    "Segment",
    "Source",
    "encode_directory",
    "forget_groups",
    "is_list",
    "parse_directory",
    "value_type_of",
    "write_bitmap",
    "write_btree",
]
