"""Artifacts as a payload kind, and artifacts opened by an address that other processes understand."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

from warpdata.errors import ErrorKind, NotFoundError, UnsupportedError
from warpdata.kinds import (
    ChooseSide,
    PayloadKind,
    StageContext,
    StagedEntry,
    VersionContext,
    payload_kind,
    pick_entry,
)
from warpdata.kinds.artifacts.artifact import Artifact, ArtifactBackend
from warpdata.kinds.artifacts.edit import FileChanges, edit_artifact, merge_artifacts
from warpdata.kinds.artifacts.entry import ArtifactEntry
from warpdata.kinds.artifacts.stage import StagedArtifact, stage_artifact
from warpdata.repository.catalog import VersionRef
from warpdata.repository.manifest import ManifestEntry, Payload
from warpdata.session import Session, connect, open_cache
from warpdata.storage.cache import Mode

__all__ = ["ARTIFACTS", "ArtifactAddress", "ArtifactInfo"]

_OPEN_ARTIFACTS = 64


@dataclass(frozen=True, slots=True)
class ArtifactInfo:
    name: str
    kind: str
    compression: str | None
    members: int
    shards: int
    size_bytes: int


class _ArtifactKind(PayloadKind[ArtifactEntry, Artifact]):
    section = "artifacts"
    noun = "artifact"
    plural = "artifacts"
    item = "file"
    count_field = "members"
    columns = (("kind", "kind"), (">files", "members"), (">shards", "shards"), (">size", "size_bytes"))

    def not_found(self, message: str, hint: str | None) -> NotFoundError:
        return NotFoundError(message, hint=hint, kind=ErrorKind.ARTIFACT_NOT_FOUND)

    def parse(self, name: str, entry: ManifestEntry) -> ArtifactEntry:
        assert isinstance(entry, Payload), name
        return ArtifactEntry.of(name, entry)

    def open(self, version: VersionContext, name: str | None = None) -> Artifact:
        """Open an artifact without reading anything. Reads go through the session's media reader."""
        name, entry = pick_entry(self, version.manifest, name)
        session, ref = version.session, version.ref
        address = ArtifactAddress(session.reader.url, ref.dataset_id, ref.version, name, session.mode.value)
        backend = ArtifactBackend(
            session.media_reader,
            version.load_page,
            address,
            partial(_extract, session),
            session.settings.media_memory_bytes,
        )
        artifact = Artifact(name, entry, backend)
        _open_by_address[address] = artifact
        _recently_opened.append(artifact)
        return artifact

    def describe(self, name: str, entry: ManifestEntry) -> ArtifactInfo:
        parsed = self.parse(name, entry)
        return ArtifactInfo(
            name=name,
            kind=parsed.kind,
            compression=parsed.compression,
            members=parsed.member_count,
            shards=parsed.shards.shard_count,
            size_bytes=parsed.shards.data_bytes,
        )

    def stage(self, name: str, source: Any, context: StageContext) -> StagedArtifact:
        return stage_artifact(name, source, context)

    def edit(
        self, version: VersionContext, name: str, added: Any, removed: Sequence[str], context: StageContext
    ) -> StagedEntry:
        """Add files, and remove others by path. `added` maps member paths to bytes or files."""
        stored = self.open(version, name) if name in version.manifest.artifacts or removed else None
        changes = FileChanges(added, removed, keeps_shards=bool(removed) and _has_ranges(version, name))
        return edit_artifact(name, stored, changes, context)

    def merge_sides(
        self,
        name: str,
        sides: tuple[VersionContext, VersionContext, VersionContext],
        choose: ChooseSide,
        context: StageContext,
    ) -> StagedEntry | None:
        """Merge by member path. None if the sides are stored in different forms, or rows name shards by number."""
        base, ours, theirs = (self.open(side, name) if name in side.manifest.artifacts else None for side in sides)
        if ours is None or theirs is None or any(_has_ranges(side, name) for side in sides):
            return None
        forms = {(side.entry.kind, side.entry.compression) for side in (base, ours, theirs) if side is not None}
        return merge_artifacts(name, (base, ours, theirs), choose, context) if len(forms) == 1 else None


ARTIFACTS = _ArtifactKind()


def _has_ranges(version: VersionContext, artifact: str) -> bool:
    """Return whether a column that is bound to the artifact has byte ranges instead of paths."""
    for binding in version.manifest.bindings:
        if binding.artifact == artifact and binding.table in version.manifest.tables:
            schema = payload_kind("tables").open(version, binding.table).schema()
            if binding.column in schema.names and schema.field(binding.column).type.num_fields:
                return True
    return False


@dataclass(frozen=True, slots=True)
class ArtifactAddress:
    """An artifact of a version, as a plain value. Calling it returns the artifact.

    The address holds no credentials: each process opens it with its own settings.
    """

    store: str
    dataset_id: str
    version: str
    artifact: str
    mode: str

    def __call__(self) -> Artifact:
        """Return the artifact if this process has it open; open it otherwise."""
        found = _open_by_address.get(self)
        if found is None:
            session = connect(self.store, mode=self.mode)
            version = VersionContext.of(session, VersionRef(self.dataset_id, self.version))
            found = ARTIFACTS.open(version, self.artifact)
        return found


_open_by_address: WeakValueDictionary[ArtifactAddress, Artifact] = WeakValueDictionary()
_recently_opened: deque[Artifact] = deque(maxlen=_OPEN_ARTIFACTS)
"""Strong references. Without them, a batch that outlives its dataset would open the artifact once for each row."""


def _extract(session: Session, content: bytes) -> Path:
    """Return a file in the cache with this content. The cache keeps the file while this process runs."""
    if session.mode is Mode.REMOTE:
        raise UnsupportedError(
            "mode 'remote' writes nothing to disk, so there is no local path",
            hint="Use read_bytes() or open(), or mode='auto'.",
        )
    return (session.cache or open_cache(session.settings)).put(content)
