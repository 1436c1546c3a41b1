"""Scrub: read every blob of every version of a dataset once, and restore what is damaged from any holder of its hash.

Holders are other keys of the store, the cache of this machine, and mirrors. Only what no holder has is reported.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from warpdata.datasets import Dataset, open_dataset
from warpdata.errors import WarpError
from warpdata.maintenance.verify import not_purged, restore_blobs
from warpdata.primitives.arguments import check_arguments
from warpdata.primitives.hashing import Blob
from warpdata.primitives.parallel import IO_POOL
from warpdata.primitives.progress import Progress, ProgressCounter, silent
from warpdata.repository.catalog import MAIN, Address, find_head
from warpdata.session import Session
from warpdata.storage import GenerationReader, verify_blob

__all__ = ["Scrubbed", "scrub"]


@dataclass(frozen=True, slots=True)
class Scrubbed:
    """The result of a scrub. `problems` name blobs and versions that no holder could restore."""

    versions: int
    blobs: int
    size_bytes: int
    repaired: tuple[str, ...]
    problems: tuple[str, ...]


@check_arguments
def scrub(dataset_id: str, *, store: Session, mirrors: Sequence[Session] = (), progress: Progress = silent) -> Scrubbed:
    """Read and hash the blobs of all heads and labels of a dataset, and restore damaged ones.

    Blobs that a purge of a collection has erased are left out. Versions are read one after another, and each blob once.
    """
    checked: set[tuple[Blob, str | None]] = set()
    repaired: list[str] = []
    problems: list[str] = []
    size_bytes = versions = 0
    for dataset in _versions(store, dataset_id):
        versions += 1
        try:
            found = {(blob, dataset.manifest.generations.get(blob.hash)) for blob in dataset.blobs()}
        except WarpError as error:
            problems.append(f"{dataset_id}@{dataset.version}: {error.message}")
            continue
        new = sorted(found - checked, key=lambda one: one[0])
        checked |= found
        size_bytes += sum(blob.byte_size for blob, _ in new)
        damaged = _check(dataset, [blob for blob, _ in new], progress)
        for blob in _restore(dataset, list(damaged), mirrors):
            repaired.append(blob.hash)
            del damaged[blob]
        problems += [f"{dataset_id}@{dataset.version}: {finding}" for finding in damaged.values()]
    return Scrubbed(versions, len(checked), size_bytes, tuple(repaired), tuple(problems))


def _versions(session: Session, dataset_id: str) -> Iterator[Dataset]:
    """Yield each version that has a name, once."""
    catalog = session.catalog
    branches = dict.fromkeys([MAIN, *catalog.branches(dataset_id)])
    heads = (find_head(session.writer, dataset_id, name) for name in branches)
    listed = [*(head.version for head in heads if head), *(label.version for label in catalog.labels(dataset_id))]
    for version in dict.fromkeys(listed):
        yield open_dataset(session, Address(dataset_id, version))


def _check(dataset: Dataset, blobs: Sequence[Blob], progress: Progress) -> dict[Blob, str]:
    """Return the blobs that are missing or corrupt and that no purge erased, each with its finding."""
    reader = GenerationReader(dataset.session.writer, dataset.manifest.generations)
    counter = ProgressCounter(progress, "verify", sum(blob.byte_size for blob in blobs), len(blobs))

    def check(blob: Blob) -> str | None:
        finding = verify_blob(reader, blob, counter.add_bytes)
        counter.finish_file()
        return None if finding is None else finding.message

    findings = IO_POOL.map_all(check, blobs)
    damaged = {blob: finding for blob, finding in zip(blobs, findings, strict=True) if finding}
    return {blob: damaged[blob] for blob in not_purged(dataset, damaged)}


def _restore(dataset: Dataset, blobs: list[Blob], mirrors: Sequence[Session]) -> list[Blob]:
    restored: list[Blob] = []
    for mirror in (None, *mirrors):
        left = [blob for blob in blobs if blob not in restored]
        restored += restore_blobs(dataset.session, left, dataset.manifest.generations, mirror)
    return restored
