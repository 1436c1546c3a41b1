"""Ingesting episodes into an index of trajectories, and finding similar ones.

The observations of an episode, or of a window of it, are averaged over the steps; an embedder makes a vector of the
mean. Files are not copied: a hit names its file, and the caller opens that.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from warpdata.errors import BadInputError
from warpdata.formats.wshard import Episode, load_wshard
from warpdata.primitives.arguments import check_arguments
from warpdata.settings import Settings
from warpdata.trajectories.deepdata import DeepDataIndex
from warpdata.trajectories.trajectory_index import DatasetIndex, Found, Record, TrajectoryIndex, Wanted

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["EpisodeRef", "TrajectoryIngestor", "TrajectoryRetriever"]

ObservationEmbedder: TypeAlias = Callable[["NDArray[Any]"], Any]
"""Takes an observation, an array with one axis, and returns its vector."""

_EPISODES, _TIMESTEPS = "episodes", "timesteps"
_NUMBERS = "biuf"


@dataclass(frozen=True, slots=True)
class EpisodeRef:
    """An episode, or a window of it, that was found. Open the file with `load_wshard(ref.file_path)`."""

    episode_id: str
    file_path: str
    score: float
    """The cosine of both vectors."""
    metadata: Mapping[str, Any] = field(default_factory=dict)


@check_arguments
class TrajectoryIngestor:
    """Adds episodes to an index. `target` is the name of a dataset, or the URL of a DeepData server."""

    def __init__(
        self,
        target: str,
        embedder: ObservationEmbedder,
        *,
        store: str | None = None,
        token: str | None = None,
        tenant: str = "default",
        settings: Settings | None = None,
    ) -> None:
        """`store` and `settings` are those of a dataset; `token` and `tenant` those of a server."""
        self._index = _open_index(target, store, token, tenant, settings)
        self._embedder = embedder

    def ingest_episode(self, path: str | Path) -> str:
        """Add an episode by the mean of its observations, and return its id. One with the same id is replaced."""
        return self.ingest_episodes([path])[0]

    def ingest_episodes(self, paths: Iterable[str | Path]) -> list[str]:
        """Add episodes together, which is faster, and return their ids."""
        records = []
        for path in paths:
            episode = load_wshard(path)
            steps = _steps_of(episode, path)
            records.append(Record(episode.id, self._embed(steps), _describe(episode, path)))
        if records:
            self._index.add(_EPISODES, records)
        return [record.key for record in records]

    def ingest_timesteps(self, path: str | Path, window_size: int = 32, stride: int = 16) -> list[str]:
        """Add windows of an episode, and return their ids, such as `ep_001_w16`. A short episode is one window."""
        if window_size < 1 or stride < 1:
            raise BadInputError(f"window_size={window_size} and stride={stride} must be positive")
        episode = load_wshard(path)
        steps, described = _steps_of(episode, path), _describe(episode, path)
        records = [
            Record(
                f"{episode.id}_w{start}",
                self._embed(steps[start:stop]),
                {**described, "window_start": start, "window_end": stop},
            )
            for start, stop in _windows(len(steps), window_size, stride)
        ]
        self._index.add(_TIMESTEPS, records)
        return [record.key for record in records]

    def _embed(self, steps: NDArray[Any]) -> NDArray[np.float32]:
        return _embed(self._embedder, steps)


@check_arguments
class TrajectoryRetriever:
    """Finds episodes that an ingestor with the same target and embedder added."""

    def __init__(
        self,
        target: str,
        embedder: ObservationEmbedder,
        *,
        store: str | None = None,
        token: str | None = None,
        tenant: str = "default",
        settings: Settings | None = None,
    ) -> None:
        """`store` and `settings` are those of a dataset; `token` and `tenant` those of a server."""
        self._index = _open_index(target, store, token, tenant, settings)
        self._embedder = embedder

    def search_similar_episodes(
        self,
        query_obs: Any,
        top_k: int = 10,
        *,
        env_id: str | None = None,
        min_length: int | None = None,
        reward_range: tuple[float, float] | None = None,
    ) -> list[EpisodeRef]:
        """Find episodes near to an observation, or to the mean of several steps. `reward_range` has both ends."""
        return self._search(_EPISODES, query_obs, top_k, Wanted(env_id, min_length, reward_range))

    def search_similar_timesteps(
        self, query_obs: Any, top_k: int = 10, *, env_id: str | None = None
    ) -> list[EpisodeRef]:
        """Find windows near to an observation. `metadata` has their `window_start` and `window_end`."""
        return self._search(_TIMESTEPS, query_obs, top_k, Wanted(env_id))

    def _search(self, table: str, query_obs: Any, top_k: int, wanted: Wanted) -> list[EpisodeRef]:
        if top_k < 0:
            raise BadInputError(f"top_k={top_k} is negative", hint="Pass the number of episodes, such as top_k=10.")
        observed = np.asarray(query_obs)
        if observed.ndim not in (1, 2) or observed.dtype.kind not in _NUMBERS or not observed.size:
            raise BadInputError(f"the query is an observation or an array of steps, not of shape {observed.shape}")
        vector = _embed(self._embedder, observed.reshape(-1, observed.shape[-1]))
        return [_to_ref(found) for found in self._index.search(table, vector, top_k, wanted)]


def _open_index(
    target: str, store: str | None, token: str | None, tenant: str, settings: Settings | None
) -> TrajectoryIndex:
    if target.startswith(("http://", "https://")):
        return DeepDataIndex(target, token, tenant)
    return DatasetIndex(target, store, settings)


def _to_ref(found: Found) -> EpisodeRef:
    known = found.metadata
    return EpisodeRef(str(known.get("episode_id", "")), str(known.get("file_path", "")), found.score, known)


def _describe(episode: Episode, path: str | Path) -> dict[str, str | int | float | None]:
    reward = None if episode.rewards is None else float(np.asarray(episode.rewards, np.float64).sum())
    return {
        "episode_id": episode.id,
        "env_id": episode.env_id,
        "file_path": str(path),
        "length_T": episode.length,
        "total_reward": reward if reward is None or math.isfinite(reward) else None,
    }


def _steps_of(episode: Episode, path: str | Path) -> NDArray[np.float64]:
    """Return the numbers of the observations by step, channels in the order of their names."""
    parts = []
    for name in sorted(episode.observations):
        values = np.asarray(episode.observations[name].data)
        if values.dtype.kind in _NUMBERS and len(values) == episode.length and values.size:
            parts.append(values.reshape(len(values), -1).astype(np.float64))
    if not parts:
        raise BadInputError(
            f"episode {episode.id!r} has no observations of numbers ({path})", hint="Record a channel of numbers."
        )
    return np.concatenate(parts, axis=1)


def _embed(embedder: ObservationEmbedder, steps: NDArray[Any]) -> NDArray[np.float32]:
    vector = np.asarray(embedder(steps.mean(axis=0)), np.float32)
    if vector.ndim != 1 or not vector.size or not np.isfinite(vector).all() or not vector.any():
        raise BadInputError(
            f"the embedder returned an array of shape {vector.shape}, and not one finite vector that is not zero"
        )
    return vector


def _windows(length: int, size: int, stride: int) -> Iterator[tuple[int, int]]:
    if length < size:
        yield 0, length
    for start in range(0, length - size + 1, stride):
        yield start, start + size
