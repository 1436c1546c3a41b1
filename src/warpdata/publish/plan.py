"""What a publish would do. Pure: fingerprints and presence in, a plan out."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from warpdata.formats.parquet import ParquetSource
from warpdata.primitives.hashing import Fingerprint
from warpdata.repository.manifest import Binding, Footer, Shard

__all__ = [
    "LazyBlob",
    "PlannedFile",
    "PublishPlan",
    "Staged",
    "StagedArtifact",
    "StagedBlob",
    "StagedEpisodes",
    "StagedFile",
    "StagedTensors",
    "plan_upload",
]


class LazyBlob(Protocol):
    """How a shard is made when it is needed."""

    def write(self, path: Path, promised: Fingerprint) -> None:
        """`InvalidSourceError` if its sources are no longer those that were measured."""
        ...


@dataclass(frozen=True, slots=True)
class StagedBlob:
    """A file that will be a blob. With a recipe it does not exist yet, and `path` is only what to call it."""

    path: Path
    fingerprint: Fingerprint
    recipe: LazyBlob | None = None


@dataclass(frozen=True, slots=True)
class StagedArtifact:
    """An artifact's shards and index, whose content has names."""

    kind: str
    compression: str | None
    shards: tuple[StagedBlob, ...]
    index: StagedBlob
    index_footer: Footer
    member_count: int

    @property
    def blobs(self) -> tuple[StagedBlob, ...]:
        return (*self.shards, self.index)


@dataclass(frozen=True, slots=True)
class StagedEpisodes:
    """The files of an episode set, and its index."""

    files: tuple[StagedBlob, ...]
    index: StagedBlob
    index_footer: Footer
    episode_count: int
    step_count: int
    check_bytes: int

    @property
    def blobs(self) -> tuple[StagedBlob, ...]:
        return (*self.files, self.index)


@dataclass(frozen=True, slots=True)
class StagedTensors:
    """A set of tensors: its data in shards, and what a canonical file has behind the data."""

    shards: tuple[StagedBlob, ...]
    index: StagedBlob
    artifact_id: str
    tensor_count: int

    @property
    def blobs(self) -> tuple[StagedBlob, ...]:
        return (*self.shards, self.index)


@dataclass(frozen=True, slots=True)
class Staged:
    """Everything a publish brings along."""

    tables: Mapping[str, Sequence[StagedFile]]
    artifacts: Mapping[str, StagedArtifact] = field(default_factory=dict)
    bindings: tuple[Binding, ...] = ()
    episodes: Mapping[str, StagedEpisodes] = field(default_factory=dict)
    tensors: Mapping[str, StagedTensors] = field(default_factory=dict)

    def blobs(self) -> Iterator[StagedBlob]:
        for files in self.tables.values():
            for file in files:
                yield StagedBlob(file.path, file.fingerprint)
        for artifact in self.artifacts.values():
            yield from artifact.blobs
        for episodes in self.episodes.values():
            yield from episodes.blobs
        for tensors in self.tensors.values():
            yield from tensors.blobs


@dataclass(frozen=True, slots=True)
class StagedFile:
    """A file of a table, whose content has a name."""

    source: ParquetSource
    fingerprint: Fingerprint

    @property
    def path(self) -> Path:
        return self.source.path

    def shard(self) -> Shard:
        blob = self.fingerprint.blob
        return Shard(blob.hash, blob.byte_size, self.source.row_count, self.source.footer)


@dataclass(frozen=True, slots=True)
class PlannedFile:
    """A blob to have in the store. A packed shard has a recipe, and a `path` that is only its name."""

    path: Path
    fingerprint: Fingerprint
    is_present: bool
    recipe: LazyBlob | None = None


@dataclass(frozen=True, slots=True)
class PublishPlan:
    """`version` is what the publish would give, or None where it depends on what is there then (appends)."""

    dataset_id: str
    version: str | None
    tables: Mapping[str, int]
    files: tuple[PlannedFile, ...]
    artifacts: Mapping[str, int] = field(default_factory=dict)
    """How many members each artifact has."""
    episodes: Mapping[str, int] = field(default_factory=dict)
    """How many episodes each set has."""
    tensors: Mapping[str, int] = field(default_factory=dict)
    """How many tensors each set has."""

    @property
    def total_bytes(self) -> int:
        return sum(file.fingerprint.blob.byte_size for file in self.files)

    @property
    def upload_files(self) -> int:
        return sum(not file.is_present for file in self.files)

    @property
    def upload_bytes(self) -> int:
        return sum(file.fingerprint.blob.byte_size for file in self.files if not file.is_present)


def plan_upload(blobs: Iterable[StagedBlob], present: Collection[str]) -> tuple[PlannedFile, ...]:
    """Every distinct blob once, in the order first named."""
    seen: dict[str, PlannedFile] = {}
    for blob in blobs:
        digest = blob.fingerprint.blob.hash
        seen.setdefault(digest, PlannedFile(blob.path, blob.fingerprint, digest in present, blob.recipe))
    return tuple(seen.values())
