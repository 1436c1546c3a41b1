"""The facts about a version that its manifest states. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from warpdata.kinds import EntryInfo, entries_by_kind
from warpdata.primitives.reprs import short_repr
from warpdata.repository.catalog import HistoryEntry, VersionRef
from warpdata.repository.manifest import Binding, Manifest

if TYPE_CHECKING:
    from warpdata.kinds.artifacts import ArtifactInfo
    from warpdata.kinds.episodes import EpisodesInfo
    from warpdata.kinds.indexes import IndexInfo
    from warpdata.kinds.tables import TableInfo
    from warpdata.kinds.tensors import TensorsInfo

__all__ = ["DatasetInfo", "Revision", "describe", "to_revision"]


@dataclass(frozen=True, slots=True)
class DatasetInfo:
    """The content of a version. `entries` has the description of every entry, by section, in order of names."""

    dataset_id: str
    version: str
    store: str
    branch: str | None
    label: str | None
    entries: Mapping[str, tuple[EntryInfo, ...]]
    bindings: tuple[Binding, ...]
    rows: int
    size_bytes: int

    def __repr__(self) -> str:
        named = {section: [entry.name for entry in entries] for section, entries in self.entries.items() if entries}
        sizes = {"rows": self.rows, "size_bytes": self.size_bytes}
        return short_repr("DatasetInfo", self.dataset_id, version=self.version[:12], **named, **sizes)

    @property
    def tables(self) -> tuple[TableInfo, ...]:
        return self._section("tables")

    @property
    def artifacts(self) -> tuple[ArtifactInfo, ...]:
        return self._section("artifacts")

    @property
    def episodes(self) -> tuple[EpisodesInfo, ...]:
        return self._section("episodes")

    @property
    def tensors(self) -> tuple[TensorsInfo, ...]:
        return self._section("tensors")

    @property
    def indexes(self) -> tuple[IndexInfo, ...]:
        return self._section("indexes")

    def _section(self, section: str) -> tuple[Any, ...]:
        return self.entries.get(section, ())


def describe(manifest: Manifest, ref: VersionRef, store: str) -> DatasetInfo:
    return DatasetInfo(
        dataset_id=ref.dataset_id,
        version=ref.version,
        store=store,
        branch=ref.branch,
        label=ref.label,
        entries={
            kind.section: tuple(kind.describe(name, entry) for name, entry in entries.items())
            for kind, entries in entries_by_kind(manifest)
        },
        bindings=manifest.bindings,
        rows=manifest.row_count,
        size_bytes=manifest.data_bytes,
    )


@dataclass(frozen=True, slots=True)
class Revision:
    """One commit of a dataset's history."""

    commit: str
    version: str
    parents: tuple[str, ...]
    operation: str
    author: str
    message: str
    time: datetime
    txn_id: str


def to_revision(entry: HistoryEntry) -> Revision:
    commit = entry.commit
    return Revision(
        commit=entry.commit_id,
        version=commit.version,
        parents=commit.parents,
        operation=commit.operation,
        author=commit.author,
        message=commit.message,
        time=datetime.fromisoformat(commit.time),
        txn_id=commit.txn_id,
    )
