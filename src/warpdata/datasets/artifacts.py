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
from warpdata.kinds.artifacts import Artifact, ArtifactEntry, Origin
from warpdata.limits import MEMBER_GAP_BYTES
from warpdata.repository.catalog import VersionRef
from warpdata.repository.manifest import LoadPage, Manifest
from warpdata.session import Session, connect, open_cache
from warpdata.storage.cache import TARGET_FRACTION, CachedReader, FetchPolicy, Mode

if TYPE_CHECKING:
    from warpdata.datasets.dataset import Dataset
    from warpdata.streaming import OnSelectivity

__all__ = ["ArtifactAddress", "for_selection", "open_artifact", "open_for_stream"]

_KEPT_OPEN = 64
_DENSE_SHARE = 0.25


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
    origin = Origin(session.media_reader, load_page, address, partial(_extract, session))
    artifact = Artifact(name, ArtifactEntry.of(name, payload), origin)
    _opened[address] = artifact
    _kept.append(artifact)
    return artifact


def open_for_stream(
    dataset: Dataset, table: str, columns: Collection[str] | None, condition: str | None
) -> tuple[dict[str, tuple[Artifact, str]], OnSelectivity | None]:
    """Open the artifacts bound to a table, each with its reference type, over a reader that suits a stream.

    The reader fetches as much of a shard at a time as the stream will use. With a filter, it learns that from the
    share of rows that the filter keeps, through the function returned.
    """
    bound = dataset.bound_artifacts(table)
    used = {artifact.name: artifact for name, (artifact, _) in bound.items() if columns is None or name in columns}
    size_bytes = sum(artifact.entry.shards.data_bytes for artifact in used.values())
    if condition is None:
        session, on_selectivity = _for_epochs(dataset.session, size_bytes), None
    else:
        member_bytes = size_bytes / max(sum(map(len, used.values())), 1)
        session, on_selectivity = for_selection(dataset.session, size_bytes, member_bytes)
    if session is not dataset.session:
        reopened = {
            name: open_artifact(session, dataset.version_ref, dataset.manifest, name, dataset.load_page)
            for name in {artifact.name for artifact, _ in bound.values()}
        }
        bound = {column: (reopened[artifact.name], ref_type) for column, (artifact, ref_type) in bound.items()}
    return bound, on_selectivity


def _for_epochs(session: Session, size_bytes: int) -> Session:
    """The same connection for reading all of some artifacts again and again, if the cache has room for them.

    Then shards are fetched whole from the beginning, so that processes that read them at once share the fetching.
    """
    reader = session.media_reader
    limit = 0 if session.cache is None else int(session.cache.limit_bytes * TARGET_FRACTION)
    if session.mode is not Mode.AUTO or not isinstance(reader, CachedReader) or size_bytes > limit:
        return session
    return replace(session, media=reader.with_policy(FetchPolicy.EPOCHS))


def for_selection(session: Session, size_bytes: int, member_bytes: float) -> tuple[Session, OnSelectivity | None]:
    """The same connection for reading some members of artifacts, and whom to tell which share they are.

    Until that is told, and where they are few, a shard is fetched whole only when half of it was asked for, as one
    of a table: a count of reads would fetch everything for a tenth. Where they are many, it is as for all of them.
    """
    reader = session.media_reader
    if session.mode is not Mode.AUTO or not isinstance(reader, CachedReader):
        return session, None
    sparing, plenty = reader.with_policy(FetchPolicy.TABLES), _for_epochs(session, size_bytes).media_reader
    assert isinstance(plenty, CachedReader), "it only has another policy"

    def settle(share: float) -> None:
        sparing.policy = plenty.policy if _is_dense(share, member_bytes) else FetchPolicy.TABLES

    return replace(session, media=sparing), settle


def _is_dense(share: float, member_bytes: float) -> bool:
    """Whether ranges for this share of the members would add up to most of a shard: they are many, or so close to
    one another that what lies between them is fetched along."""
    return share >= _DENSE_SHARE or (1 - share) * member_bytes <= share * MEMBER_GAP_BYTES


def _extract(session: Session, content: bytes) -> Path:
    """A file with this content in the cache, which keeps it while this process remembers it."""
    if session.mode is Mode.REMOTE:
        raise UnsupportedError(
            "mode 'remote' writes nothing to disk, so there is no path",
            hint="Use read_bytes() or open(), or mode='auto'.",
        )
    return (session.cache or open_cache(session.settings)).put(content)
