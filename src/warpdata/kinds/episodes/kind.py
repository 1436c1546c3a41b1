"""Episodes as a payload kind."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

from warpdata.errors import EpisodeNotFoundError, NotFoundError
from warpdata.kinds import PayloadKind, StageContext, StagedEntry, VersionContext, pick_entry
from warpdata.kinds.episodes.entry import EpisodesEntry
from warpdata.kinds.episodes.episodes import Episodes
from warpdata.kinds.episodes.index import EpisodeIndex, EpisodesContext
from warpdata.kinds.episodes.stage import stage_episodes
from warpdata.repository.manifest import ManifestEntry, Payload
from warpdata.session import VersionAddress

__all__ = ["EPISODES", "EpisodesInfo"]


@dataclass(frozen=True, slots=True)
class EpisodesInfo:
    name: str
    episodes: int
    steps: int
    size_bytes: int


class _EpisodesKind(PayloadKind[EpisodesEntry, Episodes]):
    section = "episodes"
    noun = "episodes"
    plural = "sets of episodes"
    item = "episode"
    count_field = "episodes"
    columns = ((">episodes", "episodes"), (">steps", "steps"), (">size", "size_bytes"))

    def not_found(self, message: str, hint: str | None) -> NotFoundError:
        return EpisodeNotFoundError(message, hint=hint)

    def parse(self, name: str, entry: ManifestEntry) -> EpisodesEntry:
        assert isinstance(entry, Payload), name
        return EpisodesEntry.of(name, entry)

    def open(self, version: VersionContext, name: str | None = None) -> Episodes:
        """Open a set of episodes without reading anything."""
        name, entry = pick_entry(self, version.manifest, name)
        session, ref = version.session, version.ref
        context = EpisodesContext(
            ref.dataset_id,
            ref.version,
            session.media_reader,
            session.settings,
            session.timer,
            functools.partial(_reopen, VersionAddress.of(session, ref), name),
            may_fork=session.is_local,
        )
        return Episodes(EpisodeIndex(name, entry, context))

    def describe(self, name: str, entry: ManifestEntry) -> EpisodesInfo:
        parsed = self.parse(name, entry)
        return EpisodesInfo(name, parsed.episode_count, parsed.step_count, parsed.shards.data_bytes)

    def stage(self, name: str, source: Any, context: StageContext) -> StagedEntry:
        return stage_episodes(name, source, context)


EPISODES = _EpisodesKind()


def _reopen(address: VersionAddress, name: str) -> Episodes:
    """Open the same set in another process."""
    session, ref = address.open()
    catalog = session.catalog
    return EPISODES.open(VersionContext(session, ref, catalog.manifest(ref), catalog.load_page), name)
