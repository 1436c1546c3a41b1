"""Indexes as a payload kind. An index that this release cannot read is listed, kept and never used."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any

from warpdata.errors import CorruptError, ErrorKind, NotFoundError, ObjectNotFoundError, UnsupportedError
from warpdata.kinds import ChooseSide, PayloadKind, StageContext, StagedEntry, VersionContext, pick_entry
from warpdata.kinds.indexes.entry import IndexEntry
from warpdata.kinds.indexes.opened_index import OpenedIndex
from warpdata.kinds.indexes.stage import IndexInput, KeptSegment, stage_index
from warpdata.primitives.hashing import Blob
from warpdata.repository.manifest import ManifestEntry, Payload, iter_shards

__all__ = ["INDEXES", "IndexInfo"]


@dataclass(frozen=True, slots=True)
class IndexInfo:
    """An index as the manifest describes it. `Dataset.indexes()` also knows the rows that it covers."""

    name: str
    kind: str
    table: str
    column: str
    segments: int
    size_bytes: int


class _IndexKind(PayloadKind[IndexEntry, OpenedIndex]):
    section = "indexes"
    noun = "index"
    plural = "indexes"
    item = "segment"
    count_field = "segments"
    is_derived = True
    columns = (
        ("kind", "kind"),
        ("table", "table"),
        ("column", "column"),
        (">segments", "segments"),
        (">size", "size_bytes"),
    )

    def not_found(self, message: str, hint: str | None) -> NotFoundError:
        return NotFoundError(message, hint=hint, kind=ErrorKind.INDEX_NOT_FOUND)

    def parse(self, name: str, entry: ManifestEntry) -> IndexEntry:
        assert isinstance(entry, Payload), name
        return IndexEntry.of(name, entry)

    def open(self, version: VersionContext, name: str | None = None) -> OpenedIndex:
        """Open an index without reading anything."""
        name, entry = pick_entry(self, version.manifest, name)
        return OpenedIndex(name, entry, version)

    def describe(self, name: str, entry: ManifestEntry) -> IndexInfo:
        """Describe any index, also one of a newer release."""
        assert isinstance(entry, Payload), name
        table, column = (str(entry.attributes.get(key, "")) for key in ("table", "column"))
        return IndexInfo(name, entry.kind, table, column, entry.shards.shard_count, entry.shards.data_bytes)

    def stage(self, name: str, source: Any, context: StageContext) -> StagedEntry:
        assert isinstance(source, IndexInput), name
        return stage_index(name, source, context)

    def merge_sides(
        self,
        name: str,
        sides: tuple[VersionContext, VersionContext, VersionContext],
        choose: ChooseSide,
        context: StageContext,
    ) -> StagedEntry | None:
        """Keep the segments of both sides. None if they index in different ways, or a directory cannot be read."""
        _, ours, theirs = (self.open(side, name) if name in side.manifest.indexes else None for side in sides)
        if ours is None or theirs is None or _identity(ours.entry) != _identity(theirs.entry):
            return None
        try:
            segments = {each.segment.hash: each for side in (ours, theirs) for each in _segments(side)}
        except (CorruptError, ObjectNotFoundError, UnsupportedError):
            return None
        entry = ours.entry
        merged = IndexInput(entry.kind, entry.table, entry.column, list(segments.values()), entry.parameters)
        return stage_index(name, merged, context)

    def locate_corruption(self, version: VersionContext, name: str, corrupt: Collection[Blob]) -> Iterator[str]:
        """Yield the column that is read without its index."""
        _, entry = pick_entry(self, version.manifest, name)
        damaged = [shard.hash for shard in iter_shards(entry.shards, version.load_page) if shard.blob in corrupt]
        if entry.index in corrupt:
            yield f"index {name!r}: its directory is damaged, so column {entry.column!r} is read without the index"
        elif damaged:
            count = f"{len(damaged)} of {entry.shards.shard_count} segments"
            yield f"index {name!r}: {count} are damaged, so their rows are read without the index"


INDEXES = _IndexKind()


def _identity(entry: IndexEntry) -> tuple[object, ...]:
    return entry.kind, entry.table, entry.column, dict(entry.parameters)


def _segments(index: OpenedIndex) -> Iterator[KeptSegment]:
    for shard, segment in zip(index.shards, index.directory.segments, strict=True):
        yield KeptSegment(shard, segment)
