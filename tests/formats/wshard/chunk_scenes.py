"""An episode in chunks, which the tests of several languages share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise

import numpy as np

from warpdata.wshard import Channel, Episode

__all__ = ["long_episode", "pieces"]


def long_episode() -> Episode:
    state = np.arange(60, dtype=np.float64).reshape(30, 2)
    return Episode(
        "long",
        30,
        "E",
        observations={"s": Channel("s", state)},
        actions={"a": Channel("a", np.arange(30, dtype=np.int16))},
        omens={"s/m": Channel("s/m", state * 2)},
        rewards=np.arange(30, dtype=np.float32),
        metadata={"a": 1.0},
    )


def pieces(episode: Episode, cuts: list[int]) -> list[Episode]:
    def cut(group: Mapping[str, Channel], start: int, stop: int) -> dict[str, Channel]:
        return {name: replace(channel, data=channel.data[start:stop]) for name, channel in group.items()}

    assert episode.rewards is not None
    return [
        replace(
            episode,
            length=stop - start,
            rewards=episode.rewards[start:stop],
            observations=cut(episode.observations, start, stop),
            actions=cut(episode.actions, start, stop),
            omens=cut(episode.omens, start, stop),
        )
        for start, stop in pairwise(cuts)
    ]
