"""An index of one version, opened: its directory is read, verified and kept; segments are read when needed."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from warpdata.errors import CorruptError, WarpError
from warpdata.formats.indexes import Directory, parse_directory
from warpdata.kinds import VersionContext
from warpdata.kinds.indexes.entry import IndexEntry
from warpdata.limits import MAX_INDEX_DIRECTORY_BYTES
from warpdata.primitives.cached_property import cached_property
from warpdata.primitives.hashing import blob_key, sha256_hex
from warpdata.primitives.parallel import IO_POOL
from warpdata.repository.manifest import Shard, iter_shards
from warpdata.storage import ByteRange, Reader, read_verified

__all__ = ["OpenedIndex", "SourcePlace"]


@dataclass(frozen=True, slots=True)
class SourcePlace:
    """The segment that covers a source, the row at which the source begins, and its rows."""

    segment: int
    start: int
    row_count: int


@dataclass(frozen=True)
class OpenedIndex:
    """One index. Opening reads nothing."""

    name: str
    entry: IndexEntry
    version: VersionContext

    @property
    def reader(self) -> Reader:
        return self.version.session.reader

    @cached_property
    def shards(self) -> tuple[Shard, ...]:
        """The blobs of the segments, in order."""
        return tuple(iter_shards(self.entry.shards, self.version.load_page))

    def load(self, open_segment: Callable[[Shard], object]) -> None:
        """Read the directory, and what opening the segments reads, all at once. A damaged segment is found later."""
        reads_nothing = all(self.reader.local_path(blob_key(shard.hash)) is not None for shard in self.shards)

        def open_ahead(shard: Shard) -> None:
            with suppress(WarpError):
                open_segment(shard)

        ahead = () if reads_nothing else (partial(open_ahead, shard) for shard in self.shards if shard.footer)
        IO_POOL.run_all([lambda: self.directory, *ahead])

    @cached_property
    def directory(self) -> Directory:
        """The sources of each segment, parallel to `shards`. Reads one blob."""
        blob = self.entry.index
        if blob.byte_size > MAX_INDEX_DIRECTORY_BYTES:
            raise CorruptError(f"the directory of index {self.name!r} has {blob.byte_size:,} bytes")

        def check(data: memoryview) -> Directory:
            if sha256_hex(data) != blob.hash:
                raise CorruptError(
                    f"the directory of index {self.name!r} does not match its hash (blob {blob.hash})",
                    hint="Rebuild the index, or read without it.",
                )
            return parse_directory(bytes(data), [shard.hash for shard in self.shards], self.name)

        self.reader.expect_size(blob_key(blob.hash), blob.byte_size)
        return read_verified(self.reader, blob_key(blob.hash), ByteRange(0, blob.byte_size), check)

    @cached_property
    def places(self) -> dict[tuple[str, str], SourcePlace]:
        """The place of each source, by the hash of its file and the name of the column in it. The first one counts."""
        out: dict[tuple[str, str], SourcePlace] = {}
        for number, segment in enumerate(self.directory.segments):
            for source, start in segment.places():
                out.setdefault(source.key, SourcePlace(number, start, source.row_count))
        return out
