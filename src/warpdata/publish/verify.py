"""Verification of a published version: every blob is read and hashed again."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace

from warpdata.datasets import Dataset
from warpdata.datasets import dataset as open_by_address
from warpdata.errors import WarpError
from warpdata.kinds import VersionContext, entries_by_kind
from warpdata.primitives.arguments import check_arguments
from warpdata.primitives.hashing import Blob
from warpdata.primitives.parallel import IO_POOL
from warpdata.primitives.progress import Progress, ProgressCounter, silent
from warpdata.repository.catalog import VersionRef
from warpdata.storage import verify_blob

__all__ = ["Verification", "verify"]

_READ_THREADS = 4


@dataclass(frozen=True, slots=True)
class Verification:
    """The blobs that were read. `problems` names every missing or corrupt blob, and is empty for a valid version."""

    blobs: int
    size_bytes: int
    problems: tuple[str, ...]


@check_arguments
def verify(target: str | Dataset, *, store: str | None = None, progress: Progress = silent) -> Verification:
    """Read and hash every blob of a dataset, given as an object or an address.

    Problems are reported and not raised, so that one call finds all of them. Memory does not grow with blob size.
    """
    dataset = open_by_address(target, store=store) if isinstance(target, str) else target
    reader = dataset.session.writer  # not `session.reader`, which may answer from the cache
    try:
        blobs = sorted(set(dataset.blobs()))
    except WarpError as error:
        return Verification(0, 0, (f"the shard list cannot be read: {error.message}",))
    counter = ProgressCounter(progress, "verify", sum(blob.byte_size for blob in blobs), len(blobs))

    def check(blob: Blob) -> str | None:
        finding = verify_blob(reader, blob, counter.add_bytes)
        counter.finish_file()
        return None if finding is None else finding.message

    findings = IO_POOL.map_all(check, blobs, limit=_READ_THREADS)
    corrupt = {blob: finding for blob, finding in zip(blobs, findings, strict=True) if finding}
    problems = (*corrupt.values(), *_corrupt_parts(dataset, corrupt.keys()))
    return Verification(len(blobs), sum(blob.byte_size for blob in blobs), problems)


def _corrupt_parts(dataset: Dataset, corrupt: Collection[Blob]) -> Iterator[str]:
    if not corrupt:
        return
    session = replace(dataset.session, reader=dataset.session.writer, media=None)
    ref = VersionRef(dataset.id, dataset.version)
    version = VersionContext(session, ref, dataset.manifest, session.catalog.load_page)
    for kind, entries in entries_by_kind(dataset.manifest):
        for name in entries:
            yield from kind.locate_corruption(version, name, corrupt)
