"""Is a published version whole? Re-reads and re-hashes everything it refers to."""

from __future__ import annotations

from dataclasses import dataclass

from warpdata.datasets import Dataset
from warpdata.datasets import dataset as open_by_address
from warpdata.errors import WarpError
from warpdata.progress import Progress, Tally, silent
from warpdata.publish.upload import in_parallel
from warpdata.store import Reader, verify_blob

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
    reader: Reader = dataset.connection.writer  # not the one that remembers: this asks the store itself
    try:
        blobs = sorted(set(dataset.blobs()))
    except WarpError as error:
        return Verification(0, 0, (f"the shard list cannot be read: {error.message}",))
    tally = Tally(progress, "verify", sum(blob.byte_size for blob in blobs), len(blobs))

    def check(position: int) -> str | None:
        blob = blobs[position]
        finding = verify_blob(reader, blob, tally.add_bytes)
        tally.finish_file()
        return None if finding is None else finding.message

    findings = in_parallel(check, range(len(blobs)))
    return Verification(
        len(blobs), sum(blob.byte_size for blob in blobs), tuple(found for found in findings if found is not None)
    )
