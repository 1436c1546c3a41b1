"""Open the episode sets of a version."""

from __future__ import annotations

import functools

from warpdata.errors import EpisodeNotFoundError
from warpdata.kinds.episodes import EpisodeIndex, Episodes, EpisodesContext, EpisodesEntry
from warpdata.primitives.suggest import suggest
from warpdata.repository.catalog import VersionRef
from warpdata.repository.manifest import Manifest
from warpdata.session import Session, VersionAddress

__all__ = ["EpisodesEntry", "open_episodes"]


def open_episodes(session: Session, resolved: VersionRef, manifest: Manifest, name: str | None) -> Episodes:
    """Open a set by name, or the only one. Reads nothing. `EpisodeNotFoundError` lists the sets of the version."""
    names = sorted(manifest.episodes)
    if name is None:
        if len(names) != 1:
            hint = f"Name one of: {', '.join(names)}." if names else None
            raise EpisodeNotFoundError(f"{resolved.dataset_id} has {len(names)} sets of episodes", hint=hint)
        name = names[0]
    payload = manifest.episodes.get(name)
    if payload is None:
        hint = suggest(name, names, label="Episodes")
        raise EpisodeNotFoundError(f"{resolved.dataset_id} has no episodes {name!r}", hint=hint)
    context = EpisodesContext(
        resolved.dataset_id,
        resolved.version,
        session.media_reader,
        session.settings,
        session.timer,
        functools.partial(_reopen, VersionAddress.of(session, resolved), name),
        may_fork=session.is_local,
    )
    return Episodes(EpisodeIndex(name, EpisodesEntry.of(name, payload), context))


def _reopen(where: VersionAddress, name: str) -> Episodes:
    """Open the same set in another process."""
    session, resolved = where.open()
    return open_episodes(session, resolved, session.catalog.manifest(resolved), name)
