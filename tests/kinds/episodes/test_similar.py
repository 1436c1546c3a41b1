"""If this fails, a search for similar episodes returns others, or reads the whole set at every call."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import warpdata as wd
from tests.kinds.episodes.scenes import make_episode
from warpdata.errors import BadInputError, ColumnNotFoundError, EpisodeNotFoundError, NotFoundError
from warpdata.wshard import Channel, Episode, save_wshard

STORE = "memory://similar"


@pytest.fixture
def episodes(tmp_path: Path) -> wd.Episodes:
    """Twelve episodes; those with an even number circle slowly, the others fast."""
    paths = []
    for number in range(12):
        episode = make_episode(number, 30 + number)
        speed = 0.1 if number % 2 == 0 else 2.0
        steps = np.sin(speed * np.arange(episode.length)[:, None] + np.arange(7)).astype(np.float32)
        channels = {**episode.observations, "joint": Channel("joint", steps)}
        episode = replace(episode, observations=channels)
        paths.append(tmp_path / f"{number:03d}.wshard")
        save_wshard(episode, paths[-1])
    wd.DatasetBuilder("a/runs", STORE).add_episodes("runs", paths).publish(replace=True)
    return wd.dataset("a/runs", store=STORE).episodes("runs")


def test_similar_episodes_come_first(episodes: wd.Episodes) -> None:
    found = episodes.similar("ep_004", k=6, channels=["joint"])
    assert found[0].id == "ep_004"
    assert found[0].score == 0
    assert {ref.number % 2 for ref in found} == {0}
    assert [ref.score for ref in found] == sorted((ref.score for ref in found), reverse=True)
    assert found[1].hash == episodes[found[1].number].hash
    assert episodes.similar(episodes["ep_004"], k=6, channels=["joint"]) == found
    window = {"joint": np.asarray(episodes["ep_005"].read(["joint"])["joint"])[5:25]}
    assert {ref.number % 2 for ref in episodes.similar(window, k=6, channels=["joint"])} == {1}


def test_filters_and_counts_bound_the_answer(episodes: wd.Episodes) -> None:
    found = episodes.similar("ep_004", k=20, filter="length > 35 AND env_id = 'Stack-v1'")
    assert sorted(ref.id for ref in found) == ["ep_007", "ep_009", "ep_011"]
    chosen = episodes.filter("env_id = 'Lift-v1'")
    assert len(chosen.similar("ep_004", k=20)) == 6
    assert episodes.similar("ep_004", k=0) == []


def test_a_filter_may_name_the_total_reward(episodes: wd.Episodes) -> None:
    totals = {
        episode.id: float(np.asarray(episode.read(["reward"])["reward"], np.float64).sum()) for episode in episodes
    }
    middle = sorted(totals.values())[6]
    found = episodes.similar("ep_004", k=20, filter=f"reward > {middle} AND env_id = 'Lift-v1'")
    lift = {episode.id for episode in episodes.filter("env_id = 'Lift-v1'")}
    assert {ref.id for ref in found} == {name for name, total in totals.items() if total > middle} & lift
    assert {ref.id for ref in episodes.filter("length > 35").similar("ep_007", k=20, filter=f"reward <= {middle}")} == {
        name for name, total in totals.items() if total <= middle and int(name[3:]) > 5
    }
    with pytest.raises(ColumnNotFoundError):
        episodes.similar("ep_004", filter="regard > 1")


def test_episodes_without_rewards_have_a_null(tmp_path: Path) -> None:
    path = tmp_path / "bare.wshard"
    states = {"state": Channel("state", np.zeros((5, 2), np.float32))}
    save_wshard(Episode("bare", 5, observations=states), path)
    wd.DatasetBuilder("a/bare", STORE).add_episodes("runs", path).publish(replace=True)
    found = wd.dataset("a/bare", store=STORE).episodes()
    assert found.similar("bare", filter="reward >= 0 OR reward < 0") == []
    assert len(found.similar("bare", filter="reward IS NULL")) == 1


def test_vectors_may_come_from_a_function_and_are_made_once(episodes: wd.Episodes) -> None:
    calls = []

    def mean(channels: Any) -> Any:
        calls.append(sorted(channels))
        return channels["ctrl"].mean(axis=0)

    first = episodes.similar("ep_003", embedder=mean, channels=["ctrl"])
    assert len(calls) == 13
    assert episodes.similar("ep_003", embedder=mean, channels=["ctrl"]) == first
    assert len(calls) == 14
    assert first[0].id == "ep_003"


def test_wrong_queries_are_named(episodes: wd.Episodes) -> None:
    with pytest.raises(EpisodeNotFoundError):
        episodes.similar("ep_999")
    with pytest.raises(NotFoundError, match="no channel 'nope'"):
        episodes.similar("ep_001", channels=["nope"])
    with pytest.raises(BadInputError, match="no channel 'joint'"):
        episodes.similar({"ctrl": np.zeros((3, 4))}, channels=["joint"])
    with pytest.raises(BadInputError, match="a vector of 10 numbers; the episodes have 35"):
        episodes.similar({"joint": np.zeros((3, 2))}, channels=["joint"])
    with pytest.raises(BadInputError, match="has no steps"):
        episodes.similar({"joint": np.zeros((0, 7))}, channels=["joint"])
    with pytest.raises(BadInputError, match="k=-1"):
        episodes.similar("ep_001", k=-1)
    with pytest.raises(BadInputError, match="not one vector"):
        episodes.similar("ep_001", channels=["joint"], embedder=lambda channels: channels["joint"])
