"""Episodes as a payload kind."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from warpdata.errors import EpisodeNotFoundError, NotFoundError
from warpdata.kinds import ChooseSide, PayloadKind, StageContext, StagedEntry, VersionContext, pick_entry
from warpdata.kinds.episodes.edit import EpisodeChanges, StoredRows, edit_episodes, merge_episodes
from warpdata.kinds.episodes.entry import EpisodesEntry
from warpdata.kinds.episodes.episodes import Episodes
from warpdata.kinds.episodes.index import EpisodeIndex, EpisodesContext
from warpdata.kinds.episodes.stage import stage_episodes
from warpdata.repository.manifest import ManifestEntry, Payload, iter_shards
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

    def edit(
        self, version: VersionContext, name: str, added: Any, removed: Sequence[str], context: StageContext
    ) -> StagedEntry:
        """Add what `stage_episodes` takes, or None, and remove episodes by id."""
        stored = self._part(version, name) if name in version.manifest.episodes or removed else None
        return edit_episodes(name, stored, EpisodeChanges(added, removed), context)

    def merge_sides(
        self,
        name: str,
        sides: tuple[VersionContext, VersionContext, VersionContext],
        choose: ChooseSide,
        context: StageContext,
    ) -> StagedEntry | None:
        """Merge by id. None if the sides have check units of different sizes."""
        base, ours, theirs = (self._part(side, name) if name in side.manifest.episodes else None for side in sides)
        if ours is None or theirs is None or ours.check_bytes != theirs.check_bytes:
            return None
        return merge_episodes(name, (base, ours, theirs), choose, context)

    def _part(self, version: VersionContext, name: str) -> StoredRows:
        index = self.open(version, name).index
        return StoredRows(index, tuple(iter_shards(index.entry.shards, version.load_page)))


EPISODES = _EpisodesKind()


def _reopen(address: VersionAddress, name: str) -> Episodes:
    """Open the same set in another process."""
    return EPISODES.open(VersionContext.of(*address.open()), name)
