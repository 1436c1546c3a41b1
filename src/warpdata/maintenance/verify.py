"""Verification of a published version: every blob is read and hashed again, and restored from the cache on request."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from warpdata.datasets import Dataset
from warpdata.datasets import dataset as open_by_address
from warpdata.errors import NotCachedError, WarpError
from warpdata.kinds import VersionContext, entries_by_kind
from warpdata.primitives.arguments import check_arguments
from warpdata.primitives.hashing import Blob, blob_key, fingerprint_file, sha256_hex
from warpdata.primitives.parallel import IO_POOL
from warpdata.primitives.progress import Progress, ProgressCounter, silent
from warpdata.repository.catalog import VersionRef, retry_unknown
from warpdata.repository.manifest import Shard, TableEntry, iter_shards
from warpdata.session import Session, open_cache, open_metadata_files
from warpdata.settings import Settings
from warpdata.storage import GenerationReader, open_external, verify_blob

__all__ = ["Verification", "verify"]


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
    target: str | Dataset, *, store: str | None = None, repair: bool = False, progress: Progress = silent
) -> Verification:
    """Read and hash every blob of a dataset, given as an object or an address.

    Problems are reported and not raised, so that one call finds all of them. Memory does not grow with blob size.
    Mode `local` verifies the copies on this machine, and raises `NotCachedError` for a blob without one.
    `repair` replaces missing and corrupt blobs of which the cache of this machine has a valid copy.
    """
    dataset = open_by_address(target, store=store) if isinstance(target, str) else target
    generations = dataset.manifest.generations
    reader = GenerationReader(dataset.session.writer, generations)  # not `session.reader`, which may be a cache
    try:
        blobs = sorted(set(dataset.blobs()))
    except WarpError as error:
        return Verification(0, 0, (f"the shard list cannot be read: {error.message}",))
    counter = ProgressCounter(progress, "verify", sum(blob.byte_size for blob in blobs), len(blobs))

    def check(blob: Blob) -> str | None:
        finding = verify_blob(reader, blob, counter.add_bytes)
        if isinstance(finding, NotCachedError):
            raise finding
        counter.finish_file()
        return None if finding is None else finding.message

    findings = IO_POOL.map_all(check, blobs)
    external = [shard for table in dataset.manifest.tables.values() for shard in _external_shards(dataset, table)]
    outside = [problem for shard in external if (problem := _check_external(shard, dataset.session.settings))]
    corrupt = {blob: finding for blob, finding in zip(blobs, findings, strict=True) if finding}
    repaired = _restore(dataset.session, list(corrupt), generations) if repair else ()
    for blob in repaired:
        del corrupt[blob]
    problems = (*corrupt.values(), *_corrupt_parts(dataset, corrupt.keys()), *outside)
    digests = tuple(blob.hash for blob in repaired)
    size_bytes = sum(blob.byte_size for blob in blobs) + sum(shard.byte_size for shard in external)
    return Verification(len(blobs) + len(external), size_bytes, problems, digests)


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


def _restore(session: Session, blobs: Sequence[Blob], generations: Mapping[str, str]) -> tuple[Blob, ...]:
    """Replace blobs in the store by copies in the cache. Return those that are valid now."""
    cache, small = open_cache(session.settings), open_metadata_files(session.settings, session.writer.url)

    def restore(blob: Blob) -> bool:
        writer, entry = session.writer, cache.find_intact(blob.hash)
        key = blob_key(blob.hash, generations.get(blob.hash))
        if entry is not None:
            found = fingerprint_file(entry.path)  # the cache compares a fast hash; a store needs the strong one
            if found.blob == blob:
                retry_unknown(lambda: writer.replace_file(key, entry.path, found), session.pause)
                return True
        page = small.load(blob_key(blob.hash))  # caches know no generations
        if page is None or sha256_hex(page.data) != blob.hash:
            return False
        retry_unknown(lambda: writer.replace(key, page.data), session.pause)
        return True

    done = IO_POOL.map_all(restore, blobs)
    return tuple(blob for blob, is_restored in zip(blobs, done, strict=True) if is_restored)


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
