"""If this fails, worker processes return other windows than one process does, or outlive the loop."""

from __future__ import annotations

import json
import multiprocessing
from dataclasses import replace
from functools import partial
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
import pytest

import warpdata as wd
from tests.kinds.episodes.scenes import make_episode, memory_store, open_session, save_all
from tests.kinds.episodes.test_chunked import cut
from warpdata.datasets import open_dataset
from warpdata.errors import BadInputError, UnsupportedError
from warpdata.kinds.episodes import Episodes
from warpdata.repository.catalog import parse_address
from warpdata.storage import IOMetrics, MeteredReader
from warpdata.testing import S3Endpoint
from warpdata.wshard import Channel, Episode

torch = pytest.importorskip("torch", reason="the extra torch is not installed")

KEYWORDS: dict[str, Any] = {
    "keys": {"rgb": (-3, 1), "imu": (0, 2), "ctrl": (0, 4)},
    "stride": 2,
    "pad": "zero",
    "mask": True,
    "batch_size": 8,
    "shuffle": True,
    "seed": 7,
}


@pytest.fixture(scope="module")
def episodes(tmp_path_factory: pytest.TempPathFactory) -> Episodes:
    """Publish episodes in one file and one in three files, and filter them."""
    root = tmp_path_factory.mktemp("torch-windows")
    paths = save_all(root / "in", [30, 12, 41, 2, 25], compression="zstd", time_chunk_steps=8)
    chunks = cut(replace(make_episode(9, 30), id="long"), [0, 12, 20, 30], [0, 40, 70, 100])
    store = (root / "store").as_uri()
    wd.DatasetBuilder("a/robot", store).add_episodes("demos", [*paths, *chunks]).publish()
    return wd.dataset("a/robot", store=store).episodes().filter("length > 5").filter("id <> 'ep_001'")


def places(batches: Any) -> list[list[tuple[int, int]]]:
    return [list(zip(b["episode"].tolist(), b["step"].tolist(), strict=True)) for b in batches]


@pytest.mark.parametrize("workers", [0, 1, 2])
def test_workers_return_the_same_batches_as_windows(episodes: Episodes, workers: int) -> None:
    loader = episodes.to_torch(**KEYWORDS, num_workers=workers)
    made, wanted = list(loader.epoch(1)), list(episodes.windows(**KEYWORDS).epoch(1))
    assert len(made) == len(wanted) == len(loader)
    for mine, other in zip(made, wanted, strict=True):
        assert mine.keys() == other.keys()
        assert all(isinstance(values, torch.Tensor) for values in mine.values())
        assert all(np.array_equal(mine[name].numpy(), other[name]) for name in other)
    assert not multiprocessing.active_children()


def test_tokens_move_between_streams_workers_and_ranks(episodes: Episodes) -> None:
    whole = places(episodes.windows(**KEYWORDS).epoch(3))
    running = episodes.to_torch(**KEYWORDS, num_workers=2)
    iterator = running.epoch(3)
    before = places(next(iterator) for _ in range(4))
    token = json.loads(json.dumps(running.state_dict()))
    del iterator
    stream = episodes.windows(**KEYWORDS)
    stream.load_state_dict(token)
    rest = stream.epoch(3)
    before += places(next(rest) for _ in range(2))
    rest.close()
    parts = []
    for rank in range(2):
        resumed = episodes.to_torch(**{**KEYWORDS, "batch_size": 4}, shard=(rank, 2), num_workers=rank)
        resumed.load_state_dict(stream.state_dict())
        parts.append(places(resumed))
    assert before + [left + right for left, right in zip(*parts, strict=True)] == whole
    assert not multiprocessing.active_children()


@pytest.mark.filterwarnings("ignore:.set_vital. is deprecated")  # torchdata calls a deprecated function
def test_torchdata_stateful_loader_resumes(episodes: Episodes) -> None:
    torchdata = pytest.importorskip("torchdata.stateful_dataloader", reason="torchdata is not installed")
    whole = places(episodes.windows(**KEYWORDS).epoch(1))

    def stateful() -> Any:
        dataset = episodes.to_torch(**KEYWORDS).dataset
        dataset.set_epoch(1)
        return torchdata.StatefulDataLoader(dataset, batch_size=None, num_workers=2)

    running = stateful()
    iterator = iter(running)
    before = places(next(iterator) for _ in range(4))
    state = running.state_dict()
    del iterator
    again = stateful()
    again.load_state_dict(state)
    assert before + places(again) == whole


@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("begin", [0, 960])
def test_a_worker_fetches_no_more_than_one_process(shuffle: bool, begin: int) -> None:
    """The batches of a worker are far apart and made in parallel, but each block of windows is fetched once."""
    store = memory_store(f"workers-{shuffle}-{begin}")
    rng = np.random.default_rng(0)
    rgb = [Channel("rgb", rng.integers(0, 256, (400, 32, 32, 3), dtype=np.uint8)) for _ in range(4)]
    made = [Episode(f"e{n}", 400, observations={"rgb": channel}) for n, channel in enumerate(rgb)]
    builder = wd.DatasetBuilder("a/r", open_session(store))
    builder.add_episodes("demos", made, compression="zstd", time_chunk_steps=16).publish()

    def bytes_fetched(worker: int, workers: int) -> int:
        counters = IOMetrics()
        connection = open_session(MeteredReader(store, counters))  # type: ignore[arg-type]
        episodes = open_dataset(connection, parse_address("a/r")).episodes()
        stream = episodes.windows(keys={"rgb": (0, 16)}, batch_size=32, shuffle=shuffle).for_worker(worker, workers)
        stream.load_state_dict(stream.state_at(0, begin))
        before = counters.snapshot()
        assert sum(len(batch["step"]) for batch in stream) > 0
        return counters.snapshot().since(before).bytes_fetched

    alone = bytes_fetched(0, 1)
    assert max(bytes_fetched(worker, 4) for worker in range(4)) <= 1.1 * alone


def guarded(lock: Any, sample: dict[str, Any]) -> dict[str, Any]:
    with lock:
        return sample


def test_workers_read_from_an_object_store(s3_url: str, s3_server: S3Endpoint, tmp_path: Path) -> None:
    settings = s3_server.settings(cache_dir=tmp_path / "cache")
    paths = save_all(tmp_path / "in", [20, 9])
    wd.DatasetBuilder("a/robot", s3_url, settings=settings).add_episodes("demos", paths).publish()
    remote = wd.dataset("a/robot", store=s3_url, settings=settings).episodes()
    assert places(remote.to_torch(**KEYWORDS, num_workers=1).epoch(0)) == places(remote.windows(**KEYWORDS).epoch(0))
    with pytest.raises(BadInputError, match="cannot be sent to worker processes"):
        next(iter(remote.to_torch(**KEYWORDS, transform=partial(guarded, Lock()), num_workers=1)))
    with pytest.raises(UnsupportedError):
        remote.to_torch(**KEYWORDS).rebase("main")
    assert not multiprocessing.active_children()
