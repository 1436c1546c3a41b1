"""Blobs brought into the cache before they are read: ahead of a scan, or on request."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from warpdata.errors import BadInputError
from warpdata.kinds import payload_kind, pick_entry
from warpdata.kinds.artifacts import Artifact, locator_of
from warpdata.primitives.hashing import Blob
from warpdata.primitives.parallel import IO_POOL
from warpdata.primitives.progress import ProgressCounter
from warpdata.repository.manifest import LoadPage, Manifest, iter_shards
from warpdata.session import Session
from warpdata.storage.cache import CachedReader, Filled

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["ShardPrefetcher", "Warmed", "choose_blobs", "list_blobs", "warm_blobs"]


class ShardPrefetcher:
    """A lookahead hook of a table: prefetches the artifact shards of each batch before the batch is returned.

    The shards of the previous batch stay first in the queue, because they are still in use.
    """

    def __init__(self, columns: Mapping[str, Artifact], reader: CachedReader) -> None:
        self._columns = columns
        self._reader = reader
        self._previous: list[Blob] = []

    def __call__(self, batch: pa.RecordBatch) -> None:
        shards = [blob for name, artifact in self._columns.items() for blob in _shards(batch, name, artifact)]
        self._reader.prefetch(list(dict.fromkeys([*self._previous, *shards])))
        self._previous = shards


@dataclass(frozen=True, slots=True)
class Warmed:
    """Result of `warm`: bytes that were fetched, were already cached, or were skipped because the cache is full."""

    blobs: int
    fetched_bytes: int
    present_bytes: int
    skipped_bytes: int


def list_blobs(
    manifest: Manifest, load_page: LoadPage, named: Mapping[str, Sequence[str] | None], part: slice | None
) -> Iterator[Blob]:
    """Yield blobs in the order of the names, an index before its shards. Without names, those of all entries.

    `part` selects shards of each entry by number.
    """
    is_everything = all(names is None for names in named.values())
    for section, names in named.items():
        for name in sorted(manifest.sections()[section]) if is_everything else names or ():
            _, entry = pick_entry(payload_kind(section), manifest, name)
            if section != "tables":
                yield entry.index
            listed = iter_shards(entry.shards, load_page)
            for shard in listed if part is None else list(listed)[part]:
                yield from shard.blobs()


def choose_blobs(blobs: Iterable[Blob], max_bytes: int | None) -> tuple[list[Blob], int]:
    """Return the distinct blobs, in order, until the next one exceeds `max_bytes`; and the size of the rest. Pure."""
    chosen, chosen_bytes, skipped_bytes = [], 0, 0
    for blob in dict.fromkeys(blobs):
        if skipped_bytes or (max_bytes is not None and chosen_bytes + blob.byte_size > max_bytes):
            skipped_bytes += blob.byte_size
        else:
            chosen.append(blob)
            chosen_bytes += blob.byte_size
    return chosen, skipped_bytes


def warm_blobs(session: Session, blobs: Sequence[Blob], progress: ProgressCounter) -> Warmed:
    """Fetch the blobs into the cache. The blobs of a local store count as present."""
    if session.reads_directly:
        return Warmed(len(blobs), 0, sum(blob.byte_size for blob in blobs), 0)
    reader = session.media_reader
    if not isinstance(reader, CachedReader):
        raise BadInputError(f"mode {session.mode.value!r} has no cache to warm", hint="Use mode='auto'.")

    def fill(blob: Blob) -> Filled:
        outcome = reader.fill(blob, progress.add_bytes)
        if outcome is not Filled.FETCHED:
            progress.add_bytes(blob.byte_size)
        progress.finish_file()
        return outcome

    sizes = dict.fromkeys(Filled, 0)
    for blob, outcome in zip(blobs, IO_POOL.map_all(fill, blobs), strict=True):
        sizes[outcome] += blob.byte_size
    return Warmed(len(blobs), sizes[Filled.FETCHED], sizes[Filled.PRESENT], sizes[Filled.NO_ROOM])


def _shards(batch: pa.RecordBatch, column: str, artifact: Artifact) -> list[Blob]:
    if column not in batch.schema.names:
        return []
    cells = (cell for cell in batch[column].to_pylist() if cell is not None)
    return list(dict.fromkeys(artifact.shard_of(locator_of(cell)) for cell in cells))
