"""Published tensors, opened: blobs of a store as the canonical bytes of an artifact.

Blobs of a local store are files, and read as such. All others are read through the connection, cache and all.
Implements "Published" of docs/specs/tensors.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from pathlib import Path

from warpdata.errors import (
    BlobCorruptedError,
    LimitExceededError,
    ManifestCorruptedError,
    ObjectNotFoundError,
    PartialCoverageDetail,
    PartialCoverageError,
)
from warpdata.formats.tensors import (
    Engine,
    FileShards,
    FileSource,
    ReadCost,
    SourcePolicy,
    StoreShards,
    Tensors,
    open_shards,
)
from warpdata.kinds.tensors.entry import TensorsEntry
from warpdata.limits import MAX_TENSOR_INDEX_BYTES, VIEW_STORE_REQUEST_COST_BYTES
from warpdata.primitives.hashing import Blob, blob_key, sha256_hex
from warpdata.repository.manifest import LoadPage, iter_shards
from warpdata.session import Session
from warpdata.storage import ByteRange, Reader
from warpdata.storage.cache import Mode

__all__ = ["TensorsPlace", "open_published"]


@dataclass(frozen=True, slots=True)
class TensorsPlace:
    """One set of tensors of one version, and everything it is read by."""

    dataset_id: str
    name: str
    entry: TensorsEntry
    session: Session
    load_page: LoadPage

    def shards(self) -> list[Blob]:
        """The blobs of the data, in order."""
        return [shard.blob for shard in iter_shards(self.entry.shards, self.load_page)]


def open_published(
    place: TensorsPlace, *, sources: SourcePolicy | None = None, engine: Engine | None = None
) -> Tensors:
    """Reads the index and the list of shards, and no data."""
    blobs = place.shards()
    tail = _read_index(place.session.reader, place)
    paths = _local_paths(place.session, blobs)
    if paths is not None:
        shards, there = _files(blobs, paths)
        cost = ReadCost()
    else:
        shards, there = _objects(place, blobs)
        cost = ReadCost(VIEW_STORE_REQUEST_COST_BYTES)
    borders = pairwise(accumulate((blob.byte_size for blob in blobs), initial=0))
    present = [span for span, is_there in zip(borders, there, strict=True) if is_there]
    opened = open_shards(tail, shards, present, cost=cost, sources=sources, engine=engine)
    if opened.artifact_id != place.entry.artifact_id or len(opened) != place.entry.tensor_count:
        raise ManifestCorruptedError(
            f"tensors {place.name!r} of {place.dataset_id} are {opened.artifact_id}, "
            f"and the manifest says {place.entry.artifact_id}"
        )
    return opened


def _files(blobs: Sequence[Blob], paths: Sequence[Path | None]) -> tuple[FileShards | StoreShards, list[bool]]:
    """Blobs that lie on this machine, and which of them are there."""

    def open_file(number: int) -> FileSource:
        path = paths[number]
        if path is None:
            raise ObjectNotFoundError(f"blob {blobs[number].hash} is not in the store")
        file = FileSource(path)
        blob = blobs[number]
        if file.size_bytes != blob.byte_size:
            raise BlobCorruptedError(
                f"blob {blob.hash} has {file.size_bytes} bytes, and its name promises {blob.byte_size}"
            )
        return file

    return FileShards([blob.byte_size for blob in blobs], open_file), [path is not None for path in paths]


def _objects(place: TensorsPlace, blobs: Sequence[Blob]) -> tuple[FileShards | StoreShards, list[bool]]:
    """Blobs of a store that is asked for ranges. Without a network, what is not here is known beforehand."""
    session, keys = place.session, [blob_key(blob.hash) for blob in blobs]
    reader = session.reader
    starts = list(accumulate((blob.byte_size for blob in blobs), initial=0))
    index_multihash = place.entry.artifact_id.split(":")[1]
    shards = StoreShards(
        [blob.byte_size for blob in blobs],
        lambda number: _Part(reader, keys[number], starts[number], index_multihash),
        lambda number: reader.invalidate(keys[number]),
    )
    return shards, [session.mode is not Mode.LOCAL or reader.local_path(key) is not None for key in keys]


@dataclass(frozen=True, slots=True)
class _Part:
    """A blob of a store as a source: every range is one request. `at` is its first canonical byte."""

    reader: Reader
    key: str
    at: int
    index_multihash: str

    def read_range(self, start: int, end: int) -> memoryview:
        try:
            return self.reader.read_range(self.key, ByteRange(start, end))
        except ObjectNotFoundError as error:
            missing = ((self.at + start, end - start),)
            raise PartialCoverageError(
                f"bytes {self.at + start}…{self.at + end} are not there: {error.message}",
                detail=PartialCoverageDetail("canonical", self.index_multihash, missing),
                hint=error.hint or "`warp verify` shows what else is missing.",
            ) from error


def _local_paths(session: Session, blobs: Sequence[Blob]) -> list[Path | None] | None:
    """Where each blob lies, `None` for those that are gone; `None` if they do not lie on this machine at all."""
    if session.reader is not session.writer or not session.reader.url.startswith("file:"):
        return None
    return [session.reader.local_path(blob_key(blob.hash)) for blob in blobs]


def _read_index(reader: Reader, place: TensorsPlace) -> bytes:
    """Verified; asked for once more where a nearer copy was to blame."""
    blob, key = place.entry.index, blob_key(place.entry.index.hash)
    most = 2 * MAX_TENSOR_INDEX_BYTES  # as many hashes as index, at most: 16 TiB of data
    if blob.byte_size > most:
        raise LimitExceededError(f"the index of tensors {place.name!r} has {blob.byte_size} bytes; {most} are allowed")
    for _ in range(2):
        data = bytes(reader.read_range(key, ByteRange(0, blob.byte_size)))
        if sha256_hex(data) == blob.hash:
            return data
        if not reader.invalidate(key):
            break
    raise BlobCorruptedError(
        f"the index of tensors {place.name!r} in {reader.url} is not what was published (blob {blob.hash})",
        hint="Publish the same tensors again with repair=True, or read an older version.",
    )
