"""Index files: the directory that says what segments cover, and the segments of each kind. No versions.

docs/specs/indexes.md is the normative text.
"""

from warpdata.formats.indexes.directory import (
    INDEX_KINDS,
    Directory,
    Segment,
    Source,
    encode_directory,
    parse_directory,
)

__all__ = [
    "INDEX_KINDS",
    "Directory",
    "Segment",
    "Source",
    "encode_directory",
    "parse_directory",
]
