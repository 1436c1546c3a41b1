"""If this fails, a faulty network or store loses a commit, repeats it, or makes a reader return wrong values.

A proxy in front of a real S3 server damages a tenth of all exchanges. Every acknowledged commit must be in the history
once. Every read returns the published values or raises a `WarpError`.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import warpdata as wd
from tests.soak.fault_proxy import FAULTS, READ_FAULTS, FaultProxy
from warpdata.errors import WarpError
from warpdata.session import connect
from warpdata.settings import Settings
from warpdata.testing import S3Endpoint
from warpdata.wshard import Channel, Episode, save_wshard

RATE = 0.1
WRITERS = 4
ROWS = 400
MEDIA = {f"{number:03d}.bin": random.Random(number).randbytes(3_000) for number in range(60)}
STEPS = 50


@pytest.fixture
def proxy(s3_server: S3Endpoint) -> Iterator[FaultProxy]:
    with FaultProxy(s3_server.endpoint_url, READ_FAULTS) as running:
        yield running


def through(proxy: FaultProxy, server: S3Endpoint, url: str, cache: Path) -> Settings:
    settings = server.settings(store_url=url, cache_dir=cache, timeout_s=5.0, max_retries=2)
    return replace(settings, s3=replace(settings.s3, endpoint_url=proxy.endpoint_url))


def publish_through_faults(
    proxy: FaultProxy, server: S3Endpoint, url: str, cache: Path, commits: int
) -> tuple[list[str], list[str]]:
    """Append from several threads. Return the messages of acknowledged commits and of refused ones."""
    proxy.faults, proxy.rate = FAULTS, RATE
    settings = through(proxy, server, url, cache)

    def work(writer: int) -> tuple[list[str], list[str]]:
        acknowledged, refused = [], []
        for step in range(commits):
            name, number = f"{writer}/{step}", writer * 100_000 + step
            rows = pa.table({"n": pa.array([number], pa.int64()), "text": [name * 50]})
            try:
                wd.DatasetBuilder("a/b", connect(settings=settings)).append_table("main", rows).publish(name)
                acknowledged.append(name)
            except WarpError:
                refused.append(name)
        return acknowledged, refused

    with ThreadPoolExecutor(WRITERS) as pool:
        outcomes = list(pool.map(work, range(WRITERS)))
    proxy.rate = 0.0
    return [name for done, _ in outcomes for name in done], [name for _, lost in outcomes for name in lost]


def check_history(server: S3Endpoint, url: str, cache: Path, acknowledged: list[str], refused: list[str]) -> None:
    dataset = wd.dataset("a/b", settings=server.settings(store_url=url, cache_dir=cache / "sound"))
    messages = [entry.message for entry in dataset.history()]
    assert len(messages) == len(set(messages)), "a commit was repeated"
    assert set(acknowledged) <= set(messages), "an acknowledged commit is missing"
    assert set(messages) <= set(acknowledged) | set(refused)
    numbers = dataset.table().to_arrow()["n"].to_pylist()
    assert len(numbers) == len(messages)
    assert len(set(numbers)) == len(numbers)
    assert not wd.verify(dataset).problems


@pytest.mark.s3
def test_no_acknowledged_commit_is_lost_or_repeated(
    proxy: FaultProxy, s3_server: S3Endpoint, s3_url: str, tmp_path: Path
) -> None:
    acknowledged, refused = publish_through_faults(proxy, s3_server, s3_url, tmp_path, commits=3)
    check_history(s3_server, s3_url, tmp_path, acknowledged, refused)
    assert proxy.injected, "no fault was injected"


@pytest.mark.s3
@pytest.mark.soak
def test_hundreds_of_commits(proxy: FaultProxy, s3_server: S3Endpoint, s3_url: str, tmp_path: Path) -> None:
    acknowledged, refused = publish_through_faults(proxy, s3_server, s3_url, tmp_path, commits=80)
    check_history(s3_server, s3_url, tmp_path, acknowledged, refused)


Read = Callable[[wd.Dataset], object]


def episode_values() -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    return np.arange(STEPS * 3, dtype=np.float32).reshape(STEPS, 3)


def publish_everything(server: S3Endpoint, url: str, directory: Path) -> None:
    save_wshard(Episode("e", STEPS, observations={"q": Channel("q", episode_values())}), directory / "e.wshard")
    rows = pa.table(
        {"n": range(ROWS), "text": [f"row {n} " * 20 for n in range(ROWS)], "file": [*MEDIA] * 6 + [*MEDIA][:40]}
    )
    builder = wd.DatasetBuilder("a/b", connect(settings=server.settings(store_url=url, cache_dir=directory / "w")))
    builder.add_table("main", rows).add_artifact("raw", MEDIA, shard_bytes=50_000).bind("main", "file", "raw")
    builder.add_episodes("runs", [directory / "e.wshard"])
    builder.publish()


def windows(dataset: wd.Dataset) -> object:
    batches = [batch["q"] for batch in dataset.episodes().windows(keys={"q": (0, 1)}, batch_size=16)]
    return np.concatenate(batches).tolist()


def streamed(dataset: wd.Dataset) -> object:
    batches = dataset.stream(batch_size=64, shuffle=True, seed=3, columns=["n"])
    return sorted(int(n) for batch in batches for n in batch["n"])


READS: dict[str, Read] = {
    "scan": lambda dataset: dataset.table().select(["n", "text"]).to_arrow().to_pydict(),
    "filter": lambda dataset: dataset.table().select(["n"]).filter("n % 7 = 3").to_arrow().to_pydict(),
    "take": lambda dataset: dataset.table().take([1, 50, 399]).select(["n"]).to_pydict(),
    "head": lambda dataset: dataset.table().head(5).select(["n"]).to_pydict(),
    "members": lambda dataset: sorted(member.path for member in dataset.artifact().members()),
    "read": lambda dataset: dataset.artifact().read("007.bin"),
    "read_many": lambda dataset: wd.read_many(dataset.table().to_arrow()["file"]),
    "stream": streamed,
    "windows": windows,
    "history": lambda dataset: [entry.version for entry in dataset.history()],
    "warm": lambda dataset: dataset.warm() and None,
}


def read_through_faults(
    proxy: FaultProxy, server: S3Endpoint, url: str, directory: Path, rounds: int
) -> tuple[int, int]:
    """Return how many reads gave the published values, and how many raised a typed error."""
    proxy.rate = 0.0
    truth_settings = server.settings(store_url=url, cache_dir=directory / "sound")
    truth = {name: read(wd.dataset("a/b", settings=truth_settings)) for name, read in READS.items()}
    chance = random.Random(rounds)
    good = refused = 0
    for number in range(rounds):
        proxy.faults, proxy.rate = (chance.choice(READ_FAULTS),), chance.choice([0.1, 0.5])
        settings = through(proxy, server, url, directory / f"cache{number % 3}")
        name = chance.choice([*READS])
        try:
            found = READS[name](wd.dataset("a/b", mode=chance.choice(["remote", "auto", "hybrid"]), settings=settings))
        except WarpError:
            refused += 1
            continue
        assert found == truth[name], f"{name} under {proxy.faults[0]!r} returned other values"
        good += 1
    proxy.rate = 0.0
    for name, read in READS.items():
        for number in range(3):
            settings = through(proxy, server, url, directory / f"cache{number}")
            assert read(wd.dataset("a/b", mode="auto", settings=settings)) == truth[name], "a fault was cached"
    return good, refused


@pytest.mark.s3
def test_reads_are_right_or_refused(proxy: FaultProxy, s3_server: S3Endpoint, s3_url: str, tmp_path: Path) -> None:
    publish_everything(s3_server, s3_url, tmp_path)
    good, _ = read_through_faults(proxy, s3_server, s3_url, tmp_path, rounds=12)
    assert good, "no read succeeded"


@pytest.mark.s3
@pytest.mark.soak
def test_hundreds_of_reads(proxy: FaultProxy, s3_server: S3Endpoint, s3_url: str, tmp_path: Path) -> None:
    publish_everything(s3_server, s3_url, tmp_path)
    good, refused = read_through_faults(proxy, s3_server, s3_url, tmp_path, rounds=400)
    assert good > refused / 10
