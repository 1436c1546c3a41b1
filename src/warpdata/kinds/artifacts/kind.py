"""Artifacts as a payload kind, and artifacts opened by an address that other processes understand."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

from warpdata.errors import ErrorKind, NotFoundError, UnsupportedError
from warpdata.kinds import PayloadKind, StageContext, VersionContext, pick_entry
from warpdata.kinds.artifacts.artifact import Artifact, ArtifactBackend
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


ARTIFACTS = _ArtifactKind()


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
            ref = VersionRef(self.dataset_id, self.version)
            manifest, load_page = session.catalog.manifest(ref), session.catalog.load_page
            found = ARTIFACTS.open(VersionContext(session, ref, manifest, load_page), self.artifact)
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
