"""Is a published version whole? Re-reads and re-hashes everything it refers to."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise

from warpdata.datasets import Dataset
from warpdata.datasets import dataset as open_by_address
from warpdata.errors import WarpError
from warpdata.primitives.hashing import Blob
from warpdata.primitives.progress import Progress, ProgressCounter, silent
from warpdata.publish.upload import in_parallel
from warpdata.repository.catalog import VersionRef
from warpdata.repository.manifest import iter_shards
from warpdata.storage import Reader, verify_blob

__all__ = ["Verification", "verify"]


@dataclass(frozen=True, slots=True)
class Verification:
    """`problems` names every blob that is missing or damaged; empty means all is well."""

    blobs: int
    size_bytes: int
    problems: tuple[str, ...]


def verify(target: str | Dataset, *, store: str | None = None, progress: Progress = silent) -> Verification:
    """Re-read and re-hash every blob of a dataset, given open or by address.

    Memory stays flat; a damaged blob is reported, not raised, so that all of them are found.
    """
    dataset = open_by_address(target, store=store) if isinstance(target, str) else target
    reader: Reader = dataset.session.writer  # not the one that remembers: this asks the store itself
    try:
        blobs = sorted(set(dataset.blobs()))
    except WarpError as error:
        return Verification(0, 0, (f"the shard list cannot be read: {error.message}",))
    tally = ProgressCounter(progress, "verify", sum(blob.byte_size for blob in blobs), len(blobs))

    def check(position: int) -> str | None:
        blob = blobs[position]
        finding = verify_blob(reader, blob, tally.add_bytes)
        tally.finish_file()
        return None if finding is None else finding.message

    findings = {blob: found for blob, found in zip(blobs, in_parallel(check, range(len(blobs))), strict=True) if found}
    problems = (*findings.values(), *_damaged_tensors(dataset, findings))
    return Verification(len(blobs), sum(blob.byte_size for blob in blobs), problems)


def _damaged_tensors(dataset: Dataset, findings: Mapping[Blob, str]) -> Iterator[str]:
    """Of damaged shards of tensors, which tensors and which of their bytes."""
    if not findings:
        return
    session = replace(dataset.session, reader=dataset.session.writer, media=None)
    direct = Dataset(session, VersionRef(dataset.id, dataset.version), dataset.manifest)
    for name, payload in sorted(dataset.manifest.tensors.items()):
        blobs = [shard.blob for shard in iter_shards(payload.shards, session.catalog.load_page)]
        borders = pairwise(accumulate((blob.byte_size for blob in blobs), initial=0))
        ranges = [span for blob, span in zip(blobs, borders, strict=True) if blob in findings]
        if not ranges or payload.index in findings:
            continue
        try:
            yield from (f"tensors {name!r}: {damage}" for damage in direct.tensors(name).verify(ranges))
        except WarpError as error:
            yield f"tensors {name!r} can not be read: {error.message}"
