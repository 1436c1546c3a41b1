"""Artifacts: raw files in shards, found by a member index, read by range, handed out as typed references.

Handed manifest entries and a `Reader`; knows nothing of catalogs or tables. docs/specs/artifacts.md is
the normative text.
"""

from warpdata.artifacts.artifact import Artifact, Coming, Extract, Origin, Reopen
from warpdata.artifacts.entry import KINDS, ArtifactEntry
from warpdata.artifacts.index import MemberIndex
from warpdata.artifacts.index_writing import PackedMember, WrittenIndex, write_index
from warpdata.artifacts.member import ByteLocation, Chunk, Locator, Member, locator_of
from warpdata.artifacts.names import check_member_path
from warpdata.artifacts.packing import (
    COMPRESSIONS,
    PackedShard,
    ShardRecipe,
    cut_by_content,
    cut_shards,
    pack_file,
    pack_shard,
)
from warpdata.artifacts.reading import read_ahead, read_many
from warpdata.artifacts.refs import REF_CLASSES, AudioRef, FileRef, ImageRef, VideoRef
from warpdata.artifacts.sources import ArtifactInput, MemberSource, list_sources
from warpdata.artifacts.tar_scanning import scan_tar

__all__ = [
    "COMPRESSIONS",
    "KINDS",
    "REF_CLASSES",
    "Artifact",
    "ArtifactEntry",
    "ArtifactInput",
    "AudioRef",
    "ByteLocation",
    "Chunk",
    "Coming",
    "Extract",
    "FileRef",
    "ImageRef",
    "Locator",
    "Member",
    "MemberIndex",
    "MemberSource",
    "Origin",
    "PackedMember",
    "PackedShard",
    "Reopen",
    "ShardRecipe",
    "VideoRef",
    "WrittenIndex",
    "check_member_path",
    "cut_by_content",
    "cut_shards",
    "list_sources",
    "locator_of",
    "pack_file",
    "pack_shard",
    "read_ahead",
    "read_many",
    "scan_tar",
    "write_index",
]
