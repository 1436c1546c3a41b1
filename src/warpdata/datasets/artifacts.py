"""Artifacts as streams and edits open them: cache policies, and the references of drafts."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import TYPE_CHECKING

from warpdata.kinds import VersionContext
from warpdata.kinds.artifacts import ARTIFACTS, Artifact
from warpdata.kinds.tables import SchemaTransform
from warpdata.limits import MEMBER_GAP_BYTES
from warpdata.session import Session
from warpdata.storage.cache import TARGET_FRACTION, CachedReader, FetchPolicy, Mode

if TYPE_CHECKING:
    from warpdata.datasets.dataset import Dataset
    from warpdata.streaming import OnSelectivity

__all__ = ["draft_references", "for_selection", "open_for_stream"]

_DENSE_SHARE = 0.25


def open_for_stream(
    dataset: Dataset, table: str, columns: Collection[str] | None, *, is_part: bool
) -> tuple[dict[str, tuple[Artifact, str]], OnSelectivity | None]:
    """Open the artifacts bound to a table, each with its reference type, over a reader that suits a stream.

    The reader fetches as much of a shard at a time as the stream will use. For a part of the rows, it learns that from
    their share, through the function returned.
    """
    bound = dataset.bound_artifacts(table)
    used = {artifact.name: artifact for name, (artifact, _) in bound.items() if columns is None or name in columns}
    size_bytes = sum(artifact.entry.shards.data_bytes for artifact in used.values())
    if not is_part:
        session, on_selectivity = _for_epochs(dataset.session, size_bytes), None
    else:
        member_bytes = size_bytes / max(sum(map(len, used.values())), 1)
        session, on_selectivity = for_selection(dataset.session, size_bytes, member_bytes)
    if session is not dataset.session:
        context = replace(dataset.context, session=session)
        reopened = {name: ARTIFACTS.open(context, name) for name in {artifact.name for artifact, _ in bound.values()}}
        bound = {column: (reopened[artifact.name], ref_type) for column, (artifact, ref_type) in bound.items()}
    return bound, on_selectivity


def for_selection(session: Session, size_bytes: int, member_bytes: float) -> tuple[Session, OnSelectivity | None]:
    """Return the session for reading some members of artifacts, and a callback that takes their share.

    Before the callback runs, and for a small share, the cache fetches a whole shard only after half of it was
    read: a policy that counts reads would fetch everything for a tenth. For a large share, the policy is that of
    reading all members.
    """
    reader = session.media_reader
    if session.mode is not Mode.AUTO or not isinstance(reader, CachedReader):
        return session, None
    sparse, dense = reader.with_policy(FetchPolicy.TABLES), _for_epochs(session, size_bytes).media_reader
    assert isinstance(dense, CachedReader), "only the policy differs"

    def settle(share: float) -> None:
        sparse.policy = dense.policy if _is_dense(share, member_bytes) else FetchPolicy.TABLES

    return replace(session, media=sparse), settle


def _for_epochs(session: Session, size_bytes: int) -> Session:
    """Return the session for reading all of some artifacts repeatedly, if they fit into the cache.

    Shards are then fetched whole from the beginning, so that concurrent processes share the downloads.
    """
    reader = session.media_reader
    limit = 0 if session.cache is None else int(session.cache.limit_bytes * TARGET_FRACTION)
    if session.mode is not Mode.AUTO or not isinstance(reader, CachedReader) or size_bytes > limit:
        return session
    return replace(session, media=reader.with_policy(FetchPolicy.EPOCHS))


def _is_dense(share: float, member_bytes: float) -> bool:
    """Return whether ranges for this share of the members add up to most of a shard.

    Either the members are many, or the gaps between them are so small that requests span them.
    """
    return share >= _DENSE_SHARE or (1 - share) * member_bytes <= share * MEMBER_GAP_BYTES


def draft_references(table: str, version: VersionContext) -> SchemaTransform | None:
    """Return the function that types bound columns of a draft as references to files that the draft has."""
    if not any(bound.table == table for bound in version.manifest.bindings):
        return None
    from warpdata.datasets.ref_columns import ref_columns_of  # needs Arrow

    return ref_columns_of(version, table)
