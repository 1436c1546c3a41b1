"""What a publish would do. Pure: fingerprints and presence in, a plan out."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from warpdata.digest import Fingerprint
from warpdata.manifest import Shard
from warpdata.tables import ParquetSource

__all__ = ["PlannedFile", "PublishPlan", "StagedFile", "plan_upload"]


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
    path: Path
    fingerprint: Fingerprint
    is_present: bool


@dataclass(frozen=True, slots=True)
class PublishPlan:
    """`version` is what the publish would give, or None where it depends on what is there then (appends)."""

    dataset_id: str
    version: str | None
    tables: Mapping[str, int]
    files: tuple[PlannedFile, ...]

    @property
    def total_bytes(self) -> int:
        return sum(file.fingerprint.blob.byte_size for file in self.files)

    @property
    def upload_files(self) -> int:
        return sum(not file.is_present for file in self.files)

    @property
    def upload_bytes(self) -> int:
        return sum(file.fingerprint.blob.byte_size for file in self.files if not file.is_present)


def plan_upload(staged: Mapping[str, Sequence[StagedFile]], present: Collection[str]) -> tuple[PlannedFile, ...]:
    """Every distinct blob once, in the order first named."""
    seen: dict[str, PlannedFile] = {}
    for files in staged.values():
        for file in files:
            digest = file.fingerprint.blob.hash
            seen.setdefault(digest, PlannedFile(file.path, file.fingerprint, digest in present))
    return tuple(seen.values())
