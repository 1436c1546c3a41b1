"""Verification of a published version: every blob is read and hashed again.

On request, missing and corrupt blobs are restored, from the cache of this machine or from another store.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from warpdata.datasets import Dataset, open_dataset
from warpdata.datasets import dataset as open_by_address
from warpdata.errors import BadInputError, CorruptError, NotCachedError, NotFoundError, WarpError
from warpdata.jobs import (
    EngineChoice,
    JobOptions,
    Plan,
    Task,
    TaskContext,
    group_by_bytes,
    open_job,
    run_here,
    task_key,
)
from warpdata.kinds import VersionContext, entries_by_kind
from warpdata.limits import MIB
from warpdata.primitives.arguments import check_arguments
from warpdata.primitives.hashing import Blob, Fingerprint, blob_key, fingerprint_file, sha256_hex
from warpdata.primitives.parallel import IO_POOL
from warpdata.primitives.progress import Progress, ProgressCounter, silent
from warpdata.repository.catalog import Address, VersionRef, read_collection_record, retry_unknown
from warpdata.repository.gc import list_blob_keys
from warpdata.repository.manifest import Json, Shard, TableEntry, iter_shards
from warpdata.session import Session, connect, open_cache, open_metadata_files
from warpdata.settings import Settings
from warpdata.storage import BlobCopy, GenerationReader, open_external, verify_blob
from warpdata.storage.cache import StagingDirectory

__all__ = ["Verification", "not_purged", "restore_blobs", "verify"]

_TASK_BYTES = 128 * MIB
_TASK_BLOBS = 256


@dataclass(frozen=True, slots=True)
class Verification:
    """The blobs that were read. `problems` names every missing or corrupt blob, and is empty for a valid version.

    `repaired` has the digests of blobs that were missing or corrupt and are valid now.
    """

    blobs: int
    size_bytes: int
    problems: tuple[str, ...]
    repaired: tuple[str, ...] = ()


@check_arguments
def verify(
    target: str | Dataset,
    *,
    store: str | None = None,
    repair: bool = False,
    source: str | Session | None = None,
    progress: Progress = silent,
    engine: EngineChoice = None,
    job: str | None = None,
) -> Verification:
    """Read and hash every blob of a dataset, given as an object or an address.

    Problems are reported and not raised, so that one call finds all of them. Memory does not grow with blob size.
    Mode `local` verifies the copies on this machine, and raises `NotCachedError` for a blob without one.
    `repair` replaces missing and corrupt blobs of which the cache of this machine has a valid copy, or another store,
    `source`, into which the dataset was copied.

    With an `engine` ("processes", "ray" or "ray://HOST:PORT"), workers read the blobs. A verification with a `job`, a
    name of your choice, goes on after an interruption, and does not read again what it has read.
    """
    if source is not None and not repair:
        raise BadInputError("source= is used only to repair", hint="Pass repair=True too.")
    dataset = open_by_address(target, store=store) if isinstance(target, str) else target
    generations = dataset.manifest.generations
    mirror = source if isinstance(source, Session) or source is None else connect(source, dataset.session.settings)
    try:
        blobs = sorted(set(_list_blobs(dataset, mirror)))
    except WarpError as error:
        return Verification(0, 0, (f"the shard list cannot be read: {error.message}",))
    findings = _check_blobs(dataset, blobs, JobOptions(engine, job), progress)
    external = [shard for table in dataset.manifest.tables.values() for shard in _external_shards(dataset, table)]
    outside = [problem for shard in external if (problem := _check_external(shard, dataset.session.settings))]
    corrupt = {blob: finding for blob, finding in findings.items() if finding}
    lost = not_purged(dataset, corrupt) if repair else []
    repaired = restore_blobs(dataset.session, lost, generations, mirror)
    for blob in repaired:
        del corrupt[blob]
    problems = (*corrupt.values(), *_corrupt_parts(dataset, corrupt.keys()), *outside)
    digests = tuple(blob.hash for blob in repaired)
    size_bytes = sum(blob.byte_size for blob in blobs) + sum(shard.byte_size for shard in external)
    return Verification(len(blobs) + len(external), size_bytes, problems, digests)


@dataclass(frozen=True, slots=True)
class _VerifyWork:
    """Reads and hashes blobs. The value has a message for each, or None for a valid one."""

    generations: Mapping[str, str]

    def open(self, session: Session) -> Callable[[Sequence[Blob], TaskContext], Json]:
        reader = GenerationReader(session.writer, self.generations)  # not `session.reader`, which may be a cache

        def check(blob: Blob, context: TaskContext) -> str | None:
            finding = verify_blob(reader, blob, context.count)
            if isinstance(finding, NotCachedError):
                raise finding
            return None if finding is None else finding.message

        def run(blobs: Sequence[Blob], context: TaskContext) -> Json:
            return IO_POOL.map_all(lambda blob: check(blob, context), blobs)

        return run


def _check_blobs(
    dataset: Dataset, blobs: Sequence[Blob], options: JobOptions, progress: Progress
) -> dict[Blob, str | None]:
    """Return the finding of each blob; None for a valid one."""
    session, work = dataset.session, _VerifyWork(dataset.manifest.generations)
    most = 1 if options.engine is None else _TASK_BLOBS
    groups = list(group_by_bytes(blobs, lambda blob: blob.byte_size, max_bytes=_TASK_BYTES, max_items=most))
    tasks = [_task(group) for group in groups]
    counter = ProgressCounter(progress, "verify", sum(task.size for task in tasks), len(tasks))
    with ExitStack() as stack:
        job = open_job(session, options, dataset.id, "verify", stack, records=False)
        results = (
            run_here(Plan(work, tasks), session, None, counter) if job is None else job.run(Plan(work, tasks), counter)
        )
        if job is not None:
            job.finish()
    listed = (msgspec.convert(result.value, list[str | None]) for result in results)
    return {
        blob: each for group, found in zip(groups, listed, strict=True) for blob, each in zip(group, found, strict=True)
    }


def _task(group: tuple[Blob, ...]) -> Task[tuple[Blob, ...]]:
    key = task_key("verify", [[blob.hash, blob.byte_size] for blob in group])
    return Task(key, group, sum(blob.byte_size for blob in group))


def not_purged(dataset: Dataset, blobs: Collection[Blob]) -> list[Blob]:
    """Return the blobs that no purge of a collection has erased: those do not come back."""
    reader = dataset.session.writer
    return [blob for blob in blobs if read_collection_record(reader, dataset.id, f"erased/{blob.hash}") is None]


def _external_shards(dataset: Dataset, table: TableEntry) -> Iterator[Shard]:
    """Yield the shards that are files outside of the store. A table of format 1 has none."""
    if table.manifest_format > 1:
        yield from (shard for shard in iter_shards(table.shards, dataset.load_page) if shard.external is not None)


def _check_external(shard: Shard, settings: Settings) -> str | None:
    assert shard.external is not None, "the caller chose external shards"
    try:
        reader = open_external(shard.external.uri, shard.blob, settings, shard.external.etag)
        finding = verify_blob(reader, shard.blob)
    except WarpError as error:
        return error.message
    return None if finding is None else finding.message


def _list_blobs(dataset: Dataset, mirror: Session | None) -> list[Blob]:
    """Return the blobs of a version. If its shard lists cannot be read, those of the same version in the mirror."""
    try:
        return list(dataset.blobs())
    except WarpError:
        if mirror is None:
            raise
        return list(open_dataset(mirror, Address(dataset.id, dataset.version)).blobs())


def restore_blobs(
    session: Session, blobs: Sequence[Blob], generations: Mapping[str, str], mirror: Session | None
) -> tuple[Blob, ...]:
    """Replace blobs in the store by copies in the cache, in the mirror or under another key of the store.

    Return those that are valid now.
    """
    if not blobs:
        return ()
    staging = StagingDirectory(session.settings.cache_dir)
    try:
        copies = _Copies(session, staging.path, generations, mirror)

        def restore(blob: Blob) -> bool:
            key, found = blob_key(blob.hash, generations.get(blob.hash)), copies.find(blob)
            if found is not None:
                retry_unknown(lambda: session.writer.replace_file(key, *found), session.pause)
            return found is not None

        done = IO_POOL.map_all(restore, blobs)
    finally:
        staging.remove()
    return tuple(blob for blob, is_restored in zip(blobs, done, strict=True) if is_restored)


class _Copies:
    """Valid copies of blobs, as files: entries of the cache, else copies of small objects or of a mirror."""

    def __init__(
        self, session: Session, directory: Path, generations: Mapping[str, str], mirror: Session | None
    ) -> None:
        self._cache, self._directory = open_cache(session.settings), directory
        self._small = open_metadata_files(session.settings, session.writer.url)
        self._writer, self._own = session.writer, generations
        self._mirrors = [] if mirror is None else [GenerationReader(mirror.writer, generations), mirror.writer]

    def find(self, blob: Blob) -> tuple[Path, Fingerprint] | None:
        """Return a file with the bytes of a blob, or None."""
        entry, path = self._cache.find_intact(blob.hash), self._directory / blob.hash
        if entry is not None:
            found = fingerprint_file(entry.path)  # the cache compares a fast hash; a store needs the strong one
            if found.blob == blob:
                return entry.path, found
        small = self._small.load(blob_key(blob.hash))  # caches know no generations
        if small is not None and sha256_hex(small.data) == blob.hash:
            path.write_bytes(small.data)
            return path, fingerprint_file(path)
        for reader in (*self._mirrors, *self._generations(blob)):
            with contextlib.suppress(NotFoundError, CorruptError):
                return path, BlobCopy(reader, blob).write(path, Fingerprint(blob, ""))
        return None

    def _generations(self, blob: Blob) -> Iterator[GenerationReader]:
        """Yield readers of the other keys under which the store has the blob."""
        for key, size in list_blob_keys(self._writer, [blob.hash]):
            generation = key.rpartition("/")[2].partition(".")[2]
            if size == blob.byte_size and generation != self._own.get(blob.hash, ""):
                yield GenerationReader(self._writer, {blob.hash: generation} if generation else {})


def _corrupt_parts(dataset: Dataset, corrupt: Collection[Blob]) -> Iterator[str]:
    if not corrupt:
        return
    direct = GenerationReader(dataset.session.writer, dataset.manifest.generations)
    session = replace(dataset.session, reader=direct, media=None)
    ref = VersionRef(dataset.id, dataset.version)
    version = VersionContext(session, ref, dataset.manifest, session.catalog.load_page)
    for kind, entries in entries_by_kind(dataset.manifest):
        for name in entries:
            yield from kind.locate_corruption(version, name, corrupt)
