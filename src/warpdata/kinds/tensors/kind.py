"""Tensors as a payload kind. Opening and staging need NumPy, so their modules are imported on first use."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any

from warpdata.errors import ErrorKind, NotFoundError, WarpError
from warpdata.kinds import PayloadKind, StageContext, StagedEntry, VersionContext, pick_entry
from warpdata.kinds.tensors.entry import TensorsEntry
from warpdata.primitives.hashing import Blob
from warpdata.repository.manifest import ManifestEntry, Payload, iter_shards

if TYPE_CHECKING:
    from warpdata.formats.tensors import TensorSet

__all__ = ["TENSORS", "TensorsInfo"]


@dataclass(frozen=True, slots=True)
class TensorsInfo:
    name: str
    artifact_id: str
    tensors: int
    shards: int
    size_bytes: int


class _TensorsKind(PayloadKind[TensorsEntry, "TensorSet"]):
    section = "tensors"
    noun = "tensors"
    plural = "sets of tensors"
    item = "tensor"
    count_field = "tensors"
    columns = ((">tensors", "tensors"), (">shards", "shards"), (">size", "size_bytes"), ("artifact id", "artifact_id"))

    def not_found(self, message: str, hint: str | None) -> NotFoundError:
        return NotFoundError(message, hint=hint, kind=ErrorKind.ARTIFACT_NOT_FOUND)

    def parse(self, name: str, entry: ManifestEntry) -> TensorsEntry:
        assert isinstance(entry, Payload), name
        return TensorsEntry.of(name, entry)

    def open(self, version: VersionContext, name: str | None = None) -> TensorSet:
        """Open a set of tensors. Reads its index and the list of shards, and no data."""
        from warpdata.kinds.tensors.reader import PublishedTensors, open_published

        name, entry = pick_entry(self, version.manifest, name)
        return open_published(PublishedTensors(version.ref.dataset_id, name, entry, version.session, version.load_page))

    def describe(self, name: str, entry: ManifestEntry) -> TensorsInfo:
        parsed = self.parse(name, entry)
        return TensorsInfo(
            name=name,
            artifact_id=parsed.artifact_id,
            tensors=parsed.tensor_count,
            shards=parsed.shards.shard_count,
            size_bytes=parsed.shards.data_bytes,
        )

    def stage(self, name: str, source: Any, context: StageContext) -> StagedEntry:
        from warpdata.kinds.tensors.stage import stage_tensors

        return stage_tensors(name, source, context)

    def locate_corruption(self, version: VersionContext, name: str, corrupt: Collection[Blob]) -> Iterator[str]:
        """Yield the tensors and byte ranges that corrupt shards affect."""
        _, entry = pick_entry(self, version.manifest, name)
        blobs = [shard.blob for shard in iter_shards(entry.shards, version.load_page)]
        borders = pairwise(accumulate((blob.byte_size for blob in blobs), initial=0))
        ranges = [span for blob, span in zip(blobs, borders, strict=True) if blob in corrupt]
        if not ranges or entry.index in corrupt:
            return
        try:
            yield from (f"tensors {name!r}: {damage}" for damage in self.open(version, name).verify(ranges))
        except WarpError as error:
            yield f"tensors {name!r} cannot be read: {error.message}"


TENSORS = _TensorsKind()
