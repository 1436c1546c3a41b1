"""Retrieval of episodes by what was observed. If this failed, a robot would be shown the wrong demonstrations."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.trajectories.deepdata_server import TOKEN, DeepDataServer, serve_deepdata
from warpdata.errors import AuthenticationError, BadInputError, CorruptError, LimitExceededError, StoreUnavailableError
from warpdata.trajectories import EpisodeRef, TrajectoryIngestor, TrajectoryRetriever
from warpdata.wshard import Channel, Episode, load_wshard, save_wshard

SIZE = 6


def embed(observation: Any) -> Any:
    return np.concatenate([observation, [1.0]])


@pytest.fixture
def server() -> Iterator[DeepDataServer]:
    with serve_deepdata() as server:
        yield server


@pytest.fixture(params=["dataset", "deepdata"])
def target(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, Any]:
    if request.param == "dataset":
        return {"target": "acme/runs", "store": (tmp_path / "store").as_uri()}
    server: DeepDataServer = request.getfixturevalue("server")
    return {"target": server.url, "token": TOKEN}


def _write(directory: Path, number: int, *, length: int = 40, env: str = "Lift", reward: float = 1.0) -> Path:
    rng = np.random.default_rng(number)
    states = rng.normal(number, 0.1, (length, SIZE)).astype(np.float32)
    path = directory / f"ep_{number:03}.wshard"
    episode = Episode(
        id=f"ep_{number:03}",
        length=length,
        env_id=env,
        observations={"state": Channel("state", states)},
        actions={"ctrl": Channel("ctrl", np.zeros((length, 2), np.float32))},
        rewards=np.full(length, reward / length, np.float32),
    )
    save_wshard(episode, path)
    return path


def _mean(path: Path) -> Any:
    return np.asarray(load_wshard(path).observations["state"].data, np.float64).mean(axis=0)


def test_the_nearest_episodes_come_first(target: dict[str, Any], tmp_path: Path) -> None:
    paths = [_write(tmp_path, number) for number in range(5)]
    ingestor = TrajectoryIngestor(embedder=embed, **target)
    assert ingestor.ingest_episode(paths[0]) == "ep_000"
    assert ingestor.ingest_episodes(paths[1:]) == [f"ep_{number:03}" for number in range(1, 5)]
    query = np.full(SIZE, 2.0)
    hits = TrajectoryRetriever(embedder=embed, **target).search_similar_episodes(query, top_k=3)
    vectors = {path: embed(_mean(path)) for path in paths}
    wanted = embed(query)
    cosines = {p: float(v @ wanted / np.linalg.norm(v) / np.linalg.norm(wanted)) for p, v in vectors.items()}
    best = sorted(paths, key=lambda path: -cosines[path])[:3]
    assert [Path(hit.file_path) for hit in hits] == best
    assert [hit.score for hit in hits] == pytest.approx([cosines[path] for path in best], abs=1e-6)
    assert load_wshard(hits[0].file_path).id == hits[0].episode_id
    assert hits[0].metadata["length_T"] == 40


def test_bounds_leave_out_other_episodes(target: dict[str, Any], tmp_path: Path) -> None:
    chosen = [
        _write(tmp_path, 1, length=120, reward=0.9),
        _write(tmp_path, 2, length=120, reward=0.5),
        _write(tmp_path, 3, length=99, reward=0.9),
        _write(tmp_path, 4, length=120, reward=0.9, env="Stack"),
    ]
    TrajectoryIngestor(embedder=embed, **target).ingest_episodes(chosen)
    retriever = TrajectoryRetriever(embedder=embed, **target)
    hits = retriever.search_similar_episodes(
        np.ones((7, SIZE)), top_k=10, env_id="Lift", min_length=100, reward_range=(0.8, 1.0)
    )
    assert [hit.episode_id for hit in hits] == ["ep_001"]
    assert retriever.search_similar_episodes(np.ones(SIZE), top_k=10, env_id="Push") == []
    assert len(retriever.search_similar_episodes(np.ones(SIZE), top_k=10)) == 4
    assert retriever.search_similar_episodes(np.ones(SIZE), top_k=0) == []


def test_windows_have_their_steps(target: dict[str, Any], tmp_path: Path) -> None:
    ingestor = TrajectoryIngestor(embedder=embed, **target)
    ids = ingestor.ingest_timesteps(_write(tmp_path, 1, length=64), window_size=32, stride=16)
    assert ids == ["ep_001_w0", "ep_001_w16", "ep_001_w32"]
    assert ingestor.ingest_timesteps(_write(tmp_path, 2, length=10)) == ["ep_002_w0"]
    hits = TrajectoryRetriever(embedder=embed, **target).search_similar_timesteps(np.full(SIZE, 2.0), top_k=1)
    assert (hits[0].episode_id, hits[0].metadata["window_start"], hits[0].metadata["window_end"]) == ("ep_002", 0, 10)


def test_an_episode_that_is_ingested_again_is_replaced(target: dict[str, Any], tmp_path: Path) -> None:
    path = _write(tmp_path, 1)
    for _ in range(2):
        TrajectoryIngestor(embedder=embed, **target).ingest_episode(path)
    assert len(TrajectoryRetriever(embedder=embed, **target).search_similar_episodes(np.ones(SIZE))) == 1


@pytest.mark.parametrize(
    "make", [lambda _: np.zeros((2, 2)), lambda _: np.full(3, np.nan), lambda _: [], lambda _: np.zeros(3)]
)
def test_a_bad_vector_is_refused(target: dict[str, Any], tmp_path: Path, make: Any) -> None:
    with pytest.raises(BadInputError, match="embedder"):
        TrajectoryIngestor(embedder=make, **target).ingest_episode(_write(tmp_path, 1))


def test_an_episode_without_observations_is_refused(target: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "bare.wshard"
    save_wshard(Episode(id="bare", length=3, actions={"a": Channel("a", np.zeros((3, 2), np.float32))}), path)
    with pytest.raises(BadInputError, match="no observations"):
        TrajectoryIngestor(embedder=embed, **target).ingest_episode(path)


def test_bad_queries_are_refused(target: dict[str, Any]) -> None:
    retriever = TrajectoryRetriever(embedder=embed, **target)
    for query in (np.zeros((2, 2, 2)), [], ["text"]):
        with pytest.raises(BadInputError, match="query"):
            retriever.search_similar_episodes(query)
    with pytest.raises(BadInputError, match="negative"):
        retriever.search_similar_episodes(np.ones(SIZE), top_k=-1)


def test_a_server_that_knows_no_collection_has_no_episode(server: DeepDataServer) -> None:
    retriever = TrajectoryRetriever(server.url, embed, token=TOKEN)
    assert retriever.search_similar_episodes(np.ones(SIZE)) == []
    with pytest.raises(LimitExceededError, match="1000"):
        retriever.search_similar_episodes(np.ones(SIZE), top_k=1001)


def test_errors_of_a_server_are_typed(server: DeepDataServer, tmp_path: Path) -> None:
    path = _write(tmp_path, 1)
    with pytest.raises(AuthenticationError, match="credential"):
        TrajectoryIngestor(server.url, embed, token="other").ingest_episode(path)
    TrajectoryIngestor(server.url, embed, token=TOKEN).ingest_episode(path)
    with pytest.raises(BadInputError, match="another size"):
        TrajectoryIngestor(server.url, lambda _: np.ones(3), token=TOKEN).ingest_episode(path)
    with pytest.raises(StoreUnavailableError):
        TrajectoryRetriever("http://127.0.0.1:1", embed).search_similar_episodes(np.ones(SIZE))


@pytest.mark.parametrize(
    "reply",
    [
        [1],
        {"documents": [], "scores": [1.0]},
        {"documents": [{"id": 1}], "scores": [1.0]},
        {"documents": [{"id": 1, "metadata": {}}], "scores": ["best"]},
    ],
)
def test_a_strange_answer_is_an_error(server: DeepDataServer, tmp_path: Path, reply: Any) -> None:
    TrajectoryIngestor(server.url, embed, token=TOKEN).ingest_episode(_write(tmp_path, 1))
    server.reply = reply
    with pytest.raises(CorruptError, match="answered a search"):
        TrajectoryRetriever(server.url, embed, token=TOKEN).search_similar_episodes(np.ones(SIZE))


def test_a_reference_has_the_fields_of_the_bridge() -> None:
    assert EpisodeRef("x", "/x", 0.0).metadata == {}
