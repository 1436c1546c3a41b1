"""Shards of an artifact, packed by the workers of a job: each task reads its files once, and stores the shard.

Workers find the files under the same paths as the process that publishes, such as on a shared file system. The shards
are those that a publish without a job would pack.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from warpdata.errors import InvalidSourceError
from warpdata.jobs import Job, Plan, Task, TaskContext, TaskResult, group_by_bytes, stored_copy, task_key
from warpdata.kinds import StagedBlob
from warpdata.kinds.artifacts.index_pages import PackedMember
from warpdata.kinds.artifacts.member import Chunk, Member
from warpdata.kinds.artifacts.source_files import FileRange, MemberSource
from warpdata.kinds.artifacts.tar_pack import ShardSpec
from warpdata.limits import MIB
from warpdata.primitives.hashing import Fingerprint, sha256_hex
from warpdata.primitives.progress import ProgressCounter
from warpdata.repository.manifest import Json
from warpdata.session import Session

__all__ = ["pack_by_job"]

_TASK_BYTES = 32 * MIB
_TASK_SHARDS = 256
"""Shards of a task. A file that is a shard of its own may be small."""


class _MemberRow(msgspec.Struct, frozen=True, array_like=True):
    """A packed member in the result of a task. The checksums are hex, because JSON numbers have 53 bits."""

    offset: int
    stored_bytes: int
    xxh3: str
    chunks: tuple[tuple[int, str], ...] = ()


@dataclass(frozen=True, slots=True)
class _PackWork:
    """Packs and stores shards. The value has the members of each."""

    def open(self, session: Session) -> Callable[[Sequence[ShardSpec], TaskContext], Json]:
        def run(shards: Sequence[ShardSpec], context: TaskContext) -> Json:
            directory, members = context.new_directory(), []
            for shard in shards:
                path = directory / f"{shard.number}.shard"
                packed = shard.pack(path, context.count)
                context.add_file(path, packed.fingerprint)
                members.append([msgspec.to_builtins(_row(each)) for each in packed.members])
            return members

        return run


def pack_by_job(
    shards: Sequence[ShardSpec], job: Job, counter: ProgressCounter, label: Callable[[ShardSpec], Path]
) -> list[tuple[StagedBlob, tuple[PackedMember, ...]]]:
    """Return each shard as a stored blob, with its members. `label` names a shard in messages."""
    groups = group_by_bytes(shards, lambda shard: shard.size_bytes, max_bytes=_TASK_BYTES, max_items=_TASK_SHARDS)
    tasks = [_task(group) for group in groups]
    results = job.run(Plan(_PackWork(), tasks), counter)
    out = []
    for task, result in zip(tasks, results, strict=True):
        for shard, made, members in zip(task.item, result.blobs, _members(task, result), strict=True):
            content = stored_copy(job.session, made.hash, made.byte_size, made.generation)
            out.append((StagedBlob(label(shard), Fingerprint(made.blob, ""), content), members))
    return out


def _task(group: tuple[ShardSpec, ...]) -> Task[tuple[ShardSpec, ...]]:
    """Return the task of some shards. Its key changes when a file does, as far as the file system shows it."""
    listed: list[Json] = [
        [shard.number, shard.compression, shard.is_archive, [_identity(source) for source in shard.sources]]
        for shard in group
    ]
    return Task(task_key("pack", listed), group, sum(shard.size_bytes for shard in group))


def _identity(source: MemberSource) -> Json:
    if isinstance(source.content, bytes):
        return [source.path, sha256_hex(source.content)]
    content = source.content
    path, start = (content.path, content.offset) if isinstance(content, FileRange) else (content, 0)
    try:
        status = path.stat()
    except OSError as error:
        raise InvalidSourceError(f"{path} cannot be read: {error.strerror or error}") from error
    # Text, because times in nanoseconds have more than 53 bits.
    return [source.path, str(path), source.size_bytes, start, str(status.st_mtime_ns), str(status.st_ctime_ns)]


def _row(packed: PackedMember) -> _MemberRow:
    member = packed.member
    chunks = tuple((chunk.stored_bytes, f"{chunk.xxh3:016x}") for chunk in packed.chunks)
    return _MemberRow(member.offset, member.stored_bytes, f"{member.xxh3:016x}", chunks)


def _members(task: Task[tuple[ShardSpec, ...]], result: TaskResult) -> Iterator[tuple[PackedMember, ...]]:
    rows = msgspec.convert(result.value, list[list[_MemberRow]])
    for shard, listed in zip(task.item, rows, strict=True):
        yield tuple(
            PackedMember(
                Member(source.path, shard.number, row.offset, row.stored_bytes, source.size_bytes, int(row.xxh3, 16)),
                tuple(Chunk(size, int(xxh3, 16)) for size, xxh3 in row.chunks),
                source.where,
            )
            for source, row in zip(shard.sources, listed, strict=True)
        )
