"""Segments of indexes, built from the files of a table.

A segment covers neighbouring files. Each one is built by a thread, row group by row group, and written into a work
directory under a name that follows from what it was derived from. So a build that was interrupted finds its finished
segments again. Implements "Writing" of docs/specs/indexes.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from warpdata.errors import CorruptError
from warpdata.formats.indexes import Source
from warpdata.formats.parquet import DecodeOptions, ShardFile, ShardOpener
from warpdata.indexing.segment_kinds import SEGMENT_KINDS, ColumnToIndex
from warpdata.kinds.indexes import BuiltSegment, source_names
from warpdata.kinds.tables import IndexedTable
from warpdata.limits import MAX_SEGMENT_ROWS, MIB
from warpdata.primitives.atomic_file import AtomicFile
from warpdata.primitives.hashing import fingerprint_file, sha256_hex
from warpdata.primitives.parallel import CPU_POOL, IO_POOL
from warpdata.primitives.progress import ProgressCounter
from warpdata.repository.manifest import Json, Shard, canonical_json

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["SegmentBuilder", "SourceFile", "find_sources", "group_sources"]

SEGMENT_ROWS = 2**22
SEGMENT_BYTES = 512 * MIB
_PARALLEL_SEGMENTS = 4


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A file that holds a column, under the name that the column has in it. `value_bytes` estimates decoded values."""

    file: ShardFile
    column: str
    value_bytes: int

    @property
    def source(self) -> Source:
        return Source(self.file.shard.hash, self.column, self.row_count)

    @property
    def row_count(self) -> int:
        return self.file.shard.stored_count


def find_sources(table: IndexedTable, files: ShardOpener, column: str, shards: Iterable[Shard]) -> list[SourceFile]:
    """Return the file of each shard that holds the column, each file once. Reads footers."""

    def find(shard: Shard) -> SourceFile:
        stored = {file.hash: Shard(file.hash, file.byte_size, shard.stored_count, file.footer) for file in shard.files}
        stored[shard.hash] = Shard(shard.hash, shard.byte_size, shard.stored_count, shard.footer)
        for digest, name in source_names(shard, column, table.entry.changes):
            file = files.peek(stored[digest])
            if name in file.schema.names:
                return SourceFile(file, name, int(file.row_bytes([name]) * shard.stored_count))
        raise CorruptError(f"no file of shard {shard.hash} has the column {column!r}")

    found = IO_POOL.map_all(find, [shard for shard in shards if shard.external is None])
    return list({each.source.key: each for each in found}.values())


def group_sources(sources: Sequence[SourceFile]) -> Iterator[list[SourceFile]]:
    """Yield neighbouring sources that share a segment."""
    group: list[SourceFile] = []
    for source in sources:
        if source.row_count > MAX_SEGMENT_ROWS:
            continue  # stays uncovered
        rows = sum(each.row_count for each in group) + source.row_count
        size_bytes = sum(each.value_bytes for each in group) + source.value_bytes
        if group and (rows > SEGMENT_ROWS or size_bytes > SEGMENT_BYTES):
            yield group
            group = []
        group.append(source)
    if group:
        yield group


@dataclass(frozen=True, slots=True)
class SegmentBuilder:
    """Builds the segments of an index, into files of `work_dir`."""

    column: ColumnToIndex
    work_dir: Path

    def build(self, groups: Iterable[Sequence[SourceFile]], counter: ProgressCounter) -> list[BuiltSegment]:
        """Build a segment for each group, several at a time. Memory holds the values of those."""
        self.work_dir.mkdir(parents=True, exist_ok=True)
        limit = min(CPU_POOL.size, _PARALLEL_SEGMENTS)
        return list(CPU_POOL.map_ordered(partial(self._build, counter=counter), groups, limit=limit, ahead=limit))

    def _build(self, group: Sequence[SourceFile], counter: ProgressCounter) -> BuiltSegment:
        sources = tuple(each.source for each in group)
        path = self.work_dir / f"{self._derivation(sources)}.segment"
        if path.exists():
            counter.add_bytes(sum(source.row_count for source in sources))
        else:
            with AtomicFile(path) as new:
                rows = sum(source.row_count for source in sources)
                SEGMENT_KINDS[self.column.kind].write(self._chunks(group, counter), rows, self.column, new.temporary)
                new.replace()
        footer, entries = SEGMENT_KINDS[self.column.kind].describe(path)
        counter.finish_file()
        return BuiltSegment(path, fingerprint_file(path), sources, footer, entries)

    def _derivation(self, sources: Sequence[Source]) -> str:
        """Return a name that follows from everything that the bytes of the segment depend on."""
        import pyarrow as pa

        listed: list[Json] = [[source.hash, source.column, source.row_count] for source in sources]
        column, parameters = self.column, dict(self.column.parameters)
        parts: list[Json] = [column.kind, str(column.type), str(pa.__version__), listed, parameters]
        return sha256_hex(canonical_json(parts if parameters else parts[:-1]))

    def _chunks(self, group: Sequence[SourceFile], counter: ProgressCounter) -> Iterator[pa.Array]:
        """Yield the values of all rows of the sources. Row groups are fetched and decoded ahead."""

        def decode(part: tuple[SourceFile, int]) -> list[pa.Array]:
            source, number = part
            options = DecodeOptions(dictionaries=(source.column,) if self.column.kind == "bitmap" else ())
            chunks: list[pa.Array] = source.file.decode(number, [source.column], None, options).column(0).chunks
            return chunks

        parts = ((source, each.index) for source in group for each in source.file.row_groups())
        for chunks in IO_POOL.map_ordered(decode, parts, limit=CPU_POOL.size, ahead=CPU_POOL.size):
            for chunk in chunks:
                yield chunk
                counter.add_bytes(len(chunk))
