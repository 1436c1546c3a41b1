"""Episodes of a version, opened."""

from __future__ import annotations

import difflib
import functools

from warpdata.errors import EpisodeNotFoundError
from warpdata.kinds.episodes import Episodes, EpisodesEntry, Library, Origin
from warpdata.repository.catalog import VersionRef
from warpdata.repository.manifest import Manifest
from warpdata.session import Session, VersionAddress

__all__ = ["EpisodesEntry", "open_episodes"]


def open_episodes(session: Session, resolved: VersionRef, manifest: Manifest, name: str | None) -> Episodes:
    """Reads nothing. `EpisodeNotFoundError` names the sets there are; without a name the only one is meant."""
    names = sorted(manifest.episodes)
    if name is None:
        if len(names) != 1:
            hint = f"Name one of: {', '.join(names)}." if names else None
            raise EpisodeNotFoundError(f"{resolved.dataset_id} has {len(names)} sets of episodes", hint=hint)
        name = names[0]
    payload = manifest.episodes.get(name)
    if payload is None:
        near = difflib.get_close_matches(name, names, n=3)
        hint = f"Did you mean {' or '.join(near)}?" if near else f"Episodes: {', '.join(names) or 'none'}"
        raise EpisodeNotFoundError(f"{resolved.dataset_id} has no episodes {name!r}", hint=hint)
    origin = Origin(
        resolved.dataset_id,
        resolved.version,
        session.media_reader,
        session.settings,
        session.timer,
        functools.partial(_reopen, VersionAddress.of(session, resolved), name),
        may_fork=session.is_local,
    )
    return Episodes(Library(name, EpisodesEntry.of(name, payload), origin))


def _reopen(where: VersionAddress, name: str) -> Episodes:
    """The same set, opened in another process."""
    session, resolved = where.open()
    return open_episodes(session, resolved, session.catalog.manifest(resolved), name)
