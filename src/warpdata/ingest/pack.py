"""How the raw files of an ingest become an artifact."""

from __future__ import annotations

from dataclasses import dataclass

from warpdata.kinds.artifacts import ArtifactInput
from warpdata.publish import DatasetBuilder

__all__ = ["Packing"]


@dataclass(frozen=True, slots=True)
class Packing:
    """As in `DatasetBuilder.add_artifact`, which also checks the values."""

    kind: str = "tar_shards"
    compression: str | None = None
    shard_bytes: int | None = None

    def add(self, builder: DatasetBuilder, name: str, source: ArtifactInput) -> None:
        builder.add_artifact(name, source, self.kind, compression=self.compression, shard_bytes=self.shard_bytes)
