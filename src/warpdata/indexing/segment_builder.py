"""Segments of indexes, built from the files of a table.

A segment covers neighbouring files. Each one is a task that reads them row group by row group. The key of a task
follows from what the segment is derived from, so a build that was interrupted finds its finished segments again.
Implements "Writing" of docs/specs/indexes.md.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from warpdata.errors import CorruptError
from warpdata.formats.indexes import Source
from warpdata.formats.parquet import DecodeOptions, ShardFile, ShardOpener
from warpdata.indexing.segment_kinds import SEGMENT_KINDS, ColumnToIndex
from warpdata.jobs import Plan, Task, TaskContext, TaskResult, task_key
from warpdata.kinds import StagedBlob
from warpdata.kinds.indexes import BuiltSegment, source_names
from warpdata.kinds.tables import IndexedTable
from warpdata.limits import MAX_SEGMENT_ROWS, MIB
from warpdata.primitives.atomic_file import AtomicFile
from warpdata.primitives.parallel import CPU_POOL, IO_POOL
from warpdata.repository.manifest import Footer, Json, Shard
from warpdata.session import Session

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "SegmentWork",
    "SourceFile",
    "built_segment",
    "find_sources",
    "group_sources",
    "open_files",
    "plan_segments",
    "segment_task",
]

SEGMENT_ROWS = 2**22
SEGMENT_BYTES = 512 * MIB
_PARALLEL_SEGMENTS = 4


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A file that holds a column, under the name that the column has in it. `value_bytes` estimates decoded values."""

    shard: Shard
    column: str
    value_bytes: int

    @property
    def source(self) -> Source:
        return Source(self.shard.hash, self.column, self.row_count)

    @property
    def row_count(self) -> int:
        return self.shard.stored_count


def find_sources(table: IndexedTable, files: ShardOpener, column: str, shards: Iterable[Shard]) -> list[SourceFile]:
    """Return the file of each shard that holds the column, each file once. Reads footers."""

    def find(shard: Shard) -> SourceFile:
        stored = {file.hash: Shard(file.hash, file.byte_size, shard.stored_count, file.footer) for file in shard.files}
        stored[shard.hash] = Shard(shard.hash, shard.byte_size, shard.stored_count, shard.footer)
        for digest, name in source_names(shard, column, table.entry.changes):
            file = files.peek(stored[digest])
            if name in file.schema.names:
                return SourceFile(stored[digest], name, int(file.row_bytes([name]) * shard.stored_count))
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
class SegmentWork:
    """Builds segments of an index. Each task holds the values of one segment in memory.

    Finished segments are kept in `resume_dir`, and used again if the same work is repeated after an interruption.
    """

    column: ColumnToIndex
    open_files: Callable[[Session], ShardOpener]
    resume_dir: Path | None = None

    def open(self, session: Session) -> Callable[[Sequence[SourceFile], TaskContext], Json]:
        files = self.open_files(session)

        def run(group: Sequence[SourceFile], context: TaskContext) -> Json:
            path = context.new_directory() / "segment"
            self._write(files, group, path, context)
            footer, entries = SEGMENT_KINDS[self.column.kind].describe(path)
            context.add_file(path)
            return {"footer": msgspec.to_builtins(footer), "entries": entries}

        return run

    def _write(self, files: ShardOpener, group: Sequence[SourceFile], path: Path, context: TaskContext) -> None:
        kept = None if self.resume_dir is None else self.resume_dir / f"{segment_task(self, group).key}.segment"
        rows = sum(source.row_count for source in group)
        if kept is None or not kept.exists():
            write = SEGMENT_KINDS[self.column.kind].write
            write(self._chunks(files, group, context), rows, self.column, path)
            if kept is not None:
                _keep(path, kept)
        else:
            context.count(rows)
            shutil.copyfile(kept, path)

    def _chunks(self, files: ShardOpener, group: Sequence[SourceFile], context: TaskContext) -> Iterator[pa.Array]:
        """Yield the values of all rows of the sources. Row groups are fetched and decoded ahead."""

        def decode(part: tuple[ShardFile, str, int]) -> list[pa.Array]:
            file, column, number = part
            options = DecodeOptions(dictionaries=(column,) if self.column.kind == "bitmap" else ())
            chunks: list[pa.Array] = file.decode(number, [column], None, options).column(0).chunks
            return chunks

        opened = ((files.peek(source.shard), source.column) for source in group)
        parts = ((file, column, each.index) for file, column in opened for each in file.row_groups())
        for chunks in IO_POOL.map_ordered(decode, parts, limit=CPU_POOL.size, ahead=CPU_POOL.size):
            for chunk in chunks:
                yield chunk
                context.count(len(chunk))


def _keep(path: Path, kept: Path) -> None:
    kept.parent.mkdir(parents=True, exist_ok=True)
    with AtomicFile(kept) as new:
        shutil.copyfile(path, new.temporary)
        new.replace()


def open_files(session: Session) -> ShardOpener:
    """Open the files of a store, for the tasks of a job."""
    return ShardOpener(session.reader)


def plan_segments(work: SegmentWork, groups: Iterable[Sequence[SourceFile]]) -> Plan[Sequence[SourceFile]]:
    """Return a task for each group."""
    return Plan(work, [segment_task(work, group) for group in groups], limit=min(CPU_POOL.size, _PARALLEL_SEGMENTS))


def segment_task(work: SegmentWork, group: Sequence[SourceFile]) -> Task[Sequence[SourceFile]]:
    """Return the task for a segment. Its key follows from everything that the bytes of the segment depend on."""
    import pyarrow as pa

    listed: list[Json] = [[source.shard.hash, source.column, source.row_count] for source in group]
    column, parameters = work.column, dict(work.column.parameters)
    parts: list[Json] = [column.kind, str(column.type), str(pa.__version__), listed, parameters]
    key = task_key(*(parts if parameters else parts[:-1]))
    return Task(key, tuple(group), sum(source.row_count for source in group))


def built_segment(group: Sequence[SourceFile], result: TaskResult, staged: StagedBlob) -> BuiltSegment:
    """Return a segment as the index lists it. `staged` is its blob."""
    value: dict[str, Any] = msgspec.convert(result.value, dict[str, Any])
    footer = None if value["footer"] is None else msgspec.convert(value["footer"], Footer)
    return BuiltSegment(staged, tuple(source.source for source in group), footer, value["entries"])
