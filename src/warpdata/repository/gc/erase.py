"""Erasure of given blobs beside writers: condemn, wait, look who needs them, delete.

The same protocol as a collection, for blobs that versions still name. The caller decides which versions may lose
them. Implements "Erasure" of docs/specs/collections.md.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

from warpdata.errors import ConflictError
from warpdata.primitives.hashing import blob_key
from warpdata.primitives.progress import Progress, ProgressCounter
from warpdata.repository.gc.collector import (
    CollectionRun,
    CollectorClock,
    check_marker,
    condemn_part,
    delete_keys,
    finish_part,
    name_collection,
    store_time_of,
    wait_for_writers,
)
from warpdata.repository.gc.references import BlobUsers, find_blob_users
from warpdata.repository.gc.report import ReportBuilder
from warpdata.repository.gc.retention import KEEP_ALL, parse_retention
from warpdata.storage import Reader, Writer

__all__ = ["ErasureTerms", "erase_blobs", "list_blob_keys"]


@dataclass(frozen=True)
class ErasureTerms:
    """Limits of an erasure. `check_users` raises if a version may not lose the blobs.

    It is called when no writer that does not know of the erasure is at work any more.
    """

    check_users: Callable[[BlobUsers], None]
    wait_s: float | None
    progress: Progress


def erase_blobs(
    writer: Writer, digests: Collection[str], clock: CollectorClock, terms: ErasureTerms
) -> tuple[tuple[str, int], ...]:
    """Delete the blobs in all generations. Return the keys that were stored, with their sizes.

    Writers upload the same content under a new generation meanwhile. Blobs that are gone already are no error, so a
    call that was interrupted can be repeated.
    """
    ready_at = check_marker(writer, clock.pause, dry_run=False)
    store_time = store_time_of(writer, clock)
    if ready_at is not None and store_time() < ready_at:
        raise ConflictError(
            f"programs without leases could write to {writer.url} until a moment ago, so nothing was erased",
            hint=f"Repeat the call after {ready_at.isoformat(timespec='seconds')}.",
        )
    stored = list_blob_keys(writer, digests)
    if not stored:
        terms.check_users(find_blob_users(writer, digests))
        return ()
    rule = parse_retention(KEEP_ALL)
    found = ReportBuilder(writer.url, rule.text, dry_run=False)
    run = CollectionRun(writer, rule, clock, terms.progress, store_time, found)
    since = clock.own.start()
    run.name = name_collection(store_time(), clock)
    condemn_part(run, stored)
    wait_for_writers(run, terms.wait_s, since)
    terms.check_users(find_blob_users(writer, digests))
    delete_keys(run, stored, ProgressCounter(terms.progress, "erase", 0, len(stored)), since)
    finish_part(run, run.parts[0], stored)
    return tuple(stored)


def list_blob_keys(reader: Reader, digests: Collection[str]) -> list[tuple[str, int]]:
    """Return the keys under which blobs are stored, in every generation, with their sizes."""
    found: list[tuple[str, int]] = []
    for key in map(blob_key, sorted(digests)):
        listed = reader.list_objects(key.rpartition("/")[0])
        found += [(info.key, info.size_bytes) for info in listed if info.key == key or info.key.startswith(f"{key}.")]
    return found
