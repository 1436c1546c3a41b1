"""Published tensors: the blobs of a version, opened as one artifact.

Blobs of a local store are read as files, all others through the reader of the session and its cache. Implements
"Published" of docs/specs/tensors.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from pathlib import Path

from warpdata.errors import (
    CorruptError,
    LimitExceededError,
    ManifestCorruptedError,
    ObjectNotFoundError,
    PartialCoverageDetail,
    PartialCoverageError,
)
from warpdata.formats.tensors import Engine, FileShards, ReadCost, SourcePolicy, StoreShards, TensorSet, open_shards
from warpdata.kinds.tensors.entry import TensorsEntry
from warpdata.limits import MAX_TENSOR_INDEX_BYTES
from warpdata.primitives.arguments import check_arguments
from warpdata.primitives.hashing import Blob, blob_key, sha256_hex
from warpdata.repository.manifest import LoadPage, iter_shards
from warpdata.session import Session
from warpdata.storage import ByteRange, FileRangeSource, Reader, read_verified
from warpdata.storage.cache import Mode

__all__ = ["PublishedTensors", "open_published"]

_STORE_REQUEST_COST_BYTES = 128 * 1024


@dataclass(frozen=True, slots=True)
class PublishedTensors:
    """One set of tensors of one version, and the session that reads it."""

    dataset_id: str
    name: str
    entry: TensorsEntry
    session: Session
    load_page: LoadPage

    def shards(self) -> list[Blob]:
        """Return the blobs of the data, in order."""
        return [shard.blob for shard in iter_shards(self.entry.shards, self.load_page)]


@check_arguments
def open_published(
    published: PublishedTensors, *, sources: SourcePolicy | None = None, engine: Engine | None = None
) -> TensorSet:
    """Open a set of tensors. Reads the index and the list of shards, but no data."""
    blobs = published.shards()
    tail = _read_index(published.session.reader, published)
    paths = _local_paths(published.session, blobs)
    if paths is not None:
        shards, are_present = _file_shards(blobs, paths)
        cost = ReadCost()
    else:
        shards, are_present = _store_shards(published, blobs)
        cost = ReadCost(_STORE_REQUEST_COST_BYTES)
    spans = pairwise(accumulate((blob.byte_size for blob in blobs), initial=0))
    present = [span for span, is_present in zip(spans, are_present, strict=True) if is_present]
    opened = open_shards(tail, shards, present, cost=cost, sources=sources, engine=engine)
    if opened.artifact_id != published.entry.artifact_id or len(opened) != published.entry.tensor_count:
        raise ManifestCorruptedError(
            f"tensors {published.name!r} of {published.dataset_id} are {opened.artifact_id}; "
            f"the manifest has {published.entry.artifact_id}"
        )
    return opened


def _file_shards(blobs: Sequence[Blob], paths: Sequence[Path | None]) -> tuple[FileShards | StoreShards, list[bool]]:
    """Return local blobs as shards, and which of them exist."""

    def open_file(number: int) -> FileRangeSource:
        path, blob = paths[number], blobs[number]
        if path is None:
            raise ObjectNotFoundError(f"blob {blob.hash} is not in the store")
        file = FileRangeSource(path)
        if file.size_bytes != blob.byte_size:
            raise CorruptError(f"blob {blob.hash} has {file.size_bytes} bytes; expected {blob.byte_size}")
        return file

    return FileShards([blob.byte_size for blob in blobs], open_file), [path is not None for path in paths]


def _store_shards(published: PublishedTensors, blobs: Sequence[Blob]) -> tuple[FileShards | StoreShards, list[bool]]:
    """Return blobs of a store as shards. Offline, also which of them are in the cache."""
    session, keys = published.session, [blob_key(blob.hash) for blob in blobs]
    reader = session.reader
    for key, blob in zip(keys, blobs, strict=True):
        reader.expect_size(key, blob.byte_size)
    starts = list(accumulate((blob.byte_size for blob in blobs), initial=0))
    index_multihash = published.entry.artifact_id.split(":")[1]
    shards = StoreShards(
        [blob.byte_size for blob in blobs],
        lambda number: _BlobSource(reader, keys[number], blobs[number].byte_size, starts[number], index_multihash),
        lambda number: reader.invalidate(keys[number]),
    )
    return shards, [session.mode is not Mode.LOCAL or reader.local_path(key) is not None for key in keys]


@dataclass(frozen=True, slots=True)
class _BlobSource:
    """A blob of a store. Every range is one request. `at` is its first canonical byte."""

    reader: Reader
    key: str
    size_bytes: int
    at: int
    index_multihash: str

    def read_range(self, start: int, end: int) -> memoryview:
        try:
            return self.reader.read_range(self.key, ByteRange(start, end))
        except ObjectNotFoundError as error:
            missing = ((self.at + start, end - start),)
            raise PartialCoverageError(
                f"bytes {self.at + start}…{self.at + end} are missing: {error.message}",
                detail=PartialCoverageDetail("canonical", self.index_multihash, missing),
                hint=error.hint or "`warp verify` lists everything that is missing.",
            ) from error


def _local_paths(session: Session, blobs: Sequence[Blob]) -> list[Path | None] | None:
    """Return the path of each blob, None for those that are gone; None if the store is not local."""
    if not session.reads_directly or not session.reader.url.startswith("file:"):
        return None
    return [session.reader.local_path(blob_key(blob.hash)) for blob in blobs]


def _read_index(reader: Reader, published: PublishedTensors) -> bytes:
    """Return the verified index blob."""
    blob = published.entry.index
    most = 2 * MAX_TENSOR_INDEX_BYTES  # at most as many digests as index, enough for 16 TiB of data
    if blob.byte_size > most:
        raise LimitExceededError(
            f"the index of tensors {published.name!r} has {blob.byte_size} bytes; {most} are allowed"
        )

    def check(data: memoryview) -> bytes:
        if sha256_hex(data) != blob.hash:
            raise CorruptError(
                f"the index of tensors {published.name!r} in {reader.url} does not match its hash (blob {blob.hash})",
                hint="Publish the same tensors again with repair=True, or read an older version.",
            )
        return bytes(data)

    return read_verified(reader, blob_key(blob.hash), ByteRange(0, blob.byte_size), check)
