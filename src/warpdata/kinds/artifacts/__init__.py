"""Artifacts: raw files in shards, found by a member index, read by range, exposed as typed references.

docs/specs/artifacts.md is the normative text.
"""

from warpdata.kinds.artifacts.artifact import Artifact, ArtifactBackend, Extract, Reopen
from warpdata.kinds.artifacts.entry import ArtifactEntry
from warpdata.kinds.artifacts.index import INDEX_WHOLE_BYTES, MemberIndex
from warpdata.kinds.artifacts.index_pages import PackedMember, WrittenIndex, write_index
from warpdata.kinds.artifacts.kind import ARTIFACTS, ArtifactAddress, ArtifactInfo
from warpdata.kinds.artifacts.member import ByteLocation, Chunk, Locator, Member, check_member_path, locator_of
from warpdata.kinds.artifacts.member_fetch import FutureBytes
from warpdata.kinds.artifacts.refs import (
    REF_CLASSES,
    AudioRef,
    FileRef,
    ImageRef,
    VideoRef,
    read_ahead,
    read_many,
    resolve_resize,
)
from warpdata.kinds.artifacts.source_files import FileRange, FilesInput, MemberSource, list_sources
from warpdata.kinds.artifacts.stage import ArtifactInput, ArtifactSpec, StagedArtifact, stage_stored
from warpdata.kinds.artifacts.tar_pack import (
    PackedShard,
    ShardSpec,
    cut_by_content,
    cut_shards,
    pack_file,
    pack_shard,
)
from warpdata.kinds.artifacts.tar_scan import TarEntry, list_tar, scan_tar

__all__ = [
    "ARTIFACTS",
    "INDEX_WHOLE_BYTES",
    "REF_CLASSES",
    "Artifact",
    "ArtifactAddress",
    "ArtifactBackend",
    "ArtifactEntry",
    "ArtifactInfo",
    "ArtifactInput",
    "ArtifactSpec",
    "AudioRef",
    "ByteLocation",
    "Chunk",
    "Extract",
    "FileRange",
    "FileRef",
    "FilesInput",
    "FutureBytes",
    "ImageRef",
    "Locator",
    "Member",
    "MemberIndex",
    "MemberSource",
    "PackedMember",
    "PackedShard",
    "Reopen",
    "ShardSpec",
    "StagedArtifact",
    "TarEntry",
    "VideoRef",
    "WrittenIndex",
    "check_member_path",
    "cut_by_content",
    "cut_shards",
    "list_sources",
    "list_tar",
    "locator_of",
    "pack_file",
    "pack_shard",
    "read_ahead",
    "read_many",
    "resolve_resize",
    "scan_tar",
    "stage_stored",
    "write_index",
]
