"""Vectors of episodes, by which similar ones are found. Implements "Similar episodes" of docs/specs/episodes.md.

The default vector has, for each number of a step: mean, standard deviation, first, last, and mean change from step to
step. Vectors are standardized over the set and compared by distance.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from warpdata.errors import BadInputError, NotFoundError
from warpdata.formats.search import TopScores, VectorQuery
from warpdata.formats.wshard import Array
from warpdata.kinds.episodes.episode import StoredEpisode
from warpdata.primitives.parallel import IO_POOL

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from warpdata.kinds.episodes.index import EpisodeIndex

__all__ = ["Embedder", "EpisodeVectors", "SimilarEpisode", "describe_steps"]

Embedder: TypeAlias = Callable[[Mapping[str, Array]], Any]
"""Takes the channels of an episode or window, an array of steps for each, and returns its vector."""

_MAX_STEP_VALUES = 256
_NUMBERS = "biuf"


@dataclass(frozen=True, slots=True)
class SimilarEpisode:
    """An episode that was found: its id, the SHA-256 of its file, its number in the set, and the score."""

    id: str
    hash: str
    number: int
    score: float


def describe_steps(channels: Mapping[str, Array]) -> NDArray[np.float64]:
    """Return the default vector of an episode or window. Channels come in the order of their names."""
    parts = []
    for name in sorted(channels):
        given = np.asarray(channels[name], np.float64)
        if not given.size:
            raise BadInputError(f"channel {name!r} has no steps to describe")
        steps = given.reshape(len(given), -1)
        change = np.abs(np.diff(steps, axis=0)).mean(axis=0) if len(steps) > 1 else np.zeros(steps.shape[1])
        parts += [steps.mean(axis=0), steps.std(axis=0), steps[0], steps[-1], change]
    return np.concatenate(parts)


class EpisodeVectors:
    """The vectors of all episodes of a set, in memory. Making them reads the channels of every episode."""

    def __init__(self, index: EpisodeIndex, channels: Sequence[str] | None, embedder: Embedder | None) -> None:
        count = index.entry.episode_count
        self._embedder = embedder
        self.channels = tuple(channels) if channels else _number_channels(index.open(0)) if count else ()
        if count and not self.channels:
            raise NotFoundError("the episodes have no channel of numbers to compare", hint="Pass channels=….")

        def read(number: int) -> tuple[str, str, NDArray[np.float64]]:
            episode = index.open(number)
            return episode.id, episode.hash, self.embed(episode.read(self.channels))

        self._episodes = list(IO_POOL.map_ordered(read, range(count)))
        self._stored = _as_rows(self._episodes)
        finite = self._stored[np.isfinite(self._stored).all(axis=1)]
        self._mean = finite.mean(axis=0) if len(finite) else np.zeros(self._stored.shape[1])
        scale = finite.std(axis=0) if len(finite) else np.ones(self._stored.shape[1])
        self._scale = np.where(scale > 0, scale, 1.0)

    def embed(self, channels: Mapping[str, Array]) -> NDArray[np.float64]:
        """Return the vector of an episode or window, before it is standardized."""
        missing = [name for name in self.channels if name not in channels]
        if missing:
            raise BadInputError(f"the window has no channel {missing[0]!r}", hint=f"Channels: {list(self.channels)}.")
        chosen = {name: np.asarray(channels[name]) for name in self.channels}
        vector = np.asarray((self._embedder or describe_steps)(chosen), np.float64)
        if vector.ndim != 1:
            raise BadInputError(f"the embedder returned an array of shape {vector.shape}, and not one vector")
        return vector

    def search(self, query: NDArray[np.float64], numbers: NDArray[np.int64], k: int) -> list[SimilarEpisode]:
        """Return the best of these episodes. Those with equal scores are in the order of the set."""
        if len(query) != len(self._mean):
            raise BadInputError(
                f"the query has a vector of {len(query)} numbers; the episodes have {len(self._mean)}",
                hint="Channels of the query must have the shape of the set's.",
            )
        wanted = VectorQuery((query - self._mean) / self._scale, "l2")
        best = TopScores(k)
        if k and len(numbers):
            wanted.search(numbers, (self._stored[numbers] - self._mean) / self._scale, best)
        rows, scores = best.result()
        chosen = np.lexsort((rows, -scores))[:k]
        found = [(int(rows[at]), float(scores[at])) for at in chosen]
        return [SimilarEpisode(*self._episodes[number][:2], number, score) for number, score in found]

    def vector_of(self, number: int) -> NDArray[np.float64]:
        vector: NDArray[np.float64] = self._stored[number]
        return vector


def _number_channels(episode: StoredEpisode) -> tuple[str, ...]:
    """Return the channels of an episode that have a few numbers for each step."""
    found = []
    for block, spec in episode.info.channels.items():
        if episode.is_encoded(block) or block not in episode.file:
            continue
        kind = episode.file[block].block_type
        if kind.dtype.numpy.kind in _NUMBERS and math.prod(kind.shape) <= _MAX_STEP_VALUES:
            found.append(spec.id)
    return tuple(sorted(found))


def _as_rows(episodes: Sequence[tuple[str, str, NDArray[np.float64]]]) -> NDArray[np.float64]:
    for name, _, vector in episodes:
        if len(vector) != len(episodes[0][2]):
            raise BadInputError(
                f"episode {name!r} has a vector of {len(vector)} numbers; {episodes[0][0]!r} has {len(episodes[0][2])}",
                hint="Pass channels=… that have one shape in all episodes.",
            )
    return np.stack([vector for _, _, vector in episodes]) if episodes else np.empty((0, 1))
