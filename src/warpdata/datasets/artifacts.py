"""Cache policies for streams that read artifacts."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import TYPE_CHECKING

from warpdata.kinds.artifacts import Artifact
from warpdata.limits import CACHE_ROOM_FRACTION, MEMBER_GAP_BYTES, STREAM_DENSE_SHARE
from warpdata.session import Session
from warpdata.storage.cache import FILL_FOR_EPOCHS, FILL_FOR_TABLES, CachedReader, Mode

if TYPE_CHECKING:
    from warpdata.streaming import OnSelection

__all__ = ["for_selection", "for_stream"]


def for_stream(
    session: Session, used: Collection[Artifact], *, is_filtered: bool
) -> tuple[Session, OnSelection | None]:
    """Return the session with a cache policy that suits a stream over these artifacts.

    For a filtered stream, also return a callback that takes the selectivity of the filter.
    """
    size = sum(artifact.entry.shards.data_bytes for artifact in used)
    if not is_filtered:
        return _for_epochs(session, size), None
    return for_selection(session, size, size / max(sum(map(len, used)), 1))


def for_selection(session: Session, size_bytes: int, member_bytes: float) -> tuple[Session, OnSelection | None]:
    """Return the session for reading some members of artifacts, and a callback that takes their share.

    Before the callback runs, and for a small share, the cache fetches a whole shard only after half of it was
    read: a policy that counts reads would fetch everything for a tenth. For a large share, the policy is that of
    reading all members.
    """
    reader = session.media_reader
    if session.mode is not Mode.AUTO or not isinstance(reader, CachedReader):
        return session, None
    sparse, dense = reader.under(FILL_FOR_TABLES), _for_epochs(session, size_bytes).media_reader
    assert isinstance(dense, CachedReader), "only the policy differs"

    def settle(share: float) -> None:
        sparse.policy = dense.policy if _is_dense(share, member_bytes) else FILL_FOR_TABLES

    return replace(session, media=sparse), settle


def _for_epochs(session: Session, size_bytes: int) -> Session:
    """Return the session for reading all of some artifacts repeatedly, if they fit into the cache.

    Shards are then fetched whole from the beginning, so that concurrent processes share the downloads.
    """
    reader = session.media_reader
    limit = 0 if session.cache is None else int(session.cache.limit_bytes * CACHE_ROOM_FRACTION)
    if session.mode is not Mode.AUTO or not isinstance(reader, CachedReader) or size_bytes > limit:
        return session
    return replace(session, media=reader.under(FILL_FOR_EPOCHS))


def _is_dense(share: float, member_bytes: float) -> bool:
    """Return whether ranges for this share of the members add up to most of a shard.

    Either the members are many, or the gaps between them are so small that requests span them.
    """
    return share >= STREAM_DENSE_SHARE or (1 - share) * member_bytes <= share * MEMBER_GAP_BYTES
