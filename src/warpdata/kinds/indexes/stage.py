"""Segments on their way into a version: an entry of a manifest, its directory, and the blobs to upload."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from warpdata.formats.indexes import Directory, Segment, Source, encode_directory
from warpdata.kinds import StageContext, StagedBlob, StagedEntry
from warpdata.kinds.indexes.entry import IndexEntry, Parameters
from warpdata.primitives.hashing import fingerprint_file
from warpdata.repository.manifest import Footer, Shard, ShardList

__all__ = ["BuiltSegment", "IndexInput", "KeptSegment", "stage_index"]


@dataclass(frozen=True, slots=True)
class BuiltSegment:
    """A new segment. A segment that is a Parquet file has a footer and entries."""

    staged: StagedBlob
    sources: tuple[Source, ...]
    footer: Footer | None = None
    entries: int | None = None


@dataclass(frozen=True, slots=True)
class KeptSegment:
    """A segment that is already stored, for a version that keeps it."""

    shard: Shard
    segment: Segment


@dataclass(frozen=True, slots=True)
class IndexInput:
    """The content of an index, as builders and merges make it."""

    kind: str
    table: str
    column: str
    segments: Sequence[BuiltSegment | KeptSegment]
    parameters: Parameters = field(default_factory=dict)


def stage_index(name: str, source: IndexInput, context: StageContext) -> StagedEntry:
    """Write the directory, and return the entry with its segments. `item_count` counts the segments."""
    kept = [_keep(segment) if isinstance(segment, BuiltSegment) else segment for segment in source.segments]
    path = context.directory / f"{name}.directory"
    path.write_bytes(encode_directory(Directory(tuple(each.segment for each in kept))))
    directory = fingerprint_file(path)
    new = [each for each in source.segments if isinstance(each, BuiltSegment)]
    blobs = [*(each.staged for each in new), StagedBlob(path, directory)]
    entry = IndexEntry(source.kind, source.table, source.column, ShardList(), directory.blob, source.parameters)
    return StagedEntry(entry.payload(), tuple(each.shard for each in kept), tuple(blobs), len(kept))


def _keep(built: BuiltSegment) -> KeptSegment:
    blob = built.staged.fingerprint.blob
    shard = Shard(blob.hash, blob.byte_size, footer=built.footer)
    return KeptSegment(shard, Segment(blob.hash, built.sources, built.entries))
