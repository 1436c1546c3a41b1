"""What a version holds, told from its manifest alone. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from warpdata.kinds.artifacts import ArtifactEntry
from warpdata.kinds.tensors import TensorsEntry
from warpdata.repository.catalog import VersionRef
from warpdata.repository.manifest import Binding, Manifest, Payload

__all__ = ["ArtifactInfo", "DatasetInfo", "EpisodesInfo", "TableInfo", "TensorsInfo", "describe"]


@dataclass(frozen=True, slots=True)
class TableInfo:
    name: str
    rows: int
    shards: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class ArtifactInfo:
    name: str
    kind: str
    compression: str | None
    members: int
    shards: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class EpisodesInfo:
    name: str
    episodes: int
    steps: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class TensorsInfo:
    name: str
    artifact_id: str
    tensors: int
    shards: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class DatasetInfo:
    """What a version holds, without reading any of it."""

    dataset_id: str
    version: str
    store: str
    branch: str | None
    label: str | None
    tables: tuple[TableInfo, ...]
    artifacts: tuple[ArtifactInfo, ...]
    episodes: tuple[EpisodesInfo, ...]
    bindings: tuple[Binding, ...]
    rows: int
    size_bytes: int
    tensors: tuple[TensorsInfo, ...] = ()


def describe(manifest: Manifest, resolved: VersionRef, store: str) -> DatasetInfo:
    return DatasetInfo(
        dataset_id=resolved.dataset_id,
        version=resolved.version,
        store=store,
        branch=resolved.branch,
        label=resolved.label,
        tables=tuple(
            TableInfo(name, entry.shards.row_count, entry.shards.shard_count, entry.shards.data_bytes)
            for name, entry in sorted(manifest.tables.items())
        ),
        artifacts=tuple(
            _artifact(name, ArtifactEntry.of(name, payload)) for name, payload in sorted(manifest.artifacts.items())
        ),
        episodes=tuple(_episodes(name, payload) for name, payload in sorted(manifest.episodes.items())),
        bindings=manifest.bindings,
        rows=manifest.row_count,
        size_bytes=manifest.data_bytes,
        tensors=tuple(
            _tensors(name, TensorsEntry.of(name, payload)) for name, payload in sorted(manifest.tensors.items())
        ),
    )


def _artifact(name: str, entry: ArtifactEntry) -> ArtifactInfo:
    return ArtifactInfo(
        name=name,
        kind=entry.kind,
        compression=entry.compression,
        members=entry.member_count,
        shards=entry.shards.shard_count,
        size_bytes=entry.shards.data_bytes,
    )


def _episodes(name: str, payload: Payload) -> EpisodesInfo:
    from warpdata.datasets.episodes import EpisodesEntry  # brings the file format

    entry = EpisodesEntry.of(name, payload)
    return EpisodesInfo(name, entry.episode_count, entry.step_count, entry.shards.data_bytes)


def _tensors(name: str, entry: TensorsEntry) -> TensorsInfo:
    return TensorsInfo(
        name=name,
        artifact_id=entry.artifact_id,
        tensors=entry.tensor_count,
        shards=entry.shards.shard_count,
        size_bytes=entry.shards.data_bytes,
    )
