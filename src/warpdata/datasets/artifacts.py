"""Artifacts, opened: from a version at hand, or by an address that another process was given."""

from __future__ import annotations

import difflib
from collections import deque
from collections.abc import Collection
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

from warpdata.errors import ArtifactNotFoundError, UnsupportedError
from warpdata.kinds.artifacts import Artifact, ArtifactBackend, ArtifactEntry
from warpdata.limits import CACHE_ROOM_FRACTION, MEMBER_GAP_BYTES, STREAM_DENSE_SHARE
from warpdata.repository.catalog import VersionRef
from warpdata.repository.manifest import LoadPage, Manifest
from warpdata.session import Session, connect, open_cache
from warpdata.storage.cache import FILL_FOR_EPOCHS, FILL_FOR_TABLES, CachedReader, Mode, keep_bytes

if TYPE_CHECKING:
    from warpdata.streaming import OnSelection

__all__ = ["ArtifactAddress", "for_selection", "for_stream", "open_artifact"]

_KEPT_OPEN = 64


@dataclass(frozen=True, slots=True)
class ArtifactAddress:
    """Which artifact of which version, in words that any process understands. Calling it opens the artifact.

    Holds no secret: whoever opens it brings settings of their own.
    """

    store: str
    dataset_id: str
    version: str
    artifact: str
    mode: str

    def __call__(self) -> Artifact:
        """The artifact as it is open in this process, or opened now."""
        found = _opened.get(self)
        if found is None:
            session = connect(self.store, mode=self.mode)
            resolved = VersionRef(self.dataset_id, self.version)
            manifest = session.catalog.manifest(resolved)
            found = open_artifact(session, resolved, manifest, self.artifact, session.catalog.load_page)
        return found


_opened: WeakValueDictionary[ArtifactAddress, Artifact] = WeakValueDictionary()
_kept: deque[Artifact] = deque(maxlen=_KEPT_OPEN)
"""The latest, so that a batch which outlives its dataset does not open the artifact anew for every row."""


def open_artifact(
    session: Session, resolved: VersionRef, manifest: Manifest, name: str, load_page: LoadPage
) -> Artifact:
    """Reads nothing. `ArtifactNotFoundError` names the artifacts there are."""
    payload = manifest.artifacts.get(name)
    if payload is None:
        names = sorted(manifest.artifacts)
        near = difflib.get_close_matches(name, names, n=3)
        hint = f"Did you mean {' or '.join(near)}?" if near else f"Artifacts: {', '.join(names) or 'none'}"
        raise ArtifactNotFoundError(f"{resolved.dataset_id} has no artifact {name!r}", hint=hint)
    address = ArtifactAddress(session.reader.url, resolved.dataset_id, resolved.version, name, session.mode.value)
    origin = ArtifactBackend(session.media_reader, load_page, address, partial(_extract, session))
    artifact = Artifact(name, ArtifactEntry.of(name, payload), origin)
    _opened[address] = artifact
    _kept.append(artifact)
    return artifact


def for_stream(
    session: Session, used: Collection[Artifact], *, is_filtered: bool
) -> tuple[Session, OnSelection | None]:
    """The same connection for a stream over these artifacts: by a reader that fetches as much of a shard at a time as
    the stream will need of it; and who is to hear how much a filter keeps."""
    size = sum(artifact.entry.shards.data_bytes for artifact in used)
    if not is_filtered:
        return _for_epochs(session, size), None
    return for_selection(session, size, size / max(sum(map(len, used)), 1))


def _for_epochs(session: Session, size_bytes: int) -> Session:
    """The same connection for reading all of some artifacts again and again, if the cache has room for them.

    Then shards are fetched whole from the beginning, so that processes that read them at once share the fetching.
    """
    reader = session.media_reader
    limit = 0 if session.cache is None else int(session.cache.limit_bytes * CACHE_ROOM_FRACTION)
    if session.mode is not Mode.AUTO or not isinstance(reader, CachedReader) or size_bytes > limit:
        return session
    return replace(session, media=reader.under(FILL_FOR_EPOCHS))


def for_selection(session: Session, size_bytes: int, member_bytes: float) -> tuple[Session, OnSelection | None]:
    """The same connection for reading some members of artifacts, and whom to tell which share they are.

    Until that is told, and where they are few, a shard is fetched whole only when half of it was asked for, as one
    of a table: a count of reads would fetch everything for a tenth. Where they are many, it is as for all of them.
    """
    reader = session.media_reader
    if session.mode is not Mode.AUTO or not isinstance(reader, CachedReader):
        return session, None
    sparing, plenty = reader.under(FILL_FOR_TABLES), _for_epochs(session, size_bytes).media_reader
    assert isinstance(plenty, CachedReader), "it only has another policy"

    def settle(share: float) -> None:
        sparing.policy = plenty.policy if _is_dense(share, member_bytes) else FILL_FOR_TABLES

    return replace(session, media=sparing), settle


def _is_dense(share: float, member_bytes: float) -> bool:
    """Whether ranges for this share of the members would add up to most of a shard: they are many, or so close to
    one another that what lies between them is fetched along."""
    return share >= STREAM_DENSE_SHARE or (1 - share) * member_bytes <= share * MEMBER_GAP_BYTES


def _extract(session: Session, content: bytes) -> Path:
    """A file with this content in the cache, which keeps it while this process remembers it."""
    if session.mode is Mode.REMOTE:
        raise UnsupportedError(
            "mode 'remote' writes nothing to disk, so there is no path",
            hint="Use read_bytes() or open(), or mode='auto'.",
        )
    return keep_bytes(session.cache or open_cache(session.settings), content)
